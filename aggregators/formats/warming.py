"""Loading the compiled parts of reading models before they are needed."""

from __future__ import annotations

import numpy as np

from aggregators.formats.fingerprint import fingerprint
from aggregators.formats.registry import decode_model, encode_model
from aggregators.models import FhogDetector, ShapePredictor


def load_kernels() -> None:
    """Read the smallest model of each kind once.

    The first read in a process loads compiled code from its cache, which takes a second; a
    process that forks others to read strangers' files does it for them all.
    """
    for model in (_smallest_predictor(), _smallest_detector()):
        content = encode_model(model)
        fingerprint(decode_model(content))


def _smallest_predictor() -> ShapePredictor:
    return ShapePredictor(
        initial_shape=np.full((1, 2), 0.5, dtype=np.float32),
        trees_per_level=np.array([1], dtype=np.int64),
        pool_per_level=np.array([2], dtype=np.int64),
        tree_depths=np.array([1], dtype=np.uint8),
        split_idx1=np.array([0], dtype=np.uint32),
        split_idx2=np.array([1], dtype=np.uint32),
        split_thresholds=np.array([0.5], dtype=np.float32),
        leaves=np.zeros((2, 1, 2), dtype=np.float32),
        anchors=np.zeros(2, dtype=np.uint32),
        deltas=np.zeros((2, 2), dtype=np.float32),
    )


def _smallest_detector() -> FhogDetector:
    cells = 80 // 8 + 2
    return FhogDetector(
        window_width_px=80,
        window_height_px=80,
        cell_size_px=8,
        padding_cells=1,
        max_pyramid_levels=1000,
        min_layer_width_px=64,
        min_layer_height_px=64,
        nuclear_norm_strength=0.0,
        overlap_iou=0.5,
        overlap_covered=1.0,
        weights=np.zeros((1, cells * cells * 31)),
        thresholds=np.zeros(1),
    )
