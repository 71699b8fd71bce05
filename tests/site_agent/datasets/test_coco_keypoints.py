"""Landmarks in COCO's JSON."""

import json
from pathlib import Path
from typing import Any

import pytest

from site_agent.datasets.coco_keypoints import read_coco_keypoints
from site_agent.errors import AnnotationFileError

IMAGE = {"id": 7, "file_name": "one.png", "width": 64, "height": 48}
FACE = {
    "id": 1,
    "image_id": 7,
    "category_id": 3,
    "bbox": [10.4, 5.5, 20.0, 30.2],
    "keypoints": [12, 13, 2, 0, 0, 0, 20.5, 21.5, 1],
}
CATEGORY = {"id": 3, "name": "face", "keypoints": ["b", "a", "nose"]}


def written(folder: Path, **lists: list[dict[str, Any]]) -> Path:
    path = folder / "keypoints.json"
    content = {"info": {"version": "1"}, "images": [IMAGE], "annotations": [FACE]}
    path.write_text(json.dumps(content | {"categories": [CATEGORY]} | lists, indent=1))
    return path


def test_boxes_landmarks_and_marks(tmp_path: Path) -> None:
    crowd = FACE | {"id": 2, "iscrowd": 1, "keypoints": [0] * 9}
    dataset = read_coco_keypoints(written(tmp_path, annotations=[FACE, crowd]))
    [image] = dataset.images
    assert (image.path, image.width_px, image.height_px) == (tmp_path / "one.png", 64, 48)
    face, ignored = image.boxes
    assert (face.left, face.top, face.width, face.height) == (10, 6, 20, 30)
    assert face.parts == {"b": (12.0, 13.0), "nose": (20.5, 21.5)}
    assert (face.occluded, face.label, face.ignore) == (True, None, False)
    assert (ignored.ignore, ignored.parts) == (True, {})


def test_categories_become_labels_where_there_are_several(tmp_path: Path) -> None:
    nameless = {"id": 4, "name": "profile"}
    other = FACE | {"id": 2, "category_id": 4}
    path = written(tmp_path, categories=[CATEGORY, nameless], annotations=[FACE, other])
    first, second = read_coco_keypoints(path).images[0].boxes
    assert (first.label, second.label) == ("face", "profile")
    assert list(second.parts) == ["00", "02"]


def test_what_other_tools_write_is_read(tmp_path: Path) -> None:
    faces = [
        FACE | {"id": 2, "iscrowd": 1, "bbox": [1, 2, 0, 5]},
        FACE | {"id": 3, "iscrowd": 1, "bbox": [], "keypoints": [0] * 9},
        FACE | {"id": 4, "keypoints": None},
        FACE | {"id": 5, "bbox": []},
        {key: value for key, value in FACE.items() if key != "bbox"},
    ]
    sized = IMAGE | {"width": 50.0, "height": 40.0}
    [image] = read_coco_keypoints(written(tmp_path, images=[sized], annotations=faces)).images
    assert (image.width_px, image.height_px) == (50, 40)
    plain, around, also = image.boxes
    assert (plain.corners, plain.parts) == ((10, 6, 29, 35), {})
    assert around.corners == also.corners == (11, 12, 22, 23)
    assert list(around.parts) == ["b", "nose"]


def test_faces_of_whole_bodies(tmp_path: Path) -> None:
    body = FACE | {"face_box": [1, 2, 3, 4], "face_kpts": [5, 6, 0.7], "face_valid": True}
    without = body | {"id": 2, "face_valid": False}
    [image] = read_coco_keypoints(written(tmp_path, annotations=[body, without])).images
    [face] = image.boxes
    assert face.corners == (1, 2, 3, 5)
    assert face.parts == {"00": (5.0, 6.0)}


@pytest.mark.parametrize(
    ("lists", "message"),
    [
        ({"annotations": [FACE | {"image_id": 9}]}, "id 1 is of image 9, which is not listed"),
        ({"annotations": [FACE | {"bbox": [1, 2, 3]}]}, "3 numbers in 'bbox'"),
        ({"annotations": [FACE | {"keypoints": [1, 2]}]}, "2 numbers in 'keypoints'"),
        ({"annotations": [3]}, "no list 'annotations'"),
        ({"images": [IMAGE, IMAGE]}, "two images with the same id"),
        ({"categories": [CATEGORY | {"keypoints": ["a", "a", "b"]}]}, "names ['a', 'a', 'b']"),
    ],
)
def test_errors_name_the_entry(lists: dict[str, Any], message: str, tmp_path: Path) -> None:
    path = written(tmp_path, **lists)
    with pytest.raises(AnnotationFileError) as caught:
        read_coco_keypoints(path)
    assert message in caught.value.problem
    assert caught.value.path == path


@pytest.mark.parametrize(
    ("text", "line"), [('{"images": [],\n "annotations": [1 2]}', 2), ("[1]", 0)]
)
def test_files_that_are_not_such_json(text: str, line: int, tmp_path: Path) -> None:
    path = tmp_path / "faces.json"
    path.write_text(text)
    with pytest.raises(AnnotationFileError) as caught:
        read_coco_keypoints(path)
    assert caught.value.line == line
