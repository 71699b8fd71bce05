"""Model contents as plain arrays, whatever file they came from.

The formats read and write these, the methods combine them, the predictors run them.
All arrays are C-contiguous and should be treated as read-only.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

Float32 = NDArray[np.float32]
Float64 = NDArray[np.float64]
UInt32 = NDArray[np.uint32]
Int64 = NDArray[np.int64]
UInt8 = NDArray[np.uint8]


@dataclass(frozen=True, eq=False)
class FhogDetector:
    """A HOG-SVM object detector (dlib's ``object_detector<scan_fhog_pyramid>``).

    Attributes
    ----------
    window_width_px, window_height_px : int
        Size of the sliding window before it is rounded to cells.
    cell_size_px, padding_cells : int
        HOG cell size, and the border of cells added around the window.
    max_pyramid_levels, min_layer_width_px, min_layer_height_px : int
        Limits of the image pyramid.
    nuclear_norm_strength : float
        Regularisation used in training; kept as the file has it.
    overlap_iou, overlap_covered : float
        Non-maximum suppression: two boxes are the same object when their intersection over
        union, or the covered fraction of either one, exceeds these.
    weights : float64, shape (detectors, dimensions)
        One filter a row (31 planes of cells).
    thresholds : float64, shape (detectors,)
        A window is an object when ``weights @ features - threshold > 0``.
    upsampling : int or None
        None for a file written by C++ or ``fhog_object_detector.save``; the number of times the
        image is doubled first, for a file written by Python's ``simple_object_detector.save``.
    simple_version : int
        Version number that goes with `upsampling` (dlib writes 1).
    """

    window_width_px: int
    window_height_px: int
    cell_size_px: int
    padding_cells: int
    max_pyramid_levels: int
    min_layer_width_px: int
    min_layer_height_px: int
    nuclear_norm_strength: float
    overlap_iou: float
    overlap_covered: float
    weights: Float64
    thresholds: Float64
    upsampling: int | None = None
    simple_version: int = 1

    @property
    def detector_count(self) -> int:
        return int(self.weights.shape[0])

    @property
    def dimensions(self) -> int:
        return int(self.weights.shape[1])


@dataclass(frozen=True, eq=False)
class CascadeLevel:
    """One level of a `ShapePredictor`: views into its flat arrays.

    Attributes
    ----------
    tree_depths : uint8, shape (trees,)
        A tree of depth d has ``2**d`` leaves and ``2**d - 1`` splits in heap order.
    split_idx1, split_idx2 : uint32, shape (splits,)
        Pixel-pool indices; go left (child 2i+1) when
        ``pixel[idx1] - pixel[idx2] > threshold``.
    split_thresholds : float32, shape (splits,)
    leaves : float32, shape (leaves, parts, 2)
        What a reached leaf adds to the shape, in box coordinates.
    anchors : uint32, shape (pool,)
        Landmark to which each pool pixel is tied.
    deltas : float32, shape (pool, 2)
        Offset of each pool pixel from its landmark, (x, y) in box coordinates.
    """

    tree_depths: UInt8
    split_idx1: UInt32
    split_idx2: UInt32
    split_thresholds: Float32
    leaves: Float32
    anchors: UInt32
    deltas: Float32

    @property
    def tree_count(self) -> int:
        return int(self.tree_depths.shape[0])

    @property
    def pool_size(self) -> int:
        return int(self.anchors.shape[0])


@dataclass(frozen=True, eq=False)
class ShapePredictor:
    """An ERT landmark model (dlib's ``shape_predictor``), all levels in flat arrays.

    Trees may differ in depth (a merge of unlike sub-models), hence no rectangular arrays.

    Attributes
    ----------
    initial_shape : float32, shape (parts, 2)
        (x, y) in box coordinates: (0, 0) top left corner, (1, 1) bottom right corner.
    trees_per_level : int64, shape (levels,)
    pool_per_level : int64, shape (levels,)
    tree_depths : uint8, shape (all trees,)
    split_idx1, split_idx2 : uint32, shape (all splits,)
        Indices into the pixel pool of the tree's own level.
    split_thresholds : float32, shape (all splits,)
    leaves : float32, shape (all leaves, parts, 2)
    anchors : uint32, shape (all pool pixels,)
    deltas : float32, shape (all pool pixels, 2)
    """

    initial_shape: Float32
    trees_per_level: Int64
    pool_per_level: Int64
    tree_depths: UInt8
    split_idx1: UInt32
    split_idx2: UInt32
    split_thresholds: Float32
    leaves: Float32
    anchors: UInt32
    deltas: Float32

    @property
    def part_count(self) -> int:
        return int(self.initial_shape.shape[0])

    @property
    def level_count(self) -> int:
        return int(self.trees_per_level.shape[0])

    @property
    def tree_count(self) -> int:
        return int(self.tree_depths.shape[0])

    def levels(self) -> Iterator[CascadeLevel]:
        """Yield each cascade level as views (nothing is copied)."""
        leaf_counts = np.left_shift(np.int64(1), self.tree_depths.astype(np.int64))
        tree_ends = np.cumsum(self.trees_per_level)
        leaf_ends = np.concatenate([[0], np.cumsum(leaf_counts)])
        pool_ends = np.cumsum(self.pool_per_level)
        for level in range(self.level_count):
            first_tree = int(tree_ends[level] - self.trees_per_level[level])
            last_tree = int(tree_ends[level])
            first_leaf, last_leaf = int(leaf_ends[first_tree]), int(leaf_ends[last_tree])
            splits = slice(first_leaf - first_tree, last_leaf - last_tree)
            pool = slice(int(pool_ends[level] - self.pool_per_level[level]), int(pool_ends[level]))
            yield CascadeLevel(
                tree_depths=self.tree_depths[first_tree:last_tree],
                split_idx1=self.split_idx1[splits],
                split_idx2=self.split_idx2[splits],
                split_thresholds=self.split_thresholds[splits],
                leaves=self.leaves[first_leaf:last_leaf],
                anchors=self.anchors[pool],
                deltas=self.deltas[pool],
            )

    @classmethod
    def from_levels(cls, initial_shape: Float32, levels: list[CascadeLevel]) -> ShapePredictor:
        """Join levels into one model (copies)."""
        return cls(
            initial_shape=np.ascontiguousarray(initial_shape, dtype=np.float32),
            trees_per_level=np.array([level.tree_count for level in levels], dtype=np.int64),
            pool_per_level=np.array([level.pool_size for level in levels], dtype=np.int64),
            tree_depths=np.concatenate([level.tree_depths for level in levels]),
            split_idx1=np.concatenate([level.split_idx1 for level in levels]),
            split_idx2=np.concatenate([level.split_idx2 for level in levels]),
            split_thresholds=np.concatenate([level.split_thresholds for level in levels]),
            leaves=np.concatenate([level.leaves for level in levels]),
            anchors=np.concatenate([level.anchors for level in levels]),
            deltas=np.concatenate([level.deltas for level in levels]),
        )


@dataclass(frozen=True, eq=False)
class ForestEnsemble:
    """Several landmark models run side by side, their results averaged (WBA, final form).

    Attributes
    ----------
    members : tuple of ShapePredictor
        All with the same number of parts and the same initial shape.
    weights : float64, shape (members,)
        Finite and positive; normalised when used.
    """

    members: tuple[ShapePredictor, ...]
    weights: Float64

    @property
    def part_count(self) -> int:
        return self.members[0].part_count


@dataclass(frozen=True)
class TensorInfo:
    """Type (safetensors' name, ``"F32"``) and shape of one entry of a state dict."""

    dtype: str
    shape: tuple[int, ...]


@dataclass(frozen=True, eq=False)
class StateDict:
    """The parameters of a network, by name.

    Attributes
    ----------
    tensors : mapping of str to array
        Entries load when they are asked for, so that a model larger than memory can be merged
        one entry at a time. bfloat16 entries arrive as float32; `infos` has the stored type.
    infos : mapping of str to TensorInfo
    metadata : mapping of str to str
        The file's own remarks (``architecture``, ``architecture_version`` ...).
    """

    tensors: Mapping[str, NDArray[np.generic]]
    infos: Mapping[str, TensorInfo]
    metadata: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, eq=False)
class LeafContribution:
    """What one site sends in a round of leaf refinement: sums over its samples, and nothing else.

    Attributes
    ----------
    changes : float32, shape (leaves, parts, 2)
        By how much the site would move each leaf of the (thinned) base, in box coordinates;
        zero for leaves with too few samples.
    counts : uint32, shape (leaves,)
        Samples of the site that reach each leaf; zero for leaves with too few.
    base_digest : str
        `forest_digest` of the base as it was before thinning.
    settings : mapping of str to JSON values
        How it was fitted (`RefitSettings` without the seed, which stays at the site).
    """

    changes: Float32
    counts: UInt32
    base_digest: str
    settings: Mapping[str, Any]

    @property
    def part_count(self) -> int:
        return int(self.changes.shape[1])


Model = FhogDetector | ShapePredictor | ForestEnsemble | StateDict

MergeInput = Model | LeafContribution
"""What methods combine: models, and what sites send to change one."""

ModelKind = Literal["hog-svm", "ert", "network"]
"""What a model is for: finding faces, placing landmarks, or a network (gaze)."""

KIND_WORDS: Mapping[type, str] = {
    FhogDetector: "HOG-SVM detector",
    ShapePredictor: "landmark model",
    ForestEnsemble: "WBA ensemble",
    StateDict: "network",
    LeafContribution: "leaf-refit contribution",
}
"""What to call them in messages."""
