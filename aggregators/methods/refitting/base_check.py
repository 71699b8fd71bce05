"""Check that the trees of a base look as training makes them.

A base can be built to photograph the faces that it is fitted to: trees that compare one pixel
with a black place outside of the image, at many thresholds, have leaf sums that say how bright
the pixel is. These checks find such a base if it was built without care. Trees that were made to
look like trained ones pass; against those, it only helps to know where a base comes from.

dlib's trainer draws thresholds between -64 and 64, pixels from the region of the mean landmarks
or the box (each stored with its nearest landmark), and pairs of pixels that lie near each other
(`randomly_generate_split_feature` in dlib/image_processing/shape_predictor_trainer.h). Merging,
thinning and refining keep all of that. dlib's own models of 5 and 68 landmarks have a mean
distance in pairs of 0.17 to 0.18 box sizes, and no pixel in more than 4 % of a level's splits.
"""

from collections.abc import Iterator

import numpy as np

from aggregators.models import CascadeLevel, Float64, ShapePredictor

_LARGEST_THRESHOLD = 64.0
_PIXEL_MARGIN = 0.5
_SHAPE_MARGIN = 1.0
_ANCHOR_TOLERANCE = 1e-3
_LARGEST_MEAN_DISTANCE = 0.4
_LARGEST_SHARE_OF_PIXEL = 0.3
_FEWEST_SPLITS = 30
"""With fewer splits in a level, one pixel may be in most by chance."""
_LARGEST_SHARE_OF_IDLE_TREES = 0.1


def find_untrained_features(forest: ShapePredictor) -> list[str]:
    """Return the differences of a landmark model from trained ones; empty if there are none.

    `forest`: trained with dlib, or merged, thinned or refined from such models.
    """
    shape = forest.initial_shape.astype(np.float64)
    if shape.min() < -_SHAPE_MARGIN or shape.max() > 1 + _SHAPE_MARGIN:
        return ["its mean landmarks lie farther than a box width from the face"]
    features: dict[str, None] = {}
    for level in forest.levels():
        features |= dict.fromkeys(_odd_pixels(level, shape))
        features |= dict.fromkeys(_odd_splits(level, shape))
    if idle := _idle_trees(forest):
        features[idle] = None
    return list(features)


def _odd_pixels(level: CascadeLevel, shape: Float64) -> Iterator[str]:
    places = _places(level, shape)
    used = np.union1d(level.split_idx1, level.split_idx2)
    low = np.minimum(shape.min(axis=0), 0) - _PIXEL_MARGIN
    high = np.maximum(shape.max(axis=0), 1) + _PIXEL_MARGIN
    if ((places[used] < low) | (places[used] > high)).any():
        yield f"it reads pixels farther than {_PIXEL_MARGIN} box widths from the face"
    nearest = np.full(len(used), np.inf)
    for landmark in shape:
        np.minimum(nearest, np.hypot(*(places[used] - landmark).T), out=nearest)
    offsets = np.hypot(*level.deltas[used].astype(np.float64).T)
    if (offsets > nearest + _ANCHOR_TOLERANCE).any():
        yield "it reads pixels that do not belong to their nearest landmark"


def _odd_splits(level: CascadeLevel, shape: Float64) -> Iterator[str]:
    splits = len(level.split_thresholds)
    if splits == 0:
        return
    if np.abs(level.split_thresholds).max() > _LARGEST_THRESHOLD:
        yield f"its splits have thresholds beyond {_LARGEST_THRESHOLD:g} grey levels"
    if (level.split_idx1 == level.split_idx2).any():
        yield "its splits compare a pixel with itself"
    places = _places(level, shape)
    pairs = places[level.split_idx1] - places[level.split_idx2]
    if splits >= _FEWEST_SPLITS and np.hypot(*pairs.T).mean() > _LARGEST_MEAN_DISTANCE:
        yield (
            f"its splits compare pixels more than {_LARGEST_MEAN_DISTANCE} box widths apart on "
            "average"
        )
    uses = np.bincount(level.split_idx1).max(), np.bincount(level.split_idx2).max()
    if splits >= _FEWEST_SPLITS and max(uses) > _LARGEST_SHARE_OF_PIXEL * splits:
        yield f"one pixel is in more than {_LARGEST_SHARE_OF_PIXEL:.0%} of the splits of a level"


def _idle_trees(forest: ShapePredictor) -> str:
    sizes = np.left_shift(np.int64(1), forest.tree_depths.astype(np.int64))
    first_leaves = np.cumsum(sizes) - sizes
    leaves = forest.leaves.reshape(len(forest.leaves), -1)
    spread = np.maximum.reduceat(leaves, first_leaves) - np.minimum.reduceat(leaves, first_leaves)
    idle = float((spread == 0).all(axis=1).mean())
    if idle <= _LARGEST_SHARE_OF_IDLE_TREES:
        return ""
    return f"{idle:.0%} of its trees have equal leaves and so have no use"


def _places(level: CascadeLevel, shape: Float64) -> Float64:
    """Return where the pool's pixels lie on the mean face, in box coordinates."""
    places: Float64 = shape[level.anchors] + level.deltas
    return places
