"""Descriptions of models in plain values, to compare models before exchanging files."""

import json
import math
from typing import Any

import numpy as np

from aggregators import errors, models
from aggregators.formats.fhog_detector import PLANES
from aggregators.formats.registry import decode_model, default_format, encode_model

Fingerprint = dict[str, Any]
"""A JSON object; see `fingerprint` for its keys."""

MOST_BYTES = 256 * 1024
"""As JSON; enough for some 3000 tensors, 25 times as many as a ResNet-18 has."""

MOST_TEXT_CHARACTERS = 256


def model_kind(model: models.Model) -> models.ModelKind:
    """Return the kind of a model."""
    if isinstance(model, models.FhogDetector):
        return "hog-svm"
    return "network" if isinstance(model, models.StateDict) else "ert"


def fingerprint(model: models.Model, format_name: str | None = None) -> Fingerprint:
    """Describe a model by its sizes and settings, without its parameters.

    `format_name`: format of the model's file; by default the one it would be written in.

    Returns
    -------
    dict
        Always ``kind`` and ``format``. Further:

        hog-svm
            ``window_width_px``, ``window_height_px``, ``cell_size_px``, ``padding_cells``,
            ``dimensions``, ``detectors``, ``overlap_iou``, ``overlap_covered``, ``upsampling``
            (or None), ``thresholds``.
        ert
            ``parts``, ``members``; ``levels``, ``trees_per_level``, ``depths`` (least, most) and
            ``pool_sizes`` (per level) of all members together; for an ensemble also
            ``member_forests``, these four for each member.
        network
            ``tensors`` (name to [type, shape]), ``parameters`` (their number),
            ``architecture`` and ``architecture_version`` (from the file's metadata, or None).
    """
    head: Fingerprint = {
        "kind": model_kind(model),
        "format": format_name or default_format(model).name,
    }
    if isinstance(model, models.FhogDetector):
        described = head | {
            "window_width_px": model.window_width_px,
            "window_height_px": model.window_height_px,
            "cell_size_px": model.cell_size_px,
            "padding_cells": model.padding_cells,
            "dimensions": model.dimensions,
            "detectors": model.detector_count,
            "overlap_iou": model.overlap_iou,
            "overlap_covered": model.overlap_covered,
            "upsampling": model.upsampling,
            "thresholds": [float(value) for value in model.thresholds],
        }
    elif isinstance(model, models.StateDict):
        described = head | {
            "tensors": {
                name: [info.dtype, list(info.shape)] for name, info in sorted(model.infos.items())
            },
            "parameters": sum(math.prod(info.shape) for info in model.infos.values()),
            "architecture": model.metadata.get("architecture"),
            "architecture_version": model.metadata.get("architecture_version"),
        }
    else:
        described = head | _describe_forests(model)
    _require_short(described)
    return described


def _require_short(described: Fingerprint) -> None:
    for name, value in described.items():
        if isinstance(value, str) and len(value) > MOST_TEXT_CHARACTERS:
            raise errors.FormatError(
                name, 0, f"{len(value):,} characters", f"at most {MOST_TEXT_CHARACTERS}"
            )
    size_bytes = len(json.dumps(described, separators=(",", ":")))
    if size_bytes > MOST_BYTES:
        raise errors.FormatError(
            "description of the model (names and shapes of tensors, sizes of forests)",
            0,
            f"{size_bytes:,} bytes",
            f"at most {MOST_BYTES:,}",
        )


def _describe_forests(model: models.ShapePredictor | models.ForestEnsemble) -> Fingerprint:
    if isinstance(model, models.ShapePredictor):
        return {"parts": model.part_count, "members": 1} | _describe_forest(model)
    forests = [_describe_forest(member) for member in model.members]
    levels = max(forest["levels"] for forest in forests)
    return {
        "parts": model.part_count,
        "members": len(forests),
        "levels": levels,
        "trees_per_level": _add_up([forest["trees_per_level"] for forest in forests], levels),
        "depths": [
            min(forest["depths"][0] for forest in forests),
            max(forest["depths"][1] for forest in forests),
        ],
        "pool_sizes": _add_up([forest["pool_sizes"] for forest in forests], levels),
        "member_forests": forests,
    }


def _describe_forest(model: models.ShapePredictor) -> Fingerprint:
    return {
        "levels": model.level_count,
        "trees_per_level": [int(count) for count in model.trees_per_level],
        "depths": [int(model.tree_depths.min()), int(model.tree_depths.max())],
        "pool_sizes": [int(count) for count in model.pool_per_level],
    }


def _add_up(counts: list[list[int]], levels: int) -> list[int]:
    return [sum(row[level] for row in counts if level < len(row)) for level in range(levels)]


def load_kernels() -> None:
    """Write and read the smallest model of each dlib format once.

    The first read in a process loads compiled code from disk, which takes a second. A process
    that forks others calls this once for all of them.
    """
    for model in (_smallest_predictor(), _smallest_detector()):
        fingerprint(decode_model(encode_model(model)))


def _smallest_predictor() -> models.ShapePredictor:
    return models.ShapePredictor(
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


def _smallest_detector() -> models.FhogDetector:
    return models.FhogDetector(
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
