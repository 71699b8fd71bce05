"""Groups of landmarks, told by nothing but their mean shape."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from site_agent.datasets import (
    PART_GROUPS,
    find_model_parts,
    group_of_shape,
    part_names,
    parts_array,
    read_imglab_xml,
)
from site_agent.datasets.landmark_schemes import ibug_mean_face

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
        found, unknown = find_model_parts(names, mean[list(numbers)])
        assert (found, unknown) == (tuple(names[number] for number in numbers), []), group


def test_names_without_leading_zeros_have_another_order() -> None:
    names = tuple(sorted(str(number) for number in range(68)))
    jaw = [name for name in names if int(name) < 17]
    shape = ibug_mean_face()[[int(name) for name in jaw]] / 300 + 0.5
    assert find_model_parts(names, shape) == (tuple(jaw), [])
    assert find_model_parts(NAMES, shape) == ((), []), "that order is no jaw's"


@pytest.mark.parametrize("change", ["mirrored", "upside down", "shuffled", "a point", "other"])
def test_other_shapes_are_no_eyes(change: str) -> None:
    shape = ibug_mean_face()[36:48] / 300 + 0.5
    assert group_of_shape(shape) == "eyes"
    shape = {
        "mirrored": shape * [-1, 1] + [1, 0],
        "upside down": 1 - shape,
        "shuffled": np.random.default_rng(1).permutation(shape),
        "a point": np.full((12, 2), 0.5),
        "other": np.random.default_rng(2).random((12, 2)),
    }[change]
    assert group_of_shape(shape) is None
    assert find_model_parts(NAMES, shape) == ((), [])
    assert find_model_parts(NAMES, shape, ["eyes"]) == (NAMES[36:48], []), "words count more"


def test_all_landmarks_are_taken_where_their_numbers_are_equal() -> None:
    names = ("nose", "left", "right")
    assert find_model_parts(names, np.zeros((3, 2))) == (names, [])
    assert find_model_parts(names, np.zeros((2, 2)), ["left", "chin"]) == (("left",), ["chin"])
