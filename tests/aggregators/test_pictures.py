"""Pictures of weights and shapes: where the ink is."""

from __future__ import annotations

import io
from dataclasses import replace

import numpy as np
import pytest
from PIL import Image

from aggregators.formats.fhog_detector import PLANES, filter_cells
from aggregators.models import FhogDetector
from aggregators.pictures import hog_picture, png_bytes
from tests.aggregators.formats.examples import make_detector


def light_one_weight(plane: int, row: int, column: int, value: float = 1.0) -> FhogDetector:
    """Make a detector with a single weight."""
    rows, columns = filter_cells(24, 16, 8, 0)
    weights = np.zeros((1, PLANES, rows, columns))
    weights[0, plane, row, column] = value
    return replace(make_detector(), weights=weights.reshape(1, -1))


@pytest.mark.parametrize("plane", [0, 9, 18])
def test_a_horizontal_gradient_is_an_upright_stroke_in_its_cell(plane: int) -> None:
    picture = hog_picture(light_one_weight(plane, 1, 2), cell_px=21)
    assert picture.shape == (2 * 21, 3 * 21)
    ys, xs = np.nonzero(picture > 100)
    assert ys.min() > 20
    assert xs.min() > 41
    assert np.ptp(ys) > 4 * np.ptp(xs)


def test_png_bytes_hold_the_picture() -> None:
    picture = hog_picture(make_detector())
    with Image.open(io.BytesIO(png_bytes(picture))) as image:
        assert image.format == "PNG"
        np.testing.assert_array_equal(np.asarray(image), picture)
