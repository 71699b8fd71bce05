"""Checks of a landmark model's arrays, independent of the file format."""

from __future__ import annotations

from dataclasses import dataclass, fields

import numpy as np
from numpy.typing import NDArray

from aggregators.models import ShapePredictor

MOST_LEVELS = 10_000
"""Cascades have about ten levels; a crafted file with more could take hours."""

FIELD_TYPES: dict[str, type[np.generic]] = {
    "initial_shape": np.float32,
    "trees_per_level": np.int64,
    "pool_per_level": np.int64,
    "tree_depths": np.uint8,
    "split_idx1": np.uint32,
    "split_idx2": np.uint32,
    "split_thresholds": np.float32,
    "leaves": np.float32,
    "anchors": np.uint32,
    "deltas": np.float32,
}


@dataclass(frozen=True)
class Problem:
    """The first invalid array of a model: its name, what it holds, what is valid."""

    field: str
    found: str
    expected: str

    def __str__(self) -> str:
        return f"{self.field}: found {self.found}, expected {self.expected}"


def find_forest_problem(model: ShapePredictor) -> Problem | None:
    """Return the first problem with the arrays' types, sizes and indices, or None."""
    return _find_type_problem(model) or _find_size_problem(model) or _find_index_problem(model)


def find_number_problem(model: ShapePredictor) -> Problem | None:
    """Return the first array with an infinite number or NaN, or None."""
    for name in ("initial_shape", "split_thresholds", "deltas", "leaves"):
        if not _all_finite(getattr(model, name)):
            return Problem(name, "an infinite number or NaN", "finite numbers")
    return None


def _all_finite(values: NDArray[np.float32]) -> bool:
    # Fast: a sum is finite only if all its terms are. As finite terms may overflow, the slow
    # test decides about sums that are not.
    with np.errstate(over="ignore", invalid="ignore"):
        if np.isfinite(np.add.reduce(values, axis=None)):
            return True
    return bool(np.isfinite(values).all())


def _find_type_problem(model: ShapePredictor) -> Problem | None:
    for item in fields(model):
        array = getattr(model, item.name)
        wanted = np.dtype(FIELD_TYPES[item.name])
        if array.dtype != wanted:
            return Problem(item.name, f"type {array.dtype}", str(wanted))
    return None


def _find_size_problem(model: ShapePredictor) -> Problem | None:
    parts = model.initial_shape.shape[0]
    if model.initial_shape.shape != (parts, 2) or parts < 1:
        return Problem("initial_shape", f"shape {model.initial_shape.shape}", "(parts, 2)")
    return _find_count_problem(model) or _find_shape_problem(model)


def _find_count_problem(model: ShapePredictor) -> Problem | None:
    levels = model.trees_per_level.shape[0] if model.trees_per_level.ndim == 1 else 0
    if not 1 <= levels <= MOST_LEVELS:
        return Problem("trees_per_level", f"{levels} levels", f"1 to {MOST_LEVELS}")
    if model.pool_per_level.shape != (levels,):
        return Problem("pool_per_level", f"shape {model.pool_per_level.shape}", f"({levels},)")
    trees, pixels = model.tree_depths.shape[0], model.anchors.shape[0]
    if not _counts_add_up(model.trees_per_level, 1, trees):
        return Problem("trees_per_level", "counts that do not add up", f"{trees} trees in all")
    if not _counts_add_up(model.pool_per_level, 0, pixels):
        return Problem("pool_per_level", "counts that do not add up", f"{pixels} pixels in all")
    if model.tree_depths.ndim != 1 or int(model.tree_depths.max()) > 31:
        return Problem("tree_depths", f"depth {int(model.tree_depths.max())}", "0 to 31")
    return None


def _find_shape_problem(model: ShapePredictor) -> Problem | None:
    parts, trees, pixels = model.part_count, model.tree_count, model.anchors.shape[0]
    if trees > model.leaves.shape[0]:
        return Problem("leaves", f"{model.leaves.shape[0]} leaves", f"at least {trees}")
    leaves = int(np.left_shift(np.int64(1), model.tree_depths.astype(np.int64)).sum())
    shapes = {
        "split_idx1": (leaves - trees,),
        "split_idx2": (leaves - trees,),
        "split_thresholds": (leaves - trees,),
        "leaves": (leaves, parts, 2),
        "anchors": (pixels,),
        "deltas": (pixels, 2),
    }
    for name, shape in shapes.items():
        if getattr(model, name).shape != shape:
            return Problem(name, f"shape {getattr(model, name).shape}", f"{shape}")
    return None


def _counts_add_up(counts: NDArray[np.int64], least: int, total: int) -> bool:
    # Summed as Python integers: crafted counts must not wrap around.
    return bool((counts >= least).all()) and sum(counts.tolist()) == total


def _find_index_problem(model: ShapePredictor) -> Problem | None:
    if model.anchors.size and int(model.anchors.max()) >= model.part_count:
        return Problem("anchors", str(model.anchors.max()), f"below {model.part_count}, the parts")
    for number, level in enumerate(model.levels()):
        for name in ("split_idx1", "split_idx2"):
            indices = getattr(level, name)
            if indices.size and int(indices.max()) >= level.pool_size:
                return Problem(
                    f"{name} of level {number}",
                    str(indices.max()),
                    f"below {level.pool_size}, the size of the level's pixel pool",
                )
    return None
