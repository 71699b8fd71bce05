"""dlib's detector files, real and invalid, and pictures of their weights."""

import io
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image

from aggregators.errors import ConversionError, FormatError
from aggregators.formats import decode_model, encode_model, read_model, write_model
from aggregators.formats.fhog_detector import PLANES, FhogDetectorFormat, filter_cells
from aggregators.models import FhogDetector
from aggregators.pictures import MOST_PX, draw_model, hog_picture, png_bytes
from tests.aggregators.formats.examples import make_detector, split_integers, write_integer

dlib = pytest.importorskip("dlib")


@pytest.mark.parametrize("name", ["detector.svm", "predictor.svm"])
def test_detectors_of_others_come_back_byte_for_byte(shared_data: Path, name: str) -> None:
    path = shared_data / "dlib_models" / "rodrigocam_pupil" / name
    model = read_model(path)
    assert isinstance(model, FhogDetector)
    assert model.upsampling == 0
    assert encode_model(model) == path.read_bytes()


def test_the_frontal_detector_comes_back_byte_for_byte(tmp_path: Path) -> None:
    # Its pickled state is the serialised detector itself, without a wrapping.
    (state,) = dlib.get_frontal_face_detector().__getstate__()
    model = decode_model(state)
    assert isinstance(model, FhogDetector)
    assert (model.detector_count, model.window_width_px, model.dimensions) == (5, 80, 3100)
    assert model.upsampling is None
    assert encode_model(model) == state
    write_model(model, tmp_path / "frontal.svm")
    loaded = dlib.fhog_object_detector(str(tmp_path / "frontal.svm"))
    assert loaded.num_detectors == 5


def test_either_kind_can_be_made_from_the_other(detector_files: list[Path], tmp_path: Path) -> None:
    simple, plain = detector_files[0], tmp_path / "plain.svm"
    dlib.fhog_object_detector(str(simple)).save(str(plain))
    for path, upsampling in ((simple, 0), (plain, None)):
        model = read_model(path)
        assert isinstance(model, FhogDetector)
        assert model.upsampling == upsampling
        assert encode_model(model) == path.read_bytes()
    model = read_model(plain)
    assert isinstance(model, FhogDetector)
    assert encode_model(replace(model, upsampling=0)) == simple.read_bytes()


@settings(max_examples=60, deadline=None)
@given(st.integers(8, 130), st.integers(8, 130), st.integers(1, 15), st.integers(0, 3))
def test_dlib_expects_the_same_number_of_cells(
    width: int, height: int, cell_size: int, padding: int
) -> None:
    import tempfile

    rows, columns = filter_cells(width, height, cell_size, padding)
    model = replace(
        make_detector(),
        window_width_px=width,
        window_height_px=height,
        cell_size_px=cell_size,
        padding_cells=padding,
        weights=np.zeros((1, PLANES * rows * columns)),
    )
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "detector.svm")
        write_model(model, path)
        # dlib refuses a file whose number of dimensions is not what it computes itself.
        dlib.fhog_object_detector(str(path)).save(str(path) + "2")
        assert Path(str(path) + "2").read_bytes() == path.read_bytes()


@pytest.mark.parametrize(
    ("index", "value", "message"),
    [
        (0, 1, "version of the object detector: found 1 at byte 0, expected 2"),
        (3, 1, "number of feature images: found 1"),
        (13, 185, r"number of dimensions \(for 3 x 2 cells of 31 features\): found 185"),
        (12, 32000, "nuclear norm strength: found an infinite"),
        (18, 2**40, r"number of detectors: found 1099511627776 .*all that \d+ more bytes can hold"),
        (19, -186, "weights of detector 0, rows: found 186 .*, expected 187"),
        (22, 32002, "weights of detector 0: found an infinite"),
        (-1, 99, "upsampling: found 99"),
    ],
)
def test_malformed_numbers_are_named(index: int, value: int, message: str) -> None:
    numbers = split_integers(encode_model(make_detector(upsampling=0)))
    changed = [write_integer(v) for _, v in numbers]
    changed[index] = write_integer(value)
    with pytest.raises(FormatError, match=message):
        FhogDetectorFormat().decode(b"".join(changed))


def test_undefined_weights_are_not_written() -> None:
    model = make_detector()
    weights = model.weights.copy()
    weights[0, 7] = np.nan
    with pytest.raises(ConversionError, match="weights of detector 0"):
        encode_model(replace(model, weights=weights))
    with pytest.raises(ConversionError, match="found shape"):
        encode_model(replace(model, weights=weights[:, 1:]))
    with pytest.raises(ConversionError, match="cell_size_px: found 0"):
        encode_model(replace(model, cell_size_px=0))


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
