"""Drawings of models for pages: HOG weights, and how far trees move landmarks.

They are small, for light and dark grounds: landmarks and networks are SVG in middle tones;
detectors are PNG in 16 greys on black.
"""

import io
from collections.abc import Iterator, Mapping, Sequence
from functools import lru_cache
from math import log2, prod
from typing import Any

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from aggregators.formats.fhog_detector import PLANES, filter_cells
from aggregators.models import FhogDetector, Float32, Float64, ForestEnsemble, Model, ShapePredictor

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


def hog_picture(
    detector: FhogDetector, index: int = 0, *, cell_px: int = 20, most_px: int = _MOST_PICTURE_PX
) -> UInt8Image:
    """Draw the positive weights of one HOG filter as strokes along the edges it detects.

    Each cell has a stroke for each orientation, as bright as the sum of its weights (both signed
    directions and the unsigned one). White is four standard deviations above the mean, as in
    dlib's own drawing.

    `index`: Index of the filter. `cell_px`: Side of a cell; smaller if the picture would exceed
    `most_px` pixels. If there are more cells than pixels, neighbouring cells are averaged.

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
    planes = detector.weights[index].reshape(PLANES, rows, columns)
    unsigned = planes[: 3 * ORIENTATIONS].reshape(3, ORIENTATIONS, rows, columns).sum(axis=0)
    merged = -(-max(rows, columns) // most_px)
    if merged > 1:
        for axis, count in ((1, rows), (2, columns)):
            unsigned = np.add.reduceat(unsigned, np.arange(0, count, merged), axis=axis) / merged
        rows, columns = unsigned.shape[1:]
    cell_px = max(1, min(cell_px, most_px // max(rows, columns)))
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


SIDE = 100
"""Side of a drawing in its own units; the page chooses the pixels."""
CELL_PX = {"thumb": 12, "large": 24}
MOST_PX = {"thumb": 200, "large": 800}
"""Longest side of one filter's picture: files from others say how many cells there are."""
MOST_FILTERS = 5
GREYS = 16
MOST_NUMBERED = 20
MOST_LAYERS = 12
MOST_PLANES = 5
_FACE_PARTS = 68
_LINE, _DOT, _GREY = "#5f87b8", "#d0453f", "#808080"


def draw_model(model: Model, size: str) -> tuple[str, bytes]:
    """Return the media type and the bytes of a drawing.

    `size`: ``thumb``, or ``large``: with numbers at up to 20 landmarks.
    """
    if isinstance(model, FhogDetector):
        return "image/png", draw_detector(model, size)
    if isinstance(model, ShapePredictor | ForestEnsemble):
        return "image/svg+xml", draw_landmarks(model, with_numbers=size == "large").encode()
    tensors = {name: (info.dtype, info.shape) for name, info in model.infos.items()}
    return "image/svg+xml", draw_network(tensors).encode()


def draw_detector(detector: FhogDetector, size: str) -> bytes:
    """Draw the filters side by side, as strokes along the edges that they detect."""
    shown = range(min(detector.detector_count, MOST_FILTERS))
    sides = {"cell_px": CELL_PX[size], "most_px": MOST_PX[size]}
    filters = [hog_picture(detector, index, **sides) for index in shown]
    greys = Image.fromarray(np.concatenate(filters, axis=1), "L").quantize(GREYS)
    content = io.BytesIO()
    greys.save(content, "PNG", optimize=True)
    return content.getvalue()


