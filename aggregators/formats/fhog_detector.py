"""dlib's HOG-SVM object detector (`.svm`): ``object_detector<scan_fhog_pyramid>``.

====================  ===================================================================
item                  content
====================  ===================================================================
version               integer, 2
scanner version       integer, 1
feature images        two integers, 0 and 0: an empty array
cell size ...         integers: cell size, padding, window width and height, most pyramid
                      levels, least layer width and height
nuclear norm          double
dimensions            integer; 31 * cells of the padded window
overlap               doubles: intersection over union, covered fraction
detectors             integer D, then D columns of dimensions + 1 doubles: HOG weights
                      and the threshold
upsampling            only from Python's ``simple_object_detector.save``: integers 1 (a
                      version) and the number of times that an image is doubled first
====================  ===================================================================
"""

from collections.abc import Iterator

import numpy as np

from aggregators.errors import ConversionError
from aggregators.formats.contract import ModelFormat
from aggregators.formats.dlib_stream import Buffer, StreamReader, StreamWriter
from aggregators.models import FhogDetector

VERSION = 2
SCANNER_VERSION = 1
SIMPLE_VERSION = 1
PLANES = 31
"""HOG features a cell: 18 signed and 9 unsigned orientations, 4 energies."""

MOST_UPSAMPLING = 16
_MOST_PIXELS = 1_000_000
_MOST_LAYERS = 2**32 - 1

# Fields, their names in messages, and their limits, in the order of the file.
_INTEGERS = (
    ("cell_size_px", "cell size", 1, _MOST_PIXELS),
    ("padding_cells", "padding", 0, _MOST_PIXELS),
    ("window_width_px", "window width", 1, _MOST_PIXELS),
    ("window_height_px", "window height", 1, _MOST_PIXELS),
    ("max_pyramid_levels", "maximum pyramid levels", 0, _MOST_LAYERS),
    ("min_layer_width_px", "minimum layer width", 0, _MOST_LAYERS),
    ("min_layer_height_px", "minimum layer height", 0, _MOST_LAYERS),
)


class FhogDetectorFormat(ModelFormat[FhogDetector]):
    """The entry in `FORMATS`, for `.svm` files of either kind."""

    name = "dlib-fhog-detector"
    suffixes = (".svm",)
    summary = "HOG-SVM detector of dlib (object_detector)"
    model_types = (FhogDetector,)

    def recognises(self, head: bytes) -> bool:
        # Version 2, scanner version 1, no feature images: the same eight bytes in every such file.
        return head[:8] == b"\x01\x02\x01\x01\x01\x00\x01\x00"

    def decode(self, data: Buffer) -> FhogDetector:
        reader = StreamReader(data)
        reader.integer("version of the object detector", VERSION, VERSION)
        reader.integer("version of the scanner", SCANNER_VERSION, SCANNER_VERSION)
        reader.integer("number of feature images (capacity)", 0, 0)
        reader.integer("number of feature images", 0, 0)
        sizes = {field: reader.integer(name, least, most) for field, name, least, most in _INTEGERS}
        nuclear_norm_strength = reader.double("nuclear norm strength")
        rows, columns = filter_cells(
            sizes["window_width_px"],
            sizes["window_height_px"],
            sizes["cell_size_px"],
            sizes["padding_cells"],
        )
        dimensions = PLANES * rows * columns
        reader.integer(
            f"number of dimensions (for {columns} x {rows} cells of {PLANES} features)",
            dimensions,
            dimensions,
        )
        overlap_iou = reader.double("overlap, intersection over union")
        overlap_covered = reader.double("overlap, covered fraction")
        vectors = _read_vectors(reader, dimensions)
        upsampling = None
        # Python's simple_object_detector writes its upsampling after the C++ object; nothing else
        # tells the two kinds apart.
        if reader.remaining:
            reader.integer("version after the detectors", SIMPLE_VERSION, SIMPLE_VERSION)
            upsampling = reader.integer("upsampling", 0, MOST_UPSAMPLING)
        reader.finish("end of the object detector")
        return FhogDetector(
            **sizes,
            nuclear_norm_strength=nuclear_norm_strength,
            overlap_iou=overlap_iou,
            overlap_covered=overlap_covered,
            # dlib stores the threshold as the last number of the vector.
            weights=np.ascontiguousarray(vectors[:, :-1]),
            thresholds=np.ascontiguousarray(vectors[:, -1]),
            upsampling=upsampling,
        )

    def pieces(self, model: FhogDetector) -> Iterator[Buffer]:
        _check_fields(model)
        writer = StreamWriter()
        sizes = [getattr(model, field) for field, *_ in _INTEGERS]
        writer.integers(VERSION, SCANNER_VERSION, 0, 0, *sizes)
        writer.doubles("nuclear norm strength", [model.nuclear_norm_strength])
        writer.integers(model.dimensions)
        writer.doubles("overlap", [model.overlap_iou, model.overlap_covered])
        writer.integers(model.detector_count)
        for detector in range(model.detector_count):
            writer.integers(-model.dimensions - 1, -1)
            writer.doubles(f"weights of detector {detector}", model.weights[detector])
            writer.doubles(
                f"threshold of detector {detector}", model.thresholds[detector : detector + 1]
            )
        if model.upsampling is not None:
            writer.integers(SIMPLE_VERSION, model.upsampling)
        return iter([writer.take()])


