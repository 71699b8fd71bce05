"""Loading the compiled code of the formats before it is needed."""

from __future__ import annotations

import numpy as np

from aggregators.formats.fhog_detector import PLANES
from aggregators.formats.fingerprint import fingerprint
from aggregators.formats.registry import decode_model, encode_model
from aggregators.models import FhogDetector, ShapePredictor


def load_kernels() -> None:
    """Write and read the smallest model of each dlib format once.

    The first read in a process loads compiled code from disk, which takes a second. A process
    that forks others calls this once for all of them.
    """
    for model in (_smallest_predictor(), _smallest_detector()):
        fingerprint(decode_model(encode_model(model)))


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
    return FhogDetector(
        window_width_px=8,
        window_height_px=8,
        cell_size_px=8,
        padding_cells=0,
        max_pyramid_levels=1,
        min_layer_width_px=8,
        min_layer_height_px=8,
        nuclear_norm_strength=0.0,
        overlap_iou=0.5,
        overlap_covered=1.0,
        weights=np.zeros((1, PLANES)),
        thresholds=np.zeros(1),
    )
