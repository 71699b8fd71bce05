"""Groups of landmarks, told by nothing but their mean shape."""

from pathlib import Path

import numpy as np
import pytest

from site_agent.datasets.imglab_xml import read_imglab_xml
from site_agent.datasets.landmark_schemes import PART_GROUPS, ibug_mean_face
from site_agent.datasets.part_order import find_model_parts, group_of_shape, order_problem
from site_agent.datasets.records import part_names, parts_array

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
