"""The compiled inner loops of leaf refinement; imported when the first leaf is fitted.

Coordinates are processed in blocks of `BLOCK` columns (x and y of 8 landmarks). Columns are
independent, so blocks can run in several threads with the same result. Within a block one tree's
leaves and the residuals fit into the processor's caches, and loops over `BLOCK` are vectorised.
"""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from aggregators.compiled import compiled
from aggregators.models import Float32, Float64, Int64, UInt8, UInt32
from aggregators.predictors.cascade_kernel import CascadeArrays, read_pool_pixels

UInt16 = NDArray[np.uint16]

BLOCK = 16
DEEPEST = 16
"""The leaves of deeper trees cannot be numbered with 16 bits."""

_BATCH = 64


class SampleArrays(NamedTuple):
    """Images and boxes of a site's samples; see `SiteFaces` and `Samples`."""

    pixels: UInt8
    image_starts: Int64
    image_sizes: Int64
    image_of_sample: Int64
    boxes: Float64


class LevelReach(NamedTuple):
    """The leaves of one level that the samples reach."""

    leaves: UInt16
    """Of shape (trees, samples). Index of the leaf within its tree."""
    first_leaves: Int64
    """Of shape (trees + 1,). Index of each tree's first leaf, and the number of all leaves."""
    counts: UInt32
    """Of shape (leaves,). Samples in each leaf."""


@compiled
def reach_leaves(
    samples: SampleArrays,
    shapes: Float32,
    level: CascadeArrays,
    stretch: tuple[int, int],
    reached: UInt16,
) -> None:
    """Find, for each tree of one level, the leaf that each sample of a stretch reaches.

    Parameters
    ----------
    shapes : float32, shape (samples, parts, 2)
        In box coordinates.
    level : CascadeArrays
        One cascade level.
    stretch : (first, last)
        Samples, last excluded.
    reached : uint16, shape (trees, samples)
        Output: index of the leaf within its tree.
    """
    pool = level.anchors.shape[0]
    for first in range(stretch[0], stretch[1], _BATCH):
        count = min(_BATCH, stretch[1] - first)
        intensities = np.zeros((count, pool), dtype=np.float32)
        for place in range(count):
            sample = first + place
            image = samples.image_of_sample[sample]
            height, width = samples.image_sizes[image, 0], samples.image_sizes[image, 1]
            start = samples.image_starts[image]
            grey = samples.pixels[start : start + height * width].reshape(height, width)
            face = (samples.boxes[sample], shapes[sample])
            read_pool_pixels(grey, face, level, (0, pool), intensities[place])
        first_split = 0
        for tree in range(level.tree_depths.shape[0]):
            splits = int((1 << np.int64(level.tree_depths[tree])) - 1)
            for place in range(count):
                node = 0
                while node < splits:
                    split = first_split + node
                    difference = (
                        intensities[place, level.split_idx1[split]]
                        - intensities[place, level.split_idx2[split]]
                    )
                    node = 2 * node + (1 if difference > level.split_thresholds[split] else 2)
                reached[tree, first + place] = np.uint16(node - splits)
            first_split += splits


@compiled
def count_samples(reach: LevelReach) -> None:
    """Add the number of samples in each leaf of a level to its counts."""
    reached, counts = reach.leaves, reach.counts
    for tree in range(reached.shape[0]):
        first = reach.first_leaves[tree]
        for sample in range(reached.shape[1]):
            counts[first + reached[tree, sample]] += np.uint32(1)


