"""Drawings of models for pages: small, for light and dark grounds, without a ground of their own.

Landmarks and networks are SVG in middle tones; detectors are PNG in 16 greys on black.
"""

import io
from collections.abc import Iterator, Mapping, Sequence
from math import log2, prod
from typing import Any

import numpy as np
from PIL import Image

from aggregators.models import FhogDetector, Float64, ForestEnsemble, Model, ShapePredictor
from aggregators.pictures import FACE_LINES, hog_picture, movement_spread

SIDE = 100
"""Side of a drawing in its own units; the page chooses the pixels."""
CELL_PX = {"thumb": 12, "large": 24}
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
        return "image/png", draw_detector(model, CELL_PX[size])
    if isinstance(model, ShapePredictor | ForestEnsemble):
        return "image/svg+xml", draw_landmarks(model, with_numbers=size == "large").encode()
    tensors = {name: (info.dtype, info.shape) for name, info in model.infos.items()}
    return "image/svg+xml", draw_network(tensors).encode()


def draw_detector(detector: FhogDetector, cell_px: int) -> bytes:
    """Draw the filters side by side, as strokes along the edges that they detect."""
    shown = range(min(detector.detector_count, MOST_FILTERS))
    strip = np.concatenate([hog_picture(detector, each, cell_px=cell_px) for each in shown], axis=1)
    greys = Image.fromarray(strip, "L").quantize(GREYS)
    content = io.BytesIO()
    greys.save(content, "PNG", optimize=True)
    return content.getvalue()


def draw_landmarks(model: ShapePredictor | ForestEnsemble, *, with_numbers: bool) -> str:
    """Draw the mean shape in its face box; a halo is how far the trees move a landmark."""
    members = model.members if isinstance(model, ForestEnsemble) else (model,)
    shape = members[0].initial_shape.astype(np.float64)
    spread = np.mean([movement_spread(each) for each in members], axis=0)
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
        parts += [
            f'<text x="{x + 1.8:.1f}" y="{y - 1.4:.1f}" font-size="4" fill="{_GREY}">'
            f"{number}</text>"
            for number, (x, y) in enumerate(points)
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
        weights = [each for each in weights if prod(each) >= least][:MOST_LAYERS]
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
            _box(x + each * shift, y - each * shift + 4, step * 0.5, height) + _filled(_LINE, ".28")
            for each in range(planes)
        ]
    return _svg(parts)


def _box(x: float, y: float, width: float, height: float) -> str:
    return f'<rect x="{x:.1f}" y="{y:.1f}" width="{width:.1f}" height="{height:.1f}" '


def _filled(colour: str, share: str) -> str:
    return f'fill="{colour}" fill-opacity="{share}" stroke="{colour}" stroke-width=".6"/>'


def _svg(parts: Sequence[str]) -> str:
    head = f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {SIDE} {SIDE}">'
    return head + "".join(parts) + "</svg>"
