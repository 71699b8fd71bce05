"""Landmarks in the wrong order are told from those of turned, real and drawn faces."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from site_agent.datasets import AnnotatedImage, FaceBox, FaceDataset, numbered_parts, part_names
from site_agent.datasets.landmark_schemes import IBUG_MIRROR, ibug_mean_face
from site_agent.datasets.part_order import misordered_faces
from tests.site_agent.datasets.drawn import face_box, face_points

BY_TEXT = sorted(range(68), key=str)
BY_TEXT_FROM_1 = [number - 1 for number in sorted(range(1, 69), key=str)]


def with_points(points: np.ndarray) -> FaceDataset:
    return FaceDataset(None, images=(AnnotatedImage(Path("a.png"), (face_box(points),)),))


def told(dataset: FaceDataset) -> list[tuple[str, bool]]:
    found = misordered_faces(dataset, part_names(dataset))
    return [(text, certain) for _, _, text, certain in found]


@pytest.mark.parametrize("degrees", [0, 90])
def test_faces_in_order_are_left_alone(degrees: float) -> None:
    for seed in range(5):
        assert told(with_points(face_points(seed, degrees=degrees))) == []


@pytest.mark.parametrize("degrees", [0, 90])
@pytest.mark.parametrize(
    ("order", "words"),
    [
        (list(IBUG_MIRROR), "left and right"),
        (BY_TEXT, "numbers as text"),
        (BY_TEXT_FROM_1, "numbers as text"),
        ([*range(1, 68), 0], "too early"),
        ([67, *range(67)], "too late"),
    ],
)
def test_each_wrong_order_is_named(order: list[int], words: str, degrees: float) -> None:
    [(text, certain)] = told(with_points(face_points(3, degrees=degrees)[order]))
    assert certain
    assert words in text


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
    found = list(misordered_faces(dataset, part_names(dataset)))
    assert [image.path.name for image, *_ in found] == ["6.png"]
    few = FaceDataset(None, images=tuple(images[5:8]))
    assert list(misordered_faces(few, part_names(few))) == []
