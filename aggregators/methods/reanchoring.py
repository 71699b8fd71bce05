"""A common initial shape for landmark models."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from aggregators.models import Float32, Float64, ShapePredictor, UInt32


def mean_initial_shape(shapes: Sequence[Float32], copies: Sequence[int]) -> Float32:
    """Return the mean of initial shapes, each counted `copies` times, computed in float64.

    Parameters
    ----------
    shapes : sequence of float32, shape (parts, 2)
        In box coordinates.
    copies : sequence of int
    """
    total: Float64 = np.zeros(shapes[0].shape, dtype=np.float64)
    for shape, count in zip(shapes, copies, strict=True):
        total += np.float64(count) * shape
    total /= sum(copies)
    return total.astype(np.float32)


def reanchored(predictor: ShapePredictor, initial_shape: Float32) -> ShapePredictor:
    """Return the predictor with another initial shape and its pixels in the same places.

    Each pixel of the pools, at ``own shape[anchor] + delta`` in box coordinates, is anchored to
    the nearest landmark of the new shape. The trees are shared with the original. A predictor
    that already has this initial shape is returned unchanged.

    Parameters
    ----------
    initial_shape : float32, shape (parts, 2)
        In box coordinates.
    """
    if np.array_equal(predictor.initial_shape, initial_shape):
        return predictor
    own_shape = predictor.initial_shape.astype(np.float64)
    pixels = own_shape[predictor.anchors] + predictor.deltas
    anchors = _nearest_landmarks(initial_shape.astype(np.float64), pixels)
    deltas = pixels - initial_shape.astype(np.float64)[anchors]
    return replace(
        predictor,
        initial_shape=initial_shape,
        anchors=anchors,
        deltas=deltas.astype(np.float32),
    )


def _nearest_landmarks(shape: Float64, pixels: Float64) -> UInt32:
    """Return the nearest landmark of each pixel, the first of equally near ones."""
    nearest = np.empty(len(pixels), dtype=np.uint32)
    rows = max(1, 1_000_000 // len(shape))
    for start in range(0, len(pixels), rows):
        across = pixels[start : start + rows, :1] - shape[:, 0]
        down = pixels[start : start + rows, 1:] - shape[:, 1]
        nearest[start : start + rows] = np.argmin(across * across + down * down, axis=1)
    return nearest
