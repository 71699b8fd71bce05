"""Small models for the tests of formats, dlib's integers, and how to compare models."""

from dataclasses import fields, replace

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
from tests.aggregators import small_models

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
    """Make a detector of 2 x 3 cells with random weights, some hard to write."""
    rows, columns = filter_cells(24, 16, 8, 0)
    weights = np.random.default_rng(seed).normal(size=(detectors, PLANES * rows * columns))
    weights[0, :4] = [0.0, 5e-324, -1.7976931348623157e308, 2.0**60]
    return replace(
        small_models.make_detector(seed, detectors=detectors),
        window_width_px=24,
        window_height_px=16,
        padding_cells=0,
        nuclear_norm_strength=9.0,
        overlap_iou=0.33,
        weights=weights,
        upsampling=upsampling,
    )


def make_predictor(
    seed: int = 0, depths: tuple[tuple[int, ...], ...] = ((2, 0, 1), (3,)), parts: int = 3
) -> ShapePredictor:
    """Make a predictor with trees of these depths per level, and some leaves hard to write."""
    pool_sizes = range(4, 4 + len(depths))
    model = small_models.make_predictor(seed, parts=parts, depths=depths, pool_sizes=pool_sizes)
    hard = min(model.leaves.size, HARD_FLOATS.size)
    model.leaves.reshape(-1)[:hard] = HARD_FLOATS[:hard]
    return model


def make_soft_predictor(seed: int = 0) -> ShapePredictor:
    """Make a predictor with leaves that half precision can hold."""
    model = make_predictor(seed)
    return replace(model, leaves=np.clip(model.leaves, -1, 1))


def make_ensemble(seed: int = 0, *, soft: bool = False) -> ForestEnsemble:
    """Make two different forests with one initial shape."""
    first = make_soft_predictor(seed) if soft else make_predictor(seed)
    second = make_soft_predictor(seed + 1) if soft else make_predictor(seed + 1, ((1,),))
    second = replace(second, initial_shape=first.initial_shape)
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


def make_sparse_state_dict() -> StateDict:
    """Make a state dict with few numbers that are not zero, of types of each size."""
    random = np.random.default_rng(0)
    types = {"F64": np.float64, "F32": np.float32, "BF16": np.float32, "I16": np.int16}
    tensors: dict[str, np.ndarray] = {}
    infos = {}
    for name, kind in types.items():
        for form, kept in (("mask", 40), ("index", 2)):
            values = np.zeros(297, dtype=kind)
            values[random.choice(297, kept, replace=False)] = np.arange(1, kept + 1)
            tensors[f"{name} {form}"] = values.reshape(9, 3, 11)
            infos[f"{name} {form}"] = TensorInfo(name, (9, 3, 11))
    tensors |= {"negative": np.array([-0.0, *[0.0] * 40]), "no": np.zeros((), dtype=np.int64)}
    infos |= {"negative": TensorInfo("F64", (41,)), "no": TensorInfo("I64", ())}
    return StateDict(tensors, infos, {"architecture": "gaze-lenet", "format": "pt"})


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


def split_integers(data: bytes) -> list[tuple[int, int]]:
    """Return (offset, value) of each integer; dlib's model files consist of nothing else."""
    integers, offset = [], 0
    while offset < len(data):
        size = data[offset] & 0x0F
        value = int.from_bytes(data[offset + 1 : offset + 1 + size], "little")
        integers.append((offset, -value if data[offset] & 0x80 else value))
        offset += 1 + size
    return integers


def write_integer(value: int, size: int | None = None) -> bytes:
    """Return an integer's bytes, as few as possible or as many as asked for."""
    size = size or max(1, (abs(value).bit_length() + 7) // 8)
    return bytes([size | (0x80 if value < 0 else 0)]) + abs(value).to_bytes(size, "little")
