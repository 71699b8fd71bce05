"""What drawings of models show: HOG weights, and how far trees move landmarks."""

import io
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from aggregators.formats.fhog_detector import PLANES, filter_cells
from aggregators.models import FhogDetector, Float32, Float64, ShapePredictor

UInt8Image = NDArray[np.uint8]

ORIENTATIONS = 9
"""Unsigned orientations, 20 degrees apart, of Felzenszwalb's HOG features."""

# iBUG's 68 landmarks: jaw, brows, nose bridge, nose, eyes, lips; True where the line closes.
FACE_LINES: tuple[tuple[range, bool], ...] = (
    (range(17), False),
    (range(17, 22), False),
    (range(22, 27), False),
    (range(27, 31), False),
    (range(31, 36), False),
    (range(36, 42), True),
    (range(42, 48), True),
    (range(48, 60), True),
    (range(60, 68), True),
)

_MOST_PICTURE_PX = 4000


def hog_picture(detector: FhogDetector, index: int = 0, *, cell_px: int = 20) -> UInt8Image:
    """Draw the positive weights of one HOG filter as strokes along the edges it detects.

    Each cell has a stroke for each orientation, as bright as the sum of its weights (both signed
    directions and the unsigned one). White is four standard deviations above the mean, as in
    dlib's own drawing.

    Parameters
    ----------
    detector : FhogDetector
    index : int
        Index of the filter.
    cell_px : int
        Side of a cell; smaller if the picture would exceed 4000 pixels.

    Returns
    -------
    uint8, shape (rows * cell_px, columns * cell_px)
    """
    if not 0 <= index < detector.detector_count:
        raise IndexError(f"filter {index} of a detector with {detector.detector_count}")
    rows, columns = filter_cells(
        detector.window_width_px,
        detector.window_height_px,
        detector.cell_size_px,
        detector.padding_cells,
    )
    cell_px = max(1, min(cell_px, _MOST_PICTURE_PX // max(rows, columns)))
    planes = detector.weights[index].reshape(PLANES, rows, columns)
    unsigned = planes[: 3 * ORIENTATIONS].reshape(3, ORIENTATIONS, rows, columns).sum(axis=0)
    strokes = _strokes(cell_px)
    picture = np.einsum("orc,oyx->rycx", np.maximum(unsigned, 0), strokes)
    flat = picture.reshape(rows * cell_px, columns * cell_px)
    white = float(flat.mean() + 4 * flat.std())
    if white <= 0:
        return np.zeros(flat.shape, dtype=np.uint8)
    shades: UInt8Image = np.minimum(np.round(flat * (255 / white)), 255).astype(np.uint8)
    return shades


@lru_cache(maxsize=4)
def _strokes(cell_px: int) -> Float64:
    """Return one smooth stroke for each orientation, along the edge (across the gradient)."""
    middle = (cell_px - 1) / 2
    y, x = np.mgrid[:cell_px, :cell_px] - middle
    angles = np.arange(ORIENTATIONS) * np.pi / ORIENTATIONS
    # The gradient has the angle's direction; the edge is perpendicular to it.
    cosines, sines = np.cos(angles)[:, None, None], np.sin(angles)[:, None, None]
    across = np.abs(x * cosines + y * sines)
    along = np.abs(y * cosines - x * sines)
    half_width, half_length = max(cell_px / 20, 0.5), 0.46 * cell_px
    strokes: Float64 = np.clip(half_width + 0.5 - across, 0, 1)
    strokes *= np.clip(half_length + 0.5 - along, 0, 1)
    return strokes


def movement_spread(model: ShapePredictor) -> Float64:
    """Return the standard deviation, shape (parts, 2), of the sum of all trees' leaves."""
    counts = np.left_shift(np.int64(1), model.tree_depths.astype(np.int64))
    starts = np.concatenate([[0], np.cumsum(counts)[:-1]])
    variance = np.zeros((model.part_count, 2))
    # Blocks of trees, as the squares of all leaves would be as large as the model.
    for begin in range(0, len(counts), 256):
        block = slice(begin, begin + 256)
        first = int(starts[begin])
        last = int(starts[block][-1] + counts[block][-1])
        leaves: Float32 = model.leaves[first:last]
        offsets = starts[block] - first
        share = counts[block][:, None, None].astype(np.float64)
        mean = np.add.reduceat(leaves, offsets, axis=0, dtype=np.float64) / share
        squares = np.add.reduceat(np.square(leaves, dtype=np.float64), offsets, axis=0) / share
        variance += np.maximum(squares - mean**2, 0).sum(axis=0)
    return np.sqrt(variance)


def png_bytes(image: UInt8Image) -> bytes:
    """Return a picture, shape (H, W) or (H, W, 3), as the bytes of a PNG file."""
    buffer = io.BytesIO()
    Image.fromarray(image).save(buffer, format="PNG", optimize=True)
    return buffer.getvalue()
