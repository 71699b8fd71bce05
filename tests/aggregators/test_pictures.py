"""Pictures of weights and shapes: where the ink is."""

import io
from dataclasses import replace

import numpy as np
import pytest
from PIL import Image

from aggregators.formats.fhog_detector import PLANES, filter_cells
from aggregators.models import FhogDetector
from aggregators.pictures import MOST_PX, draw_model, hog_picture, png_bytes
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


@pytest.mark.parametrize(("size", "most_px"), MOST_PX.items())
def test_pictures_of_huge_filters_are_small(size: str, most_px: int) -> None:
    rows, columns = filter_cells(1000, 1000, 1, 0)
    weights = np.zeros((5, PLANES, rows, columns))
    weights[:, 0] = 1.0
    huge = replace(
        make_detector(),
        window_width_px=1000,
        window_height_px=1000,
        cell_size_px=1,
        padding_cells=0,
        weights=weights.reshape(5, -1),
        thresholds=np.zeros(5),
    )
    kind, content = draw_model(huge, size)
    assert kind == "image/png"
    with Image.open(io.BytesIO(content)) as image:
        assert image.height <= most_px
        assert image.width <= 5 * most_px
