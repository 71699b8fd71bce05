"""Landmarks: their order, their groups, and terms for them."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from site_agent.datasets.check import check_datasets
from site_agent.datasets.conversion import renumber_parts
from site_agent.datasets.imglab_xml import read_imglab_xml
from site_agent.datasets.landmark_schemes import (
    IBUG_MIRROR,
    PART_GROUPS,
    expand_parts,
    ibug_mean_face,
)
from site_agent.datasets.part_order import (
    find_model_parts,
    group_of_shape,
    misordered_faces,
    order_problem,
    unsorted_names,
)
from site_agent.datasets.records import (
    AnnotatedImage,
    FaceBox,
    FaceDataset,
    numbered_parts,
    part_names,
    parts_array,
)
from tests.site_agent.datasets.drawn import face_box, face_points, faces_in

BY_TEXT = sorted(range(68), key=str)

BY_TEXT_FROM_1 = [number - 1 for number in sorted(range(1, 69), key=str)]


def with_points(points: np.ndarray) -> FaceDataset:
    return FaceDataset(None, images=(AnnotatedImage(Path("a.png"), (face_box(points),)),))


def told(dataset: FaceDataset) -> list[tuple[str, bool]]:
    faces = misordered_faces(dataset, part_names(dataset))
    return [(text, certain) for _, _, text, certain in faces]


@pytest.mark.parametrize("degrees", [0, 90])
def test_faces_in_order_are_left_alone(degrees: float) -> None:
    for seed in range(5):
        assert told(with_points(face_points(seed, degrees=degrees))) == []


@pytest.mark.parametrize("degrees", [0, 90])
@pytest.mark.parametrize(
    ("order", "message"),
    [
        (list(IBUG_MIRROR), "left and right"),
        ([*range(36), *range(42, 48), *range(36, 42), *range(48, 68)], "right eye exchanged"),
        (BY_TEXT, "numbers as text"),
        (BY_TEXT_FROM_1, "numbers as text"),
        ([*range(1, 68), 0], "too early"),
        ([67, *range(67)], "too late"),
    ],
)
def test_each_wrong_order_is_named(order: list[int], message: str, degrees: float) -> None:
    [(text, certain)] = told(with_points(face_points(3, degrees=degrees)[order]))
    assert certain
    assert message in text


def test_an_excerpt_and_missing_landmarks() -> None:
    points = face_points(2)
    eyes = {f"{i}": tuple(points[i]) for i in range(36, 68)}
    swapped = {f"{i}": tuple(points[IBUG_MIRROR[i]]) for i in range(36, 68)}
    for parts, count in ((eyes, 0), (swapped, 1)):
        image = AnnotatedImage(Path("a.png"), (FaceBox(0, 0, 50, 50, parts),))
        assert len(told(FaceDataset(None, images=(image,)))) == count
    holes = points.copy()
    holes[5:20] = np.nan
    box = face_box(holes)
    box = replace(box, parts={k: at for k, at in box.parts.items() if np.isfinite(at).all()})
    whole = AnnotatedImage(Path("b.png"), (face_box(points),))
    assert told(FaceDataset(None, images=(AnnotatedImage(Path("a.png"), (box,)), whole))) == []


def test_other_schemes_are_held_against_each_other() -> None:
    shape = ibug_mean_face()[[0, 8, 16, 30, 36, 39, 42, 45, 48, 54]]
    images = []
    rng = np.random.default_rng(5)
    for i in range(8):
        points = shape + rng.normal(0, 3, shape.shape)
        if i == 6:
            points = points * (-1, 1)
        images.append(
            AnnotatedImage(Path(f"{i}.png"), (FaceBox(0, 0, 50, 50, numbered_parts(points)),))
        )
    dataset = FaceDataset(None, images=tuple(images))
    faces = list(misordered_faces(dataset, part_names(dataset)))
    assert [image.path.name for image, *_ in faces] == ["6.png"]
    few = FaceDataset(None, images=tuple(images[5:8]))
    assert list(misordered_faces(few, part_names(few))) == []


def test_names_without_leading_zeros(tmp_path: Path) -> None:
    assert unsorted_names(["1", "2", "10"]) == "'10' comes before '2'"
    assert unsorted_names(["01", "02", "10"]) == ""
    assert unsorted_names(["nose", "1"]) == ""
    assert unsorted_names(["p1", "p2", "p10"]) == "'p10' comes before 'p2'"
    dataset = faces_in(tmp_path, 2)

    def renamed(box: FaceBox) -> FaceBox:
        return replace(box, parts={str(int(name)): at for name, at in box.parts.items()})

    images = [
        replace(image, boxes=tuple(renamed(box) for box in image.boxes)) for image in dataset.images
    ]
    bad = replace(dataset, images=tuple(images))
    [finding] = check_datasets([bad])
    assert (finding.code, finding.severity) == ("names-unsorted", "error")
    mended = renumber_parts(bad)
    assert mended == dataset
    assert check_datasets([mended]) == []


def test_words_for_landmarks() -> None:
    names = [f"{i:02d}" for i in range(68)]
    assert expand_parts(["eyes"], names) == (tuple(names[36:48]), [])
    assert expand_parts(["right_eye", "36-38", "00"], names) == (("00", *names[36:42]), [])
    assert expand_parts(["Mouth"], [f"{i}" for i in range(1, 69)])[0][0] == "49"
    assert expand_parts(["eyes", "a"], ["a", "b"]) == (("a",), ["eyes"])
    assert expand_parts(["mouth", "70-80"], names[36:48]) == ((), ["mouth", "70-80"])


NAMES = tuple(f"{number:02}" for number in range(68))


def test_every_group_is_known_by_its_mean_on_photographs(shared_data: Path) -> None:
    faces = read_imglab_xml(shared_data / "dlib_faces" / "training_with_face_landmarks.xml")
    names = part_names(faces)
    shapes = []
    for _, box in faces.boxes():
        left, top, right, bottom = box.corners
        shapes.append((parts_array(box, names) - [left, top]) / [right - left, bottom - top])
    mean = np.mean(shapes, axis=0)
    for group, numbers in PART_GROUPS.items():
        parts, unknown = find_model_parts(names, mean[list(numbers)])
        assert (parts, unknown) == (tuple(names[number] for number in numbers), []), group


@pytest.mark.parametrize("change", ["mirrored", "shuffled", "a point"])
def test_other_shapes_are_no_eyes(change: str) -> None:
    shape = ibug_mean_face()[36:48] / 300 + 0.5
    assert group_of_shape(shape) == "eyes"
    shape = {
        "mirrored": shape * [-1, 1] + [1, 0],
        "shuffled": np.random.default_rng(1).permutation(shape),
        "a point": np.full((12, 2), 0.5),
    }[change]
    assert group_of_shape(shape) is None
    assert find_model_parts(NAMES, shape) == ((), [])
    assert find_model_parts(NAMES, shape, ["eyes"]) == (NAMES[36:48], []), "words count more"


AS_TEXT = sorted(range(68), key=lambda number: str(number + 1))


@pytest.mark.parametrize("yaw_deg", [-60, 0, 75])
@pytest.mark.parametrize("turn_deg", [0, 90])
def test_faces_turned_away_or_lying_are_in_order(yaw_deg: float, turn_deg: float) -> None:
    face, yaw, turn = ibug_mean_face(), np.radians(yaw_deg), np.radians(turn_deg)
    depth = -90 * (np.abs(face[:, 0]) / 107) ** 1.7
    depth[27:36] = (5, 15, 28, 40, 10, 16, 20, 16, 10)
    seen = np.stack([np.cos(yaw) * face[:, 0] + np.sin(yaw) * depth, face[:, 1]], axis=1)
    seen = seen @ [[np.cos(turn), np.sin(turn)], [-np.sin(turn), np.cos(turn)]]
    assert order_problem(seen) == ""
    assert order_problem(seen[AS_TEXT]) != ""
    assert order_problem(seen[:67]) == "", "another scheme"


def test_all_landmarks_are_taken_where_their_numbers_are_equal() -> None:
    names = ("nose", "left", "right")
    assert find_model_parts(names, np.zeros((3, 2))) == (names, [])
    assert find_model_parts(names, np.zeros((2, 2)), ["left", "chin"]) == (("left",), ["chin"])
