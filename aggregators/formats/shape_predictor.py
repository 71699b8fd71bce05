"""dlib's shape predictor (`.dat`): a cascade of regression trees that places landmarks.

====================  ===================================================================
item                  content
====================  ===================================================================
version               integer, 1
initial shape         column of 2 * parts floats: x0 y0 x1 y1 ..., in the box's coordinates
forests               vector of levels; a level is a vector of trees; a tree is a vector of
                      splits {integer idx1, integer idx2, float threshold} and a vector of
                      leaves, each a column of 2 * parts floats
anchors               vector of levels, each a vector of integers
deltas                vector of levels, each a vector of pairs of floats
====================  ===================================================================

A tree with L leaves, L a power of two, has L - 1 splits in heap order.

`find_forest_problem` and `find_number_problem` check the arrays of a landmark model from any file
format.
"""

from collections.abc import Iterator
from dataclasses import dataclass, fields
from typing import Any

import numpy as np
from numpy.typing import NDArray

from aggregators.errors import ConversionError, FormatError
from aggregators.formats import dlib_stream
from aggregators.formats.contract import ModelFormat
from aggregators.models import CascadeLevel, Float32, ShapePredictor

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
    """The first invalid array of a model."""

    field: str
    actual: str
    expected: str

    def __str__(self) -> str:
        return f"{self.field}: found {self.actual}, expected {self.expected}"


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
        expected = np.dtype(FIELD_TYPES[item.name])
        if array.dtype != expected:
            return Problem(item.name, f"type {array.dtype}", str(expected))
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


VERSION = 1

# Order of the constants TREE_COUNT .. LEAF_VALUE in dlib_kernels.
_WHAT = (
    "number of trees of level {level}",
    "number of splits of tree {tree} of level {level}",
    "pixel index of a split of tree {tree} of level {level}",
    "threshold of a split of tree {tree} of level {level}",
    "number of leaves of tree {tree} of level {level}",
    "rows of a leaf of tree {tree} of level {level}",
    "columns of a leaf of tree {tree} of level {level}",
    "leaf value of tree {tree} of level {level}",
)


