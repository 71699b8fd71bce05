"""The contents of models as arrays, independent of the file format.

The formats read and write these, the methods combine them, the predictors run them.
All arrays are C-contiguous and must not be changed.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, fields
from typing import Any, Literal, cast

import numpy as np
from numpy.typing import NDArray

Float32 = NDArray[np.float32]
Float64 = NDArray[np.float64]
UInt32 = NDArray[np.uint32]
Int64 = NDArray[np.int64]
UInt8 = NDArray[np.uint8]


class _Described:
    """A dataclass that a notebook shows on a few lines: arrays by type and shape only."""

    def __repr__(self) -> str:
        values = ((field.name, getattr(self, field.name)) for field in fields(cast(Any, self)))
        text = ", ".join(f"{name}={_words_of(value)}" for name, value in values)
        return f"{type(self).__name__}({text})"


def _words_of(value: object) -> str:
    if isinstance(value, np.ndarray) and value.size > 4:
        return f"<{value.dtype} {value.shape}>"
    if isinstance(value, Mapping) and not isinstance(value, dict):
        return f"<{len(value)} entries>"
    return repr(value)


@dataclass(frozen=True, eq=False, repr=False)
class FhogDetector(_Described):
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
        Regularisation used in training; not used afterwards.
    overlap_iou, overlap_covered : float
        Non-maximum suppression: two boxes are one object when their intersection over union,
        or the covered fraction of either one, exceeds these.
    weights : float64, shape (detectors, dimensions)
        One filter per row (31 planes of cells).
    thresholds : float64, shape (detectors,)
        A window is an object when ``weights @ features - threshold > 0``.
    upsampling : int or None
        How often an image is doubled first, in a file of Python's ``simple_object_detector``;
        None in a file of C++ or ``fhog_object_detector.save``.
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

    @property
    def detector_count(self) -> int:
        return int(self.weights.shape[0])

    @property
    def dimensions(self) -> int:
        return int(self.weights.shape[1])


@dataclass(frozen=True, eq=False, repr=False)
class CascadeLevel(_Described):
    """One level of a `ShapePredictor`, as views of its arrays.

    Attributes
    ----------
    tree_depths : uint8, shape (trees,)
        A tree of depth d has ``2**d`` leaves and ``2**d - 1`` splits in heap order.
    split_idx1, split_idx2 : uint32, shape (splits,)
        Pixel-pool indices; child 2i+1 follows split i when
        ``pixel[idx1] - pixel[idx2] > threshold``, child 2i+2 otherwise.
    split_thresholds : float32, shape (splits,)
    leaves : float32, shape (leaves, parts, 2)
        Added to the shape when the leaf is reached, in box coordinates.
    anchors : uint32, shape (pool,)
        Landmark that each pool pixel moves with.
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


@dataclass(frozen=True, eq=False, repr=False)
class ShapePredictor(_Described):
    """An ERT landmark model (dlib's ``shape_predictor``), all levels in flat arrays.

    Trees may differ in depth, so the arrays are not rectangular.

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
        """Yield each cascade level as views."""
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
    def from_levels(cls, initial_shape: Float32, levels: list[CascadeLevel]) -> "ShapePredictor":
        """Join copies of levels into one model."""
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


@dataclass(frozen=True, eq=False, repr=False)
class ForestEnsemble(_Described):
    """Several landmark models that predict the mean of their results (WBA, final form)."""

    members: tuple[ShapePredictor, ...]
    """All with the same number of parts and the same initial shape."""
    weights: Float64
    """Of shape (members,): finite and positive; normalised when used."""

    @property
    def part_count(self) -> int:
        return self.members[0].part_count


@dataclass(frozen=True)
class TensorInfo:
    """Type (safetensors' name, ``"F32"``) and shape of one entry of a state dict."""

    dtype: str
    shape: tuple[int, ...]


@dataclass(frozen=True, eq=False, repr=False)
class StateDict(_Described):
    """The parameters of a network, by name.

    Attributes
    ----------
    tensors : mapping of str to array
        Entries are loaded when used, so models larger than memory can be merged. bfloat16
        entries are returned as float32; `infos` has the stored type.
    infos : mapping of str to TensorInfo
    metadata : mapping of str to str
        Texts stored in the file (``architecture``, ``architecture_version`` ...).
    """

    tensors: Mapping[str, NDArray[np.generic]]
    infos: Mapping[str, TensorInfo]
    metadata: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, eq=False, repr=False)
