"""Landmarks in COCO's JSON and in .pts files, and the laws of every format."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from site_agent.datasets.coco_keypoints import read_coco_keypoints
from site_agent.datasets.conversion import ANNOTATION_FORMATS
from site_agent.datasets.imglab_xml import write_imglab_xml
from site_agent.datasets.pts_files import find_pts, read_pts, read_pts_folder
from site_agent.datasets.records import FaceDataset
from site_agent.errors import AnnotationFileError
from tests.conformance.annotation_formats import AnnotationFormatLaws
from tests.site_agent.datasets.drawn import picture
from tests.site_agent.datasets.other_layouts import write_coco_keypoints, write_pts_folder

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


WITH_HEADER = "version: 1\nn_points:  3\n{\n1.0 1.0\n3.5 2\n11 21.25\n}\n"

EXPECTED = [[0.0, 0.0], [2.5, 1.0], [10.0, 20.25]]


@pytest.mark.parametrize(
    "text",
    [
        WITH_HEADER,
        WITH_HEADER.replace("\n", "\r\n"),
        "{\n1 1\n3.5 2\n11 21.25\n}",
        "1 1\n3.5 2\n\n11 21.25\n",
    ],
)
def test_the_same_landmarks_in_every_spelling(text: str, tmp_path: Path) -> None:
    file = tmp_path / "face.pts"
    file.write_bytes(text.encode())
    np.testing.assert_array_equal(read_pts(file), EXPECTED)
    np.testing.assert_array_equal(read_pts(file, origin=0), np.array(EXPECTED) + 1)


@pytest.mark.parametrize(
    ("text", "line", "message"),
    [
        ("version: 1\nn_points: 4\n{\n1 1\n2 2\n", 0, "has 2 landmarks, while n_points is 4"),
        ("version: 1\nn_points: 2\n{\n1 1\n2 b\n}\n", 5, "'2 b'"),
        ("1 1\n2 2 2\n", 2, "'2 2 2'"),
        ("1 1\n2 inf\n", 2, "beyond any image"),
        ("version: 1\nn_points: 0\n{\n}\n", 0, "no landmarks"),
    ],
)
def test_what_is_wrong_is_said_with_its_line(
    text: str, line: int, message: str, tmp_path: Path
) -> None:
    file = tmp_path / "face.pts"
    file.write_text(text)
    with pytest.raises(AnnotationFileError) as caught:
        read_pts(file)
    assert (caught.value.path, caught.value.line) == (file, line)
    assert message in caught.value.problem


def test_a_folder_of_pairs(tmp_path: Path) -> None:
    for place in ("one.png", "deeper/two.JPG"):
        picture(tmp_path / place, len(place))
    square = "11 11\n31 11\n31 41\n11 41\nnan nan\n"
    for place in ("one", "deeper/two", "alone"):
        (tmp_path / f"{place}.pts").write_text(square)
    dataset = read_pts_folder(tmp_path, margin=0.1)
    names = {image.path.relative_to(tmp_path).as_posix() for image in dataset.images}
    assert names == {"one.png", "deeper/two.JPG", "alone.jpg"}
    box = dataset.images[0].boxes[0]
    assert box.corners == (8, 7, 32, 43)
    assert list(box.parts) == ["00", "01", "02", "03"], "the one that is not marked is absent"
    assert box.parts["02"] == (30.0, 40.0)


def test_what_a_mac_leaves_in_folders_is_no_data(tmp_path: Path) -> None:
    picture(tmp_path / "one.png")
    (tmp_path / "one.pts").write_text("11 11\n31 31\n")
    for place in ("._one", "__MACOSX/one", "__MACOSX/._one", ".trash/one"):
        for suffix in ("png", "pts"):
            file = tmp_path / f"{place}.{suffix}"
            file.parent.mkdir(exist_ok=True)
            file.write_bytes(b"\0\5\x16\7\xff")
    assert [image.path for image in read_pts_folder(tmp_path).images] == [tmp_path / "one.png"]
    (tmp_path / "one.pts").unlink()
    assert list(find_pts(tmp_path)) == []


def test_folders_that_cannot_be_read(tmp_path: Path) -> None:
    with pytest.raises(AnnotationFileError, match=r"has no \.pts files"):
        read_pts_folder(tmp_path)
    picture(tmp_path / "face.png")
    picture(tmp_path / "face.jpg")
    (tmp_path / "face.pts").write_text("1 1\n9 9\n")
    with pytest.raises(AnnotationFileError, match="several images"):
        read_pts_folder(tmp_path)
    (tmp_path / "face.pts").write_text("nan nan\n")
    with pytest.raises(AnnotationFileError, match="no landmark that is marked"):
        read_pts_folder(tmp_path)


class TestImglab(AnnotationFormatLaws):
    format_name = "imglab"

    def write(self, dataset: FaceDataset, place: Path) -> Path:
        place.mkdir()
        write_imglab_xml(dataset, place / "faces.xml")
        return place / "faces.xml"


class TestCoco(AnnotationFormatLaws):
    format_name = "coco"

    def write(self, dataset: FaceDataset, place: Path) -> Path:
        write_coco_keypoints(dataset, place / "faces.json")
        return place / "faces.json"


class TestPts(AnnotationFormatLaws):
    format_name = "pts"
    holds_boxes = False

    def write(self, dataset: FaceDataset, place: Path) -> Path:
        write_pts_folder(dataset, place)
        return place


def test_every_format_is_looked_at() -> None:
    looked_at = {member.format_name for member in AnnotationFormatLaws.__subclasses__()}
    assert looked_at == set(ANNOTATION_FORMATS)
