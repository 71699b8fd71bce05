"""Faces that cannot be refined on are refused with the reason."""

from typing import Any

import numpy as np
import pytest

from aggregators.errors import FaceBoxError, ImageArrayError
from aggregators.methods.refitting import SiteFaces

IMAGES = [np.zeros((20, 30), dtype=np.uint8), np.ones((10, 12), dtype=np.uint8)]
BOXES = [[0, 0, 9, 9], [1.0, 2.0, 8.0, 7.0]]
POINTS = np.full((2, 3, 2), 4.0)


def test_faces_are_packed() -> None:
    faces = SiteFaces.from_arrays(IMAGES, BOXES, POINTS)
    assert faces.face_count == 2
    assert faces.part_count == 3
    assert faces.image_starts.tolist() == [0, 600]
    np.testing.assert_allclose(faces.shapes[1, 0], [3 / 7, 2 / 5])


@pytest.mark.parametrize(
    ("change", "error", "message"),
    [
        ({"images": [IMAGES[0], IMAGES[1].astype(float)]}, ImageArrayError, "image 1 must be"),
        ({"boxes": [[0, 0, 9, 9]]}, FaceBoxError, "1 boxes for the landmarks of 2"),
        ({"boxes": [[0, 0, 9, 9], [5, 5, 5, 9]]}, FaceBoxError, "box 1 "),
        ({"points": np.full((2, 3, 2), np.nan)}, FaceBoxError, "face 0 has landmarks"),
        ({"images": IMAGES[:1], "boxes": BOXES[:1], "points": POINTS[:1]}, FaceBoxError, "1 faces"),
    ],
)
def test_bad_faces_are_refused(
    change: dict[str, Any], error: type[Exception], message: str
) -> None:
    arguments: dict[str, Any] = {"images": IMAGES, "boxes": BOXES, "points": POINTS} | change
    with pytest.raises(error, match=message):
        SiteFaces.from_arrays(**arguments)