class LeafContribution(_Described):
    """One site's part in a round of leaf refinement: sums over its samples.

    Attributes
    ----------
    changes : float32, shape (leaves, parts, 2)
        Change of each leaf of the (thinned) base, in box coordinates; zero for leaves with too
        few samples.
    counts : uint32, shape (leaves,)
        Samples of the site that reach each leaf; zero for leaves with too few.
    base_digest : str
        `forest_digest` of the base before thinning.
    settings : mapping of str to JSON values
        `RefitSettings` without the seed, which stays at the site.
    """

    changes: Float32
    counts: UInt32
    base_digest: str
    settings: Mapping[str, Any]

    @property
    def part_count(self) -> int:
        return int(self.changes.shape[1])


@dataclass(frozen=True, eq=False)
class ClassStatistics:
    """A site's statistics of its classes in rounds of FedPAC; features are the last layer's inputs.

    Attributes
    ----------
    counts : int64, shape (classes,)
        Numbers of samples (of clips: frames); 0 for classes that the site does not report.
    means : float32, shape (classes, features)
        Mean features; zeros for these classes.
    variance : float
        ``(mean(|f|^2) - sum(p_c^2 |means_c|^2)) / n``, with shares p_c of n samples; at least 0.
    """

    counts: Int64
    means: Float32
    variance: float


@dataclass(frozen=True, eq=False, repr=False)
class NetworkContribution(_Described):
    """One site's part in a round of federated training: its network after local training.

    Attributes
    ----------
    network : StateDict
        Entries as in the base, with the same names, types and shapes.
    holds : str
        Whether floating-point entries are the trained ``"values"``, or ``"differences"`` from
        the base. Other entries are always values.
    samples : int
        Number of training samples, as the site states it; at least 1.
    base_digest : str
        SHA-256 of the base's file.
    settings : mapping of str to JSON values
        How the site trained (epochs, learning rate ...); methods ignore it, and a pool compares
        it with the settings of the round.
    shared : mapping of str to bool array, optional
        By floating-point entry, in its shape: which numbers the site shares. The others are
        personal, and zeros in `network`. Entries that are not named are shared in full.
    statistics : ClassStatistics or None
        Of methods that reply to each site.
    """

    network: StateDict
    holds: Literal["values", "differences"]
    samples: int
    base_digest: str
    settings: Mapping[str, Any] = field(default_factory=dict)
    shared: Mapping[str, NDArray[np.bool_]] = field(default_factory=dict)
    statistics: ClassStatistics | None = None


@dataclass(frozen=True, eq=False, repr=False)
class OptimiserState(_Described):
    """The state that a method keeps with the network of a round, for the next round."""

    moments: StateDict
    """Of server optimisers (``fedadam`` ...), for each trained entry of the network, one entry
    ``MOMENT/NAME`` per moment. Of ``fedpac``, the prototypes and the replies to the sites
    (`aggregators.methods.networks.replies`).
    """
    method: str
    """The method that made it."""
    network_digest: str
    """SHA-256 of the network's file that was made with it: the base of the next round."""
    unit: float = 0.0
    """Root mean square of the first round's mean update, in which ``eta`` and ``tau`` are given; 0
    for methods without them."""


Model = FhogDetector | ShapePredictor | ForestEnsemble | StateDict

MergeInput = Model | LeafContribution | NetworkContribution | OptimiserState
"""The inputs of methods."""

ModelKind = Literal["hog-svm", "ert", "network"]
"""Face detector, landmark model, or network (gaze)."""

KIND_WORDS: Mapping[type, str] = {
    FhogDetector: "HOG-SVM detector",
    ShapePredictor: "landmark model",
    ForestEnsemble: "WBA ensemble",
    StateDict: "network",
    LeafContribution: "leaf-refit contribution",
    NetworkContribution: "network contribution",
    OptimiserState: "optimiser state",
}
"""Names of the kinds in messages."""
