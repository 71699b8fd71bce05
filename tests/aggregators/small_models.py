"""Small valid models with random contents."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from aggregators.models import (
    FhogDetector,
    Float32,
    ForestEnsemble,
    ShapePredictor,
    StateDict,
    TensorInfo,
)


def make_detector(seed: int, *, window_px: int = 80, detectors: int = 1) -> FhogDetector:
    """Make a detector with an 80 x 80 window unless asked otherwise."""
    random = np.random.default_rng(seed)
    cells = window_px // 8 + 2
    return FhogDetector(
        window_width_px=window_px,
        window_height_px=window_px,
        cell_size_px=8,
        padding_cells=1,
        max_pyramid_levels=1000,
        min_layer_width_px=64,
        min_layer_height_px=64,
        nuclear_norm_strength=0.0,
        overlap_iou=0.5,
        overlap_covered=1.0,
        weights=random.normal(0, 0.01, (detectors, cells * cells * 31)),
        thresholds=random.normal(1, 0.1, detectors),
    )


def make_predictor(
    seed: int,
    *,
    parts: int = 5,
    depths: tuple[tuple[int, ...], ...] = ((2, 1, 3), (2, 2)),
    initial_shape: Float32 | None = None,
    pool_sizes: Sequence[int] = (),
) -> ShapePredictor:
    """Make a landmark model; `depths` has one row per level and one number per tree."""
    random = np.random.default_rng(seed)
    tree_depths = np.array([depth for level in depths for depth in level], dtype=np.uint8)
    pools = np.array(pool_sizes or [6 + seed % 3] * len(depths), dtype=np.int64)
    trees = np.array([len(level) for level in depths], dtype=np.int64)
    tree_level = np.repeat(np.arange(len(depths)), trees)
    split_counts = np.left_shift(1, tree_depths.astype(np.int64)) - 1
    split_pools = np.repeat(pools[tree_level], split_counts)
    splits, leaves = int(split_counts.sum()), int(split_counts.sum()) + len(tree_depths)
    shape = random.uniform(0.1, 0.9, (parts, 2)).astype(np.float32)
    return ShapePredictor(
        initial_shape=shape if initial_shape is None else initial_shape,
        trees_per_level=trees,
        pool_per_level=pools,
        tree_depths=tree_depths,
        split_idx1=random.integers(0, split_pools, splits).astype(np.uint32),
        split_idx2=random.integers(0, split_pools, splits).astype(np.uint32),
        split_thresholds=random.uniform(-80, 80, splits).astype(np.float32),
        leaves=random.normal(0, 0.02, (leaves, parts, 2)).astype(np.float32),
        anchors=random.integers(0, parts, int(pools.sum())).astype(np.uint32),
        deltas=random.normal(0, 0.1, (int(pools.sum()), 2)).astype(np.float32),
    )


def as_trained(model: ShapePredictor) -> ShapePredictor:
    """Return a made-up landmark model with splits such as training makes them."""
    shape = model.initial_shape.astype(np.float64)
    places = 0.5 + (shape[model.anchors] + model.deltas - 0.5) / 2
    anchors = np.linalg.norm(places[:, np.newaxis] - shape, axis=2).argmin(axis=1)
    sizes = np.left_shift(1, model.tree_depths.astype(np.int64)) - 1
    pools = np.repeat(np.repeat(model.pool_per_level, model.trees_per_level), sizes)
    second = np.where(
        model.split_idx1 == model.split_idx2, (model.split_idx2 + 1) % pools, model.split_idx2
    )
    return replace(
        model,
        split_idx2=second.astype(np.uint32),
        split_thresholds=model.split_thresholds * np.float32(0.8),
        anchors=anchors.astype(np.uint32),
        deltas=(places - shape[anchors]).astype(np.float32),
    )


def make_ensemble(seed: int) -> ForestEnsemble:
    """Make a model of two forests that share an initial shape."""
    first, second = make_predictor(seed), make_predictor(seed + 100)
    return ForestEnsemble(
        members=(first, replace(second, initial_shape=first.initial_shape)),
        weights=np.array([1.0, 3.0]),
    )


def make_network(seed: int, *, hidden: int = 4, architecture: str = "small") -> StateDict:
    """Make a state dict with a counter and entries of three floating-point types."""
    random = np.random.default_rng(seed)
    tensors: dict[str, Any] = {
        "body.weight": random.normal(size=(hidden, 3)).astype(np.float32),
        "body.scale": random.normal(size=(hidden,)).astype(np.float16),
        "head.weight": random.normal(size=(2, hidden)),
        "head.bias": np.array(random.normal(), dtype=np.float32),
        "steps": np.array(7, dtype=np.int64),
    }
    types = {"float32": "F32", "float16": "F16", "float64": "F64", "int64": "I64"}
    infos = {
        name: TensorInfo(types[tensor.dtype.name], tensor.shape) for name, tensor in tensors.items()
    }
    return StateDict(tensors=tensors, infos=infos, metadata={"architecture": architecture})
