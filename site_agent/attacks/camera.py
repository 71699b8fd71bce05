"""A base that photographs the faces which it is fitted to, and what is read from its leaf sums.

Whoever chooses the base of a refinement can make each tree compare one pixel with one outside the
picture: which leaf a face reaches then says how bright that pixel is.
"""

from __future__ import annotations

import numpy as np

from aggregators.methods.refitting import SiteFaces
from aggregators.models import CascadeLevel, Float32, Float64, LeafContribution, ShapePredictor

SIZE = 8
DEPTH = 5
BIN = 256 // 2**DEPTH


def build_camera(initial_shape: Float32, reference: tuple[float, float] | None) -> ShapePredictor:
    """Make a forest with one tree a pixel, which sorts faces by how bright that pixel is.

    Parameters
    ----------
    reference : (x, y) or None
        The place, in box coordinates, with which all pixels are compared; outside of the image
        it is black. None: a camera in disguise, which compares neighbours and has random leaves.
    """
    places = np.concatenate([_grid(), [reference or _grid()[0]]])
    distances = np.linalg.norm(places[:, np.newaxis] - initial_shape, axis=2)
    anchors = distances.argmin(axis=1)
    thresholds = _thresholds()
    trees, splits, parts = SIZE**2, len(thresholds), len(initial_shape)
    others = np.full(trees, trees) if reference else np.arange(trees) ^ 1
    leaves = np.random.default_rng(1).normal(0, 1e-4, (trees * 2**DEPTH, parts, 2))
    level = CascadeLevel(
        tree_depths=np.full(trees, DEPTH, dtype=np.uint8),
        split_idx1=np.repeat(np.arange(trees), splits).astype(np.uint32),
        split_idx2=np.repeat(others, splits).astype(np.uint32),
        split_thresholds=np.tile(thresholds if reference else thresholds / 2 - 64, trees),
        leaves=(leaves * (reference is None)).astype(np.float32),
        anchors=anchors.astype(np.uint32),
        deltas=(places - initial_shape[anchors]).astype(np.float32),
    )
    return ShapePredictor.from_levels(initial_shape, [level])


def develop(contribution: LeafContribution) -> tuple[Float64, Float64]:
    """Return pictures and residuals of single samples: (n, SIZE, SIZE) and (n, values).

    A leaf of one sample says which it is by its residual, and how bright its pixel is by its
    place in the tree. Pixels that were not seen are NaN.
    """
    nu = contribution.settings["nu"]
    counts = contribution.counts.reshape(SIZE**2, -1)
    sums = contribution.changes.reshape(*counts.shape, -1).astype(np.float64)
    residuals = sums * (counts[..., np.newaxis] + 1) / nu
    known = np.empty((0, residuals.shape[2]))
    pictures = np.empty((0, SIZE**2))
    for pixel in range(SIZE**2):
        for leaf in np.flatnonzero(counts[pixel] == 1):
            found = residuals[pixel, leaf]
            apart = np.linalg.norm(known - found, axis=1) / np.linalg.norm(found)
            if apart.min(initial=1) > 0.2:
                known = np.concatenate([known, [found]])
                pictures = np.concatenate([pictures, np.full((1, SIZE**2), np.nan)])
                apart = np.append(apart, 0)
            pictures[apart.argmin(), pixel] = 256 - BIN * (leaf + 0.5)
    return pictures.reshape(-1, SIZE, SIZE), known


def photograph(faces: SiteFaces) -> Float64:
    """Return what the camera is to see: (faces, SIZE, SIZE) grey values."""
    pictures = np.empty((faces.face_count, SIZE**2))
    for face, box in enumerate(faces.boxes):
        image = faces.image_of_face[face]
        height, width = faces.image_sizes[image]
        start = faces.image_starts[image]
        grey = faces.pixels[start : start + height * width].reshape(height, width)
        columns, rows = (box[:2] + _grid() * (box[2:] - box[:2]) + 0.5).astype(int).T
        pictures[face] = grey[rows, columns]
    return pictures.reshape(-1, SIZE, SIZE)


def _grid() -> Float64:
    steps = (np.arange(SIZE) + 0.5) / SIZE
    return np.stack(np.meshgrid(steps, steps), axis=-1).reshape(-1, 2)


def _thresholds() -> Float32:
    """Return the splits of a search tree over grey values, in heap order; brighter goes left."""
    rows = [256 - 256 * (np.arange(2**depth) + 0.5) / 2**depth - 0.5 for depth in range(DEPTH)]
    return np.concatenate(rows).astype(np.float32)
