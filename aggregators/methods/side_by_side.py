"""Joining cascades into one, level by level."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from aggregators.methods.thinning import Thinned, kept_tree_counts, thinned_level
from aggregators.models import CascadeLevel, Float32, Float64, ShapePredictor, UInt8


@dataclass(frozen=True, eq=False)
class _Share:
    """One member's part of a level: the trees to keep (all if None) and their leaves' factor."""

    level: CascadeLevel
    factor: float
    thinned: Thinned | None = None

    @property
    def depths(self) -> UInt8:
        depths = self.level.tree_depths
        return depths if self.thinned is None else depths[self.thinned.trees]


def join_cascades(
    predictors: Sequence[ShapePredictor],
    weights: Sequence[float],
    *,
    step: float,
    kept_trees_per_level: int | None,
    progress: Callable[[float, str], None],
) -> ShapePredictor:
    """Return one cascade whose level updates are the weighted means of the given ones'.

    The arrays are allocated once and filled in place, so no other memory is needed.

    Parameters
    ----------
    predictors : sequence of ShapePredictor
        With equal initial shapes and numbers of levels.
    weights : sequence of float
    step : float
        Factor on every update.
    kept_trees_per_level : int or None
        Keep this many trees of each level.
    """
    shares_by_level = [
        _level_shares(list(levels), weights, step, kept_trees_per_level)
        for levels in zip(*(predictor.levels() for predictor in predictors), strict=True)
    ]
    joined = _empty_cascade(predictors[0].initial_shape, shares_by_level)
    for number, (target, shares) in enumerate(
        zip(joined.levels(), shares_by_level, strict=True), start=1
    ):
        _fill_level(target, shares)
        progress(number / len(shares_by_level), f"joined level {number}")
    return joined


def _level_shares(
    levels: Sequence[CascadeLevel],
    weights: Sequence[float],
    step: float,
    kept_trees: int | None,
) -> list[_Share]:
    total_weight = math.fsum(weights)
    tree_counts = [level.tree_count for level in levels]
    if kept_trees is None or kept_trees >= sum(tree_counts):
        return [
            _Share(level, step * (weight / total_weight))
            for level, weight in zip(levels, weights, strict=True)
        ]
    kept_counts = kept_tree_counts(tree_counts, weights, kept_trees)
    present_weight = math.fsum(
        weight for weight, kept in zip(weights, kept_counts, strict=True) if kept > 0
    )
    return [
        _Share(
            level,
            step * (weight / present_weight),
            thinned_level(level, kept) if kept < count else None,
        )
        for level, weight, count, kept in zip(
            levels, weights, tree_counts, kept_counts, strict=True
        )
        if kept > 0
    ]


def _empty_cascade(initial_shape: Float32, by_level: list[list[_Share]]) -> ShapePredictor:
    depths = [share.depths for shares in by_level for share in shares]
    tree_depths = np.concatenate(depths) if depths else np.empty(0, dtype=np.uint8)
    leaf_count = int(np.left_shift(np.int64(1), tree_depths.astype(np.int64)).sum())
    split_count = leaf_count - len(tree_depths)
    pool_sizes = [sum(share.level.pool_size for share in shares) for shares in by_level]
    trees = [sum(len(share.depths) for share in shares) for shares in by_level]
    return ShapePredictor(
        initial_shape=initial_shape,
        trees_per_level=np.array(trees, dtype=np.int64),
        pool_per_level=np.array(pool_sizes, dtype=np.int64),
        tree_depths=tree_depths,
        split_idx1=np.empty(split_count, dtype=np.uint32),
        split_idx2=np.empty(split_count, dtype=np.uint32),
        split_thresholds=np.empty(split_count, dtype=np.float32),
        leaves=np.empty((leaf_count, *initial_shape.shape), dtype=np.float32),
        anchors=np.empty(sum(pool_sizes), dtype=np.uint32),
        deltas=np.empty((sum(pool_sizes), 2), dtype=np.float32),
    )


def _fill_level(target: CascadeLevel, shares: Sequence[_Share]) -> None:
    """Copy the members' trees and pools into views of the joined arrays."""
    leaf = split = pixel = 0
    for share in shares:
        kept, factors = _kept_trees(share)
        leaves = slice(leaf, leaf + len(kept.leaves))
        splits = slice(split, split + len(kept.split_thresholds))
        pool = slice(pixel, pixel + kept.pool_size)
        np.add(kept.split_idx1, np.uint32(pixel), out=target.split_idx1[splits])
        np.add(kept.split_idx2, np.uint32(pixel), out=target.split_idx2[splits])
        target.split_thresholds[splits] = kept.split_thresholds
        # In float64, rounded once.
        np.multiply(
            kept.leaves,
            factors,
            out=target.leaves[leaves],
            dtype=np.float64,
            casting="same_kind",
        )
        target.anchors[pool] = kept.anchors
        target.deltas[pool] = kept.deltas
        leaf, split, pixel = leaves.stop, splits.stop, pool.stop


def _kept_trees(share: _Share) -> tuple[CascadeLevel, Float64]:
    """Return the level with only the kept trees, and the factors of its leaves."""
    level = share.level
    if share.thinned is None:
        return level, np.array(share.factor)
    keep = np.zeros(level.tree_count, dtype=np.bool_)
    keep[share.thinned.trees] = True
    leaf_counts = np.left_shift(np.int64(1), level.tree_depths.astype(np.int64))
    splits = np.repeat(keep, leaf_counts - 1)
    thinned = CascadeLevel(
        tree_depths=level.tree_depths[keep],
        split_idx1=level.split_idx1[splits],
        split_idx2=level.split_idx2[splits],
        split_thresholds=level.split_thresholds[splits],
        leaves=level.leaves[np.repeat(keep, leaf_counts)],
        anchors=level.anchors,
        deltas=level.deltas,
    )
    factors = np.repeat(share.factor * share.thinned.factors, leaf_counts[keep])
    return thinned, factors[:, np.newaxis, np.newaxis]