def filter_cells(
    window_width_px: int, window_height_px: int, cell_size_px: int, padding_cells: int
) -> tuple[int, int]:
    """Return the (rows, columns) of cells of a detector's window, padding included."""
    columns = _cells(window_width_px, cell_size_px) + 2 * padding_cells
    rows = _cells(window_height_px, cell_size_px) + 2 * padding_cells
    return rows, columns


def _cells(length_px: int, cell_size_px: int) -> int:
    # dlib centres the window on the origin, removes a border of one pixel and divides both ends
    # by the cell size, rounding towards zero.
    first_px = -(length_px // 2) - 1
    last_px = first_px + length_px - 1
    last = abs(last_px) // cell_size_px * (1 if last_px >= 0 else -1)
    return last + -first_px // cell_size_px + 1


def _read_vectors(reader: StreamReader, dimensions: int) -> np.ndarray[tuple[int, int]]:
    length = dimensions + 1
    # The least bytes of a vector bound the count, so a crafted one cannot allocate gigabytes.
    count = reader.count("number of detectors", 4 + 4 * length, minimum=1)
    vectors = np.empty((count, length), dtype=np.float64)
    for detector in range(count):
        start = reader.offset
        rows = reader.column_rows(f"weights of detector {detector}", 4)
        if rows != length:
            reader.fail(
                f"weights of detector {detector}, rows",
                start,
                rows,
                f"{length} (the dimensions and the threshold)",
            )
        vectors[detector] = reader.float64_array(f"weights of detector {detector}", length)
    return vectors


def _check_fields(model: FhogDetector) -> None:
    limits = {field: (least, most) for field, _, least, most in _INTEGERS}
    if model.upsampling is not None:
        limits["upsampling"] = (0, MOST_UPSAMPLING)
    for name, (least, most) in limits.items():
        value = getattr(model, name)
        if not least <= value <= most:
            raise ConversionError(f"{name}: found {value}, expected {least} to {most}")
    rows, columns = filter_cells(
        model.window_width_px, model.window_height_px, model.cell_size_px, model.padding_cells
    )
    width = PLANES * rows * columns
    if model.weights.ndim != 2 or model.weights.shape[0] < 1 or model.weights.shape[1] != width:
        raise ConversionError(
            f"weights: found shape {model.weights.shape}, expected (detectors, {width}) for "
            f"{columns} x {rows} cells of {PLANES} features"
        )
    if model.thresholds.shape != (model.detector_count,):
        raise ConversionError(
            f"thresholds: found shape {model.thresholds.shape}, expected ({model.detector_count},)"
        )