class ShapePredictorFormat(ModelFormat[ShapePredictor]):
    """The entry in `FORMATS`."""

    name = "dlib-shape-predictor"
    suffixes = (".dat",)
    summary = "landmark model of dlib (shape_predictor)"
    model_types = (ShapePredictor,)

    def recognises(self, head: bytes) -> bool:
        # Version 1, then the negative row count of a matrix.
        return head[:2] == b"\x01\x01" and len(head) > 2 and 0x81 <= head[2] <= 0x88

    def decode(self, data: dlib_stream.Buffer) -> ShapePredictor:
        """Read the bytes of a `.dat` file.

        Counts are checked against the remaining bytes before arrays are allocated, so that memory
        beyond `data` stays below one and a half times its length.
        """
        reader = dlib_stream.StreamReader(data)
        reader.integer("version of the shape predictor", VERSION, VERSION)
        start = reader.offset
        coordinates = reader.column_rows("initial shape", 4)
        if coordinates < 2 or coordinates % 2:
            reader.fail(
                "initial shape, rows",
                start,
                coordinates,
                "an even number of at least 2 (x and y of each part)",
            )
        initial_shape = reader.float32_array("initial shape", coordinates)
        forests = _read_forests(reader, coordinates)
        pool_per_level, anchors, deltas = _read_pools(
            reader, coordinates // 2, forests["highest_index"]
        )
        reader.finish("end of the shape predictor")
        return ShapePredictor(
            initial_shape=initial_shape.reshape(-1, 2),
            trees_per_level=forests["trees_per_level"],
            pool_per_level=pool_per_level,
            tree_depths=forests["depths"],
            split_idx1=forests["idx1"],
            split_idx2=forests["idx2"],
            split_thresholds=forests["thresholds"],
            leaves=forests["leaves"].reshape(-1, coordinates // 2, 2),
            anchors=anchors,
            deltas=deltas,
        )

    def pieces(self, model: ShapePredictor) -> Iterator[dlib_stream.Buffer]:
        """Yield the bytes of a `.dat` file, one cascade level at a time.

        Arrays that do not fit together are refused before the first bytes, infinite numbers and NaN
        at their level.
        """
        problem = find_forest_problem(model)
        if problem is not None:
            raise ConversionError(f"invalid landmark model: {problem}")
        return _encode_checked(model)


def _read_forests(reader: dlib_stream.StreamReader, coordinates: int) -> dict[str, NDArray[Any]]:
    """Read the cascade's trees into arrays as long as the rest of the file could fill.

    Unused pages cost nothing; the arrays are shortened to their content at the end.
    """
    kernels = dlib_stream.load_kernels()
    leaf_bytes = 4 + 4 * coordinates
    level_count = _read_level_count(reader, "forests", 2 + 4 + leaf_bytes)
    most_leaves = reader.remaining // leaf_bytes
    most_splits = reader.remaining // (leaf_bytes + 8)
    arrays: dict[str, NDArray[Any]] = {
        "trees_per_level": np.zeros(level_count, dtype=np.int64),
        # Largest pixel index of each level, and its offset in the file.
        "highest_index": np.full((level_count, 2), -1, dtype=np.int64),
        "depths": np.empty(reader.remaining // (leaf_bytes + 4), dtype=np.uint8),
        "idx1": np.empty(most_splits, dtype=np.uint32),
        "idx2": np.empty(most_splits, dtype=np.uint32),
        "thresholds": np.empty(most_splits, dtype=np.float32),
        "leaves": np.empty(most_leaves * coordinates, dtype=np.float32),
    }
    report = dlib_stream.new_report()
    after, trees, splits, leaves = kernels.read_forests(
        reader.bytes,
        reader.offset,
        reader.end,
        coordinates,
        *arrays.values(),
        kernels.POWERS_OF_TWO,
        report,
    )
    if after < 0:
        what = _WHAT[report[kernels.FIELD]].format(
            level=report[kernels.LEVEL], tree=report[kernels.TREE]
        )
        raise dlib_stream.kernel_error(report, what, reader.end)
    reader.offset = int(after)
    arrays["depths"].resize(trees, refcheck=False)
    arrays["leaves"].resize(leaves * coordinates, refcheck=False)
    for name in ("idx1", "idx2", "thresholds"):
        arrays[name].resize(splits, refcheck=False)
    return arrays


def _read_level_count(reader: dlib_stream.StreamReader, what: str, item_bytes: int) -> int:
    start = reader.offset
    levels = reader.count(f"number of levels of {what}", item_bytes, minimum=1)
    if levels > MOST_LEVELS:
        reader.fail(f"number of levels of {what}", start, levels, f"1 to {MOST_LEVELS}")
    return levels


def _read_pools(
    reader: dlib_stream.StreamReader, parts: int, highest_index: NDArray[np.int64]
) -> tuple[NDArray[np.int64], NDArray[np.uint32], Float32]:
    """Read anchors and deltas, and check the splits' pixel indices against them."""
    level_count = highest_index.shape[0]
    _require_levels(reader, "anchors", level_count)
    anchors = []
    for level in range(level_count):
        # An anchor takes at least two bytes, and its delta eight.
        size = reader.count(f"number of anchors of level {level}", 10)
        if highest_index[level, 0] >= size:
            raise FormatError(
                f"pixel index of a split of level {level}",
                int(highest_index[level, 1]),
                str(highest_index[level, 0]),
                f"below {size}, the size of the level's pixel pool",
            )
        anchors.append(reader.index_array(f"anchor of level {level}", size, parts))
    _require_levels(reader, "deltas", level_count)
    deltas = []
    for level in range(level_count):
        start = reader.offset
        size = reader.count(f"number of deltas of level {level}", 8)
        if size != anchors[level].shape[0]:
            reader.fail(
                f"number of deltas of level {level}",
                start,
                size,
                f"{anchors[level].shape[0]}, the number of anchors",
            )
        deltas.append(reader.float32_array(f"delta of level {level}", 2 * size))
    return (
        np.array([array.shape[0] for array in anchors], dtype=np.int64),
        np.concatenate(anchors),
        np.concatenate(deltas).reshape(-1, 2),
    )


def _require_levels(reader: dlib_stream.StreamReader, what: str, level_count: int) -> None:
    start = reader.offset
    levels = reader.count(f"number of levels of {what}", 2)
    if levels != level_count:
        reader.fail(
            f"number of levels of {what}",
            start,
            levels,
            f"{level_count}, the number of levels of the forests",
        )


def _encode_checked(model: ShapePredictor) -> Iterator[dlib_stream.Buffer]:
    coordinates = 2 * model.part_count
    writer = dlib_stream.StreamWriter()
    writer.integers(VERSION, -coordinates, -1)
    writer.floats("initial shape", model.initial_shape)
    writer.integers(model.level_count)
    yield writer.take()
    for number, level in enumerate(model.levels()):
        yield _encode_trees(level, number, coordinates)
    writer.integers(model.level_count)
    for level in model.levels():
        writer.integers(level.pool_size)
        writer.indices(level.anchors)
    writer.integers(model.level_count)
    for number, level in enumerate(model.levels()):
        writer.integers(level.pool_size)
        writer.floats(f"deltas of level {number}", level.deltas)
    yield writer.take()


def _encode_trees(level: CascadeLevel, number: int, coordinates: int) -> dlib_stream.Buffer:
    kernels = dlib_stream.load_kernels()
    head = dlib_stream.StreamWriter()
    head.integers(level.tree_count)
    count = head.take()
    splits, leaves = level.split_idx1.shape[0], level.leaves.shape[0]
    # Counts take at most 9 bytes, indices 5, floats 6, a leaf's size 9 + 2; stores write 8 more.
    most_bytes = (
        len(count) + 18 * level.tree_count + 16 * splits + (11 + 6 * coordinates) * leaves + 16
    )
    out = np.empty(most_bytes, dtype=np.uint8)
    out[: len(count)] = np.frombuffer(count, dtype=np.uint8)
    report = dlib_stream.new_report()
    after = kernels.write_trees(
        out,
        len(count),
        coordinates,
        dlib_stream.flat_view(level.tree_depths, np.uint8),
        dlib_stream.flat_view(level.split_idx1, np.uint32),
        dlib_stream.flat_view(level.split_idx2, np.uint32),
        dlib_stream.flat_view(level.split_thresholds, np.float32).view(np.uint32),
        dlib_stream.flat_view(level.leaves, np.float32).view(np.uint32),
        report,
    )
    if after < 0:
        raise dlib_stream.not_finite(
            _WHAT[report[kernels.FIELD]].format(level=number, tree=report[kernels.TREE])
        )
    return out[: int(after)]