def draw_landmarks(model: ShapePredictor | ForestEnsemble, *, with_numbers: bool) -> str:
    """Draw the mean shape in its face box; a halo is how far the trees move a landmark."""
    members = model.members if isinstance(model, ForestEnsemble) else (model,)
    shape = members[0].initial_shape.astype(np.float64)
    spread = np.mean([movement_spread(member) for member in members], axis=0)
    # Landmarks of a damaged model can be far outside the box.
    shape, spread = np.clip(shape, -2.0, 3.0), np.minimum(spread, 0.25)
    low = np.minimum((shape - spread).min(axis=0), 0.0) - 0.06
    high = np.maximum((shape + spread).max(axis=0), 1.0) + 0.06
    scale = SIDE / float((high - low).max())
    offset = (SIDE - scale * (high - low)) / 2 - scale * low
    points, radii = shape * scale + offset, np.maximum(spread * scale, 1.2)
    left, top = offset
    frame = f'fill="none" stroke="{_GREY}" stroke-opacity=".45" stroke-width=".6"/>'
    parts = [_box(left, top, scale, scale) + frame]
    if len(points) != _FACE_PARTS:
        x, y = offset + scale / 2
        parts.append(
            f'<ellipse cx="{x:.1f}" cy="{y:.1f}" rx="{0.37 * scale:.1f}" ry="{0.47 * scale:.1f}" '
            f'fill="{_GREY}" fill-opacity=".1" stroke="{_GREY}" stroke-opacity=".35"/>'
        )
    parts += [
        f'<ellipse cx="{x:.1f}" cy="{y:.1f}" rx="{rx:.1f}" ry="{ry:.1f}" fill="{_DOT}" '
        'fill-opacity=".15"/>'
        for (x, y), (rx, ry) in zip(points, radii, strict=True)
    ]
    parts += _face_lines(points)
    parts += [f'<circle cx="{x:.1f}" cy="{y:.1f}" r="1.1" fill="{_DOT}"/>' for x, y in points]
    if with_numbers and len(points) <= MOST_NUMBERED:
        # Next to each landmark, away from its neighbours.
        apart = np.linalg.norm(points[:, None] - points, axis=2)
        away = points - points[np.argsort(apart, axis=1)[:, :4]].mean(axis=1)
        away /= np.maximum(np.linalg.norm(away, axis=1, keepdims=True), 1e-6)
        parts += [
            f'<text x="{x:.1f}" y="{y + 1.4:.1f}" font-size="4" text-anchor="middle" '
            f'fill="{_GREY}">{number}</text>'
            for number, (x, y) in enumerate(points + 3.5 * away)
        ]
    return _svg(parts)


def _face_lines(points: Float64) -> Iterator[str]:
    if len(points) != _FACE_PARTS:
        return
    for line, closes in FACE_LINES:
        places = " ".join(f"{x:.1f},{y:.1f}" for x, y in points[list(line)])
        name = "polygon" if closes else "polyline"
        yield f'<{name} points="{places}" fill="none" stroke="{_LINE}" stroke-width=".9"/>'


def draw_network(tensors: Mapping[str, tuple[Any, Sequence[int]]]) -> str:
    """Draw the layers in the order of the file: planes for convolutions, bars for the others.

    Heights go by the logarithm of the width. At most 12 layers are drawn, the largest ones.
    """
    weights = [tuple(shape) for _, shape in tensors.values() if len(shape) > 1]
    weights = weights or [tuple(shape) for _, shape in tensors.values()] or [(1,)]
    if len(weights) > MOST_LAYERS:
        least = sorted(map(prod, weights))[-MOST_LAYERS]
        weights = [shape for shape in weights if prod(shape) >= least][:MOST_LAYERS]
    step = (SIDE - 12) / len(weights)
    parts = []
    for number, shape in enumerate(weights):
        height = 10 + 60 * min(1.0, log2(max(shape[0] if shape else 1, 1) + 1) / 11)
        x, y = 6 + number * step, (SIDE - height) / 2
        if len(shape) < 3:
            parts.append(_box(x, y, step * 0.5, height) + _filled(_GREY, ".18"))
            continue
        planes = min(MOST_PLANES, 1 + round(log2(max(shape[0], 1)) / 2))
        shift = step * 0.4 / planes
        parts += [
            _box(x + plane * shift, y - plane * shift + 4, step * 0.5, height)
            + _filled(_LINE, ".28")
            for plane in range(planes)
        ]
    return _svg(parts)


def _box(x: float, y: float, width: float, height: float) -> str:
    return f'<rect x="{x:.1f}" y="{y:.1f}" width="{width:.1f}" height="{height:.1f}" '


def _filled(colour: str, share: str) -> str:
    return f'fill="{colour}" fill-opacity="{share}" stroke="{colour}" stroke-width=".6"/>'


def _svg(parts: Sequence[str]) -> str:
    head = f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {SIDE} {SIDE}">'
    return head + "".join(parts) + "</svg>"
