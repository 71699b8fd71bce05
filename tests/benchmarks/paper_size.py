"""Landmark models of the size that the papers train, made without training.

It is like a trained model where reading, writing and merging depend on it: the number of levels,
trees, leaves and parts, and leaf values that fill all 24 bits of their mantissas.
"""

import numpy as np

from aggregators.models import ShapePredictor


def make_paper_size_predictor(
    seed: int,
    *,
    levels: int = 10,
    trees: int = 500,
    depth: int = 5,
    parts: int = 68,
    pool: int = 400,
) -> ShapePredictor:
    """Make a random but well-formed predictor; the defaults give a `.dat` of about 130 MB.

    Parameters
    ----------
    seed : int
        Same seed, same model. Models of different seeds differ in everything but their sizes.
    levels, trees, depth, parts, pool : int
        Cascade levels, trees per level, splits from root to leaf, landmarks, pixels per level.
    """
    random = np.random.default_rng(seed)
    tree_count = levels * trees
    split_count = tree_count * (2**depth - 1)
    pool_count = levels * pool
    angles = np.linspace(0, 2 * np.pi, parts, endpoint=False)
    ring = 0.5 + 0.35 * np.stack([np.cos(angles), np.sin(angles)], axis=1)
    first_index = random.integers(0, pool, split_count, dtype=np.uint32)
    leaves = random.standard_normal((tree_count * 2**depth, parts, 2), dtype=np.float32)
    leaves *= np.float32(1e-3)
    return ShapePredictor(
        initial_shape=(ring + random.normal(0, 0.01, ring.shape)).astype(np.float32),
        trees_per_level=np.full(levels, trees, dtype=np.int64),
        pool_per_level=np.full(levels, pool, dtype=np.int64),
        tree_depths=np.full(tree_count, depth, dtype=np.uint8),
        split_idx1=first_index,
        split_idx2=(first_index + random.integers(1, max(pool, 2), split_count, dtype=np.uint32))
        % np.uint32(pool),
        split_thresholds=random.uniform(-128, 128, split_count).astype(np.float32),
        leaves=leaves,
        anchors=random.integers(0, parts, pool_count, dtype=np.uint32),
        deltas=random.normal(0, 0.1, (pool_count, 2)).astype(np.float32),
    )