@compiled
def keep_leaves_back(reach: LevelReach, starts: int, min_faces: int) -> None:
    """Set the counts of leaves that would reveal too much about single faces to zero.

    Withheld are leaves that fewer than `min_faces` faces reach. The sum over all leaves of a tree
    may be known from another tree, so the withheld leaves of a tree must together cover at least
    `min_faces` faces: its smallest other leaves are withheld as well until they do.

    `starts`: number of samples for each face; the samples of a face are consecutive.
    """
    reached, first_leaves, counts = reach
    for tree in range(reached.shape[0]):
        first = first_leaves[tree]
        leaves = first_leaves[tree + 1] - first
        faces = np.zeros(leaves, dtype=np.int64)
        latest = np.full(leaves, -1, dtype=np.int64)
        for sample in range(reached.shape[1]):
            leaf = np.int64(reached[tree, sample])
            if latest[leaf] != sample // starts:
                latest[leaf] = sample // starts
                faces[leaf] += 1
        # By faces, not samples: all starts of a face are one person's.
        sent = faces >= min_faces
        while True:
            together, face, smallest = 0, -1, -1
            for sample in range(reached.shape[1]):
                if not sent[np.int64(reached[tree, sample])] and sample // starts != face:
                    face = sample // starts
                    together += 1
            for row in range(leaves):
                if sent[row] and (smallest < 0 or faces[row] < faces[smallest]):
                    smallest = row
            # All leaves are sent, or enough is kept back, or nothing is left to keep back.
            if together == 0 or together >= min_faces or smallest < 0:
                break
            sent[smallest] = False
        for row in range(leaves):
            if not sent[row]:
                counts[first + row] = np.uint32(0)


@compiled
def add_leaves(
    reach: LevelReach, leaves: Float32, columns: tuple[int, int], shapes: Float32
) -> None:
    """Move samples by the leaves that they reach, in the order of a predictor.

    Parameters
    ----------
    leaves : float32, shape (leaves, 2 * parts)
    columns : (first, last)
        The block's columns of `leaves`, at most `BLOCK`.
    shapes : float32, shape (samples, BLOCK)
        The block's coordinates; changed in place.
    """
    reached, first_leaves = reach.leaves, reach.first_leaves
    first_column, width = columns[0], columns[1] - columns[0]
    table = np.zeros((_most_leaves(first_leaves), BLOCK), dtype=np.float32)
    for tree in range(reached.shape[0]):
        first = first_leaves[tree]
        for leaf in range(first_leaves[tree + 1] - first):
            for column in range(width):
                table[leaf, column] = leaves[first + leaf, first_column + column]
        for sample in range(reached.shape[1]):
            reached_leaf = np.uint32(reached[tree, sample])
            for column in range(BLOCK):
                shapes[sample, column] += table[reached_leaf, column]


@compiled
def fit_leaves(
    reach: LevelReach, nu: float, columns: tuple[int, int], residuals: Float32, changes: Float32
) -> None:
    """Pass over the trees once, moving each leaf towards the mean residual of its samples.

    Parameters
    ----------
    nu : float
        A leaf with a count is moved by ``nu * sum of residuals / (count + 1)``.
    columns : (first, last)
        The block's columns of `changes`.
    residuals : float32, shape (samples, BLOCK)
        Reduced by each tree's correction.
    changes : float32, shape (leaves, 2 * parts)
        Output, in the block's columns.
    """
    reached, first_leaves, counts = reach
    first_column, width = columns[0], columns[1] - columns[0]
    table = np.zeros((_most_leaves(first_leaves), BLOCK), dtype=np.float32)
    for tree in range(reached.shape[0]):
        first = first_leaves[tree]
        leaf_count = first_leaves[tree + 1] - first
        table[:leaf_count] = np.float32(0)
        for sample in range(reached.shape[1]):
            reached_leaf = np.uint32(reached[tree, sample])
            for column in range(BLOCK):
                table[reached_leaf, column] += residuals[sample, column]
        for leaf in range(leaf_count):
            count = counts[first + leaf]
            # Shrunk towards zero for leaves with few samples, whose mean says little.
            factor = np.float32(nu / (count + 1.0)) if count > 0 else np.float32(0)
            for column in range(BLOCK):
                table[leaf, column] *= factor
            for column in range(width):
                changes[first + leaf, first_column + column] = table[leaf, column]
        for sample in range(reached.shape[1]):
            reached_leaf = np.uint32(reached[tree, sample])
            for column in range(BLOCK):
                residuals[sample, column] -= table[reached_leaf, column]


@compiled
def _most_leaves(first_leaves: Int64) -> int:
    most = 1
    for tree in range(first_leaves.shape[0] - 1):
        most = max(most, first_leaves[tree + 1] - first_leaves[tree])
    return most
