"""dlib's files of detectors and predictors, real, crafted and invalid, and pictures of weights."""

import io
import subprocess
import sys
import textwrap
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
from aggregators.formats.shape_predictor import ShapePredictorFormat
from aggregators.models import FhogDetector, ShapePredictor
from aggregators.pictures import MOST_PX, draw_model, hog_picture, png_bytes
from tests.aggregators.formats.examples import (
    assert_equal_models,
    make_detector,
    make_predictor,
    split_integers,
    write_integer,
)

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
def test_malformed_numbers_of_detectors_are_named(index: int, value: int, message: str) -> None:
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


def test_files_of_dlib_come_back_byte_for_byte(landmark_files: list[Path]) -> None:
    for path, depth in ((landmark_files[0], 3), (landmark_files[3], 2)):
        model = read_model(path)
        assert isinstance(model, ShapePredictor)
        assert model.trees_per_level.tolist() == [40] * 5
        assert set(model.tree_depths.tolist()) == {depth}
        assert encode_model(model) == path.read_bytes()


@settings(max_examples=25, deadline=None)
@given(
    st.integers(0, 10_000),
    st.lists(st.lists(st.integers(0, 6), min_size=1, max_size=4), min_size=1, max_size=4),
    st.sampled_from([1, 2, 5, 9, 68, 300]),
)
def test_dlib_writes_the_same_bytes(seed: int, depths: list[list[int]], parts: int) -> None:
    import tempfile

    model = make_predictor(seed, tuple(tuple(level) for level in depths), parts)
    data = encode_model(model)
    assert_equal_models(model, decode_model(data))
    with tempfile.TemporaryDirectory() as folder:
        ours, theirs = Path(folder, "ours.dat"), Path(folder, "theirs.dat")
        ours.write_bytes(data)
        dlib.shape_predictor(str(ours)).save(str(theirs))
        assert theirs.read_bytes() == data


@settings(max_examples=200, deadline=None)
@given(st.lists(st.integers(0, 2**32 - 1), min_size=6, max_size=6))
def test_all_finite_floats_come_back(bits: list[int]) -> None:
    values = np.array(bits, dtype=np.uint32).view(np.float32)
    values = np.where(np.isfinite(values), values, np.float32(1)).reshape(1, 3, 2)
    model = make_predictor(0, ((0,),))
    model = ShapePredictor(**{**vars(model), "leaves": values})
    decoded = ShapePredictorFormat().decode(encode_model(model))
    np.testing.assert_array_equal(decoded.leaves, values)


def test_no_integer_can_be_grown() -> None:
    """Every number of the file in turn, made huge, is refused or leaves a model that is sound."""
    data = encode_model(make_predictor(0, ((1, 0), (2,)), parts=1))
    numbers = split_integers(data)
    refused = 0
    for index, (_, old) in enumerate(numbers):
        for value in (2**62, -(2**62), 2**40, 2**31, 70_000, old + 1, -old - 1, 0):
            changed = [write_integer(v) for _, v in numbers]
            changed[index] = write_integer(value)
            try:
                model = ShapePredictorFormat().decode(b"".join(changed))
            except FormatError:
                refused += 1
            else:
                encode_model(model)
    assert refused > 4 * len(numbers)


@pytest.mark.parametrize(
    ("index", "value", "message"),
    [
        (0, 2, "version of the shape predictor: found 2 at byte 0, expected 1"),
        (1, -5, "initial shape, rows: found 5 at byte 2, expected an even number"),
        (1, -(2**40), r"found 1099511627776 at byte 2, expected 0 to \d+ \(all that"),
        (4, 32002, "NaN"),
        (15, 2**62, "number of levels of forests: found 4611686018427387904"),
        (17, 2, "number of splits of tree 0 of level 0: found 2 at byte .*, expected one less"),
        (18, 4, "pixel index of a split of level 0: found 4 at byte .*, expected below 4"),
        (22, 1, "number of leaves of tree 0 of level 0: found 1 at byte .*, expected 2"),
        (23, -4, "rows of a leaf of tree 0 of level 0: found -4 at byte .*, expected -6"),
    ],
)
def test_malformed_numbers_of_predictors_are_named(index: int, value: int, message: str) -> None:
    numbers = split_integers(encode_model(make_predictor(0, ((1,),))))
    changed = [write_integer(v) for _, v in numbers]
    changed[index] = write_integer(value)
    with pytest.raises(FormatError, match=message) as caught:
        ShapePredictorFormat().decode(b"".join(changed))
    assert caught.value.offset == numbers[index][0] or index == 4


@pytest.mark.parametrize("name", ["initial_shape", "split_thresholds", "leaves", "deltas"])
def test_numbers_that_are_not_finite_are_not_written(name: str) -> None:
    model = make_predictor()
    for value in (np.nan, np.inf, -np.inf):
        array = getattr(model, name).copy()
        array.reshape(-1)[-1] = value
        with pytest.raises(ConversionError, match="infinite number or NaN"):
            encode_model(ShapePredictor(**{**vars(model), name: array}))


_LIMITED = """
    import resource, sys
    from pathlib import Path
    from aggregators.errors import FormatError
    from aggregators.formats import decode_model, encode_model
    from aggregators.formats.shape_predictor import ShapePredictorFormat
    from tests.aggregators.formats.examples import make_predictor
    from tests.aggregators.formats.examples import write_integer

    decode_model(encode_model(make_predictor()))  # numba and its code are in memory from here on
    size = 4_000_000
    n = write_integer
    zero = n(0) + n(40)
    stump = n(0) + n(1) + n(-2) + n(-1) + 2 * zero
    one = n(1) + n(-2) + n(-1) + 2 * zero
    heads = {
        "levels": one + n(10_000),
        "trees": one + n(1) + n(size // 20),
        "splits": one + n(1) + n(1) + n(2**17 - 1),
        "parts": n(1) + n(-size // 4) + n(-1),
        "trees without splits": one + n(1) + n(size // 18) + stump * 200_000,
        "leaves": one + n(1) + n(1) + n(0) + n(size // 12),
    }
    files = {name: head + n(0) * ((size - len(head)) // 2) for name, head in heads.items()}
    status = Path("/proc/self/status").read_text()
    mapped = next(int(l.split()[1]) for l in status.splitlines() if l.startswith("VmSize")) * 1024
    limit = mapped + 2 * size
    resource.setrlimit(resource.RLIMIT_AS, (limit, limit))
    for name, data in files.items():
        try:
            ShapePredictorFormat().decode(data)
        except FormatError as error:
            print(name, error)
        else:
            sys.exit(f"{name} was accepted")
"""


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="limits memory through Linux")
def test_crafted_counts_take_no_memory() -> None:
    run = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(_LIMITED)],
        capture_output=True,
        text=True,
        timeout=540,
        cwd=Path(__file__).parents[3],
        env={"PATH": "", "OPENBLAS_NUM_THREADS": "1", "NUMBA_NUM_THREADS": "1"},
        check=False,
    )
    assert run.returncode == 0, run.stderr[-2000:]
    assert len(run.stdout.splitlines()) == 6
