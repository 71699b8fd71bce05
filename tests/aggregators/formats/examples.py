"""Small models for the tests of formats, and how to compare models."""

from __future__ import annotations

from dataclasses import fields

import numpy as np

from aggregators.formats.fhog_detector import PLANES, filter_cells
from aggregators.models import (
    FhogDetector,
    ForestEnsemble,
    Model,
    ShapePredictor,
    StateDict,
    TensorInfo,
)

# Zero of both signs, the smallest, an odd denormal, the least normal, the largest, whole bytes.
HARD_FLOATS = np.array(
    [
        0.0,
        -0.0,
        1e-45,
        -1e-45,
        3.3e-41,
        1.17549435e-38,
        3.4028235e38,
        -3.4028235e38,
        256,
        -65536,
        1,
    ],
    dtype=np.float32,
)


def make_detector(seed: int = 0, detectors: int = 1, upsampling: int | None = None) -> FhogDetector:
    """Make a detector of 2 x 3 cells with random weights."""
    random = np.random.default_rng(seed)
    rows, columns = filter_cells(24, 16, 8, 0)
    weights = random.normal(size=(detectors, PLANES * rows * columns))
    weights[0, :4] = [0.0, 5e-324, -1.7976931348623157e308, 2.0**60]
    return FhogDetector(
        window_width_px=24,
        window_height_px=16,
        cell_size_px=8,
        padding_cells=0,
        max_pyramid_levels=1000,
        min_layer_width_px=64,
        min_layer_height_px=64,
        nuclear_norm_strength=9.0,
        overlap_iou=0.33,
        overlap_covered=1.0,
        weights=weights,
        thresholds=random.normal(size=detectors),
        upsampling=upsampling,
    )


def make_predictor(
    seed: int = 0, depths: tuple[tuple[int, ...], ...] = ((2, 0, 1), (3,)), parts: int = 3
) -> ShapePredictor:
    """Make a predictor with the given depths of trees per level, some numbers hard to write."""
    random = np.random.default_rng(seed)
    flat = np.array([depth for level in depths for depth in level], dtype=np.uint8)
    leaf_count = int((1 << flat.astype(np.int64)).sum())
    split_count = leaf_count - len(flat)
    pools = np.arange(4, 4 + len(depths))
    smallest = int(pools.min())
    leaves = random.normal(0, 1e-3, (leaf_count, parts, 2)).astype(np.float32)
    hard = min(leaves.size, HARD_FLOATS.size)
    leaves.reshape(-1)[:hard] = HARD_FLOATS[:hard]
    return ShapePredictor(
        initial_shape=random.uniform(0, 1, (parts, 2)).astype(np.float32),
        trees_per_level=np.array([len(level) for level in depths], dtype=np.int64),
        pool_per_level=pools.astype(np.int64),
        tree_depths=flat,
        split_idx1=random.integers(0, smallest, split_count, dtype=np.uint32),
        split_idx2=random.integers(0, smallest, split_count, dtype=np.uint32),
        split_thresholds=random.uniform(-100, 100, split_count).astype(np.float32),
        leaves=leaves,
        anchors=random.integers(0, parts, int(pools.sum()), dtype=np.uint32),
        deltas=random.normal(0, 0.1, (int(pools.sum()), 2)).astype(np.float32),
    )


def make_soft_predictor(seed: int = 0) -> ShapePredictor:
    """Make a predictor whose leaves half precision can hold."""
    model = make_predictor(seed)
    leaves = np.clip(model.leaves, -1, 1)
    return ShapePredictor(**{**vars(model), "leaves": leaves})


def make_ensemble(seed: int = 0, *, soft: bool = False) -> ForestEnsemble:
    """Make two unlike forests on one initial shape."""
    first = make_soft_predictor(seed) if soft else make_predictor(seed)
    second = make_soft_predictor(seed + 1) if soft else make_predictor(seed + 1, ((1,),))
    second = ShapePredictor(**{**vars(second), "initial_shape": first.initial_shape})
    return ForestEnsemble(members=(first, second), weights=np.array([0.25, 3.0]))


def make_state_dict() -> StateDict:
    """Make a state dict with an entry of most types, one without dimensions, one empty."""
    random = np.random.default_rng(0)
    tensors: dict[str, np.ndarray] = {
        "conv.weight": random.normal(size=(2, 3, 3)).astype(np.float32),
        "conv.bias": random.normal(size=2).astype(np.float16),
        "norm.count": np.array(7, dtype=np.int64),
        "norm.mean": random.normal(size=3),
        "mask": np.array([True, False, True]),
        "none": np.zeros((0, 4), dtype=np.float32),
        "bytes": np.arange(5, dtype=np.uint8),
        "brain": np.array([1.0, -2.5, np.inf], dtype=np.float32),
    }
    names = {"float32": "F32", "float16": "F16", "int64": "I64", "float64": "F64", "bool": "BOOL"}
    infos = {
        name: TensorInfo(names.get(str(array.dtype), "U8"), array.shape)
        for name, array in tensors.items()
    }
    infos["brain"] = TensorInfo("BF16", (3,))
    return StateDict(tensors, infos, {"architecture": "gaze-net", "note": "grüße"})


def assert_equal_models(first: Model, second: Model) -> None:
    """Compare every field; -0.0 and 0.0 are equal, as dlib writes no sign of zero."""
    assert type(first) is type(second)
    if isinstance(first, ForestEnsemble) and isinstance(second, ForestEnsemble):
        np.testing.assert_array_equal(first.weights, second.weights)
        assert len(first.members) == len(second.members)
        for one, other in zip(first.members, second.members, strict=True):
            assert_equal_models(one, other)
        return
    if isinstance(first, StateDict) and isinstance(second, StateDict):
        assert dict(first.infos) == dict(second.infos)
        assert dict(first.metadata) == dict(second.metadata)
        assert set(first.tensors) == set(second.tensors)
        for name, array in first.tensors.items():
            assert array.dtype == second.tensors[name].dtype
            np.testing.assert_array_equal(array, second.tensors[name])
        return
    for item in fields(first):
        one, other = getattr(first, item.name), getattr(second, item.name)
        if isinstance(one, np.ndarray):
            assert one.dtype == other.dtype
            assert other.flags.c_contiguous
        np.testing.assert_array_equal(one, other, err_msg=item.name)
