"""Fitting the leaves of a forest to one site's samples."""

import os
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeVar

import numpy as np

from aggregators.errors import IncompatibleModelsError, InconsistentModelError
from aggregators.formats.shape_predictor import find_forest_problem
from aggregators.methods.contract import Progress, no_progress
from aggregators.methods.refitting.contribution_file import RefitSettings, forest_digest, thin_base
from aggregators.methods.refitting.faces import SiteFaces, draw_samples
from aggregators.models import CascadeLevel, Float32, LeafContribution, ShapePredictor, UInt32

if TYPE_CHECKING:
    from aggregators.methods.refitting.kernels import LevelReach

_SAMPLES_AT_ONCE = 256
_MOST_THREADS = 64
_FARTHEST = 1.0
"""Landmarks farther than this from the box, in box sizes, are lost."""
_MOST_AWAY = 0.05

WorkT = TypeVar("WorkT")


@dataclass(frozen=True, eq=False)
class LevelFit:
    """One site's fit of one level.

    `changes`, float32 of shape (leaves of the level, parts, 2). `counts`, uint32 of shape (leaves
    of the level,): zero, as the changes are, for leaves that stay at the site; see
    `keep_leaves_back`.
    """

    changes: Float32
    counts: UInt32


class SiteFit:
    """One site's samples, moved through a forest level by level.

    Call `fit` and then `move` for each level. Results do not depend on the number of threads.
    Besides samples and forest, a level needs two bytes per sample and tree.

    `forest`: The thinned base. `threads`: 0: as many as the machine has processors.

    Raises `IncompatibleModelsError` if the faces have another number of landmarks, and
    `InconsistentModelError` if the forest's arrays are inconsistent, or its trees deeper than 16.
    """

    def __init__(
        self, forest: ShapePredictor, faces: SiteFaces, settings: RefitSettings, threads: int = 0
    ) -> None:
        _require_usable(forest, faces)
        resolved = settings.resolved(forest)
        assert resolved.nu is not None
        self._nu = float(resolved.nu)
        self._starts, self._min_faces = settings.starts, settings.min_faces
        self._initial_shape = forest.initial_shape
        self._faces = faces
        self._threads = min(threads or os.cpu_count() or 1, _MOST_THREADS)
        samples = draw_samples(
            faces,
            forest.initial_shape,
            starts=settings.starts,
            jitter=settings.jitter,
            seed=settings.seed,
        )
        self._samples = samples
        self._columns = _column_blocks(2 * forest.part_count)
        self._targets = self._split_into_blocks(samples.targets)
        self._shapes = self._split_into_blocks(samples.starts)
        self._reach: LevelReach | None = None

    @property
    def sample_count(self) -> int:
        return len(self._samples.boxes)

    @property
    def shapes(self) -> Float32:
        """Current shapes, (samples, parts, 2), in coordinates of their boxes."""
        values = self._columns[-1][1]
        joined = self._shapes.transpose(1, 0, 2).reshape(self.sample_count, -1)[:, :values]
        return np.ascontiguousarray(joined).reshape(self.sample_count, -1, 2)

    @property
    def targets(self) -> Float32:
        """True shapes, as `shapes`."""
        return self._samples.targets

    def fit(self, level: CascadeLevel) -> LevelFit:
        """Fit the leaves of the next level to the samples, without moving these."""
        from aggregators.methods.refitting import kernels

        reach = self._reach = self._find_reached_leaves(level)
        leaf_count, values = len(level.leaves), self._columns[-1][1]
        kernels.count_samples(reach)
        kernels.keep_leaves_back(reach, self._starts, self._min_faces)
        changes = np.empty((leaf_count, values), dtype=np.float32)
        leaves = level.leaves.reshape(leaf_count, values)

        def fit_block(number: int) -> None:
            # A block of columns at a time: it fits into the caches, and its columns depend on no
            # others, so threads give the same bits in any order.
            columns = self._columns[number]
            residuals = self._shapes[number].copy()
            kernels.add_leaves(reach, leaves, columns, residuals)
            np.subtract(self._targets[number], residuals, out=residuals)
            kernels.fit_leaves(reach, self._nu, columns, residuals, changes)

        self._in_threads(fit_block, range(len(self._columns)))
        return LevelFit(changes.reshape(leaf_count, -1, 2), reach.counts)

    def move(self, leaves: Float32) -> None:
        """Move the samples by new leaves of the level fitted last, (leaves, parts, 2)."""
        from aggregators.methods.refitting.kernels import add_leaves

        assert self._reach is not None, "call fit first"
        reach, rows = self._reach, leaves.reshape(len(leaves), -1)

        def move_block(number: int) -> None:
            columns = self._columns[number]
            add_leaves(reach, rows, columns, self._shapes[number])

        self._in_threads(move_block, range(len(self._columns)))

    def _find_reached_leaves(self, level: CascadeLevel) -> "LevelReach":
        """Find the leaf of each tree that each sample reaches."""
        from aggregators.methods.refitting.kernels import LevelReach, SampleArrays, reach_leaves
        from aggregators.predictors.cascade_kernel import CascadeArrays

        leaf_counts = np.left_shift(np.int64(1), level.tree_depths.astype(np.int64))
        # Trees first: the fit goes tree by tree over all samples.
        reached = np.empty((level.tree_count, self.sample_count), dtype=np.uint16)
        arrays = CascadeArrays(
            initial_shape=self._initial_shape,
            trees_per_level=np.array([level.tree_count], dtype=np.int64),
            pool_per_level=np.array([level.pool_size], dtype=np.int64),
            tree_depths=level.tree_depths,
            split_idx1=level.split_idx1,
            split_idx2=level.split_idx2,
            split_thresholds=level.split_thresholds,
            leaves=level.leaves,
            anchors=level.anchors,
            deltas=level.deltas,
        )
        faces, shapes = self._faces, self.shapes
        samples = SampleArrays(
            pixels=faces.pixels,
            image_starts=faces.image_starts,
            image_sizes=faces.image_sizes,
            image_of_sample=self._samples.image_of_sample,
            boxes=self._samples.boxes,
        )

        def reach_stretch(first: int) -> None:
            stretch = (first, min(first + _SAMPLES_AT_ONCE, self.sample_count))
            reach_leaves(samples, shapes, arrays, stretch, reached)

        self._in_threads(reach_stretch, range(0, self.sample_count, _SAMPLES_AT_ONCE))
        first_leaves = np.concatenate([[0], np.cumsum(leaf_counts)])
        return LevelReach(reached, first_leaves, np.zeros(len(level.leaves), dtype=np.uint32))

    def _split_into_blocks(self, shapes: Float32) -> Float32:
        """Return (blocks, samples, BLOCK), with zeros at the end of the last block."""
        from aggregators.methods.refitting.kernels import BLOCK

        rows = shapes.reshape(len(shapes), -1)
        blocked = np.zeros((len(self._columns), len(rows), BLOCK), dtype=np.float32)
        for number, (first, last) in enumerate(self._columns):
            blocked[number, :, : last - first] = rows[:, first:last]
        return blocked

    def _in_threads(self, work: Callable[[WorkT], None], items: Iterable[WorkT]) -> None:
        if self._threads == 1:
            for item in items:
                work(item)
            return
        with ThreadPoolExecutor(self._threads, thread_name_prefix="leaf-refit") as pool:
            for _ in pool.map(work, items):
                pass


def fit_levels(forest: ShapePredictor, fit: SiteFit, own_share: float) -> Iterator[LevelFit]:
    """Fit all levels at one site, moving the samples by `own_share` of its own changes."""
    for level in forest.levels():
        fitted = fit.fit(level)
        # The result moves samples by the mean of all sites' changes, which differ; a part of its
        # own comes nearer to that than all of it.
        fit.move(level.leaves + np.float32(own_share) * fitted.changes)
        yield fitted


def contribute(
    base: ShapePredictor,
    faces: SiteFaces,
    settings: RefitSettings | None = None,
    *,
    threads: int = 0,
    progress: Progress | None = None,
) -> LeafContribution:
    """Make one site's contribution to a round.

    `base`: Usually a cascade merge with step 1.1; the same at every site. `threads`: 0: as many as
    the machine has processors; the result is the same.

    Raises
    ------
    IncompatibleModelsError, InconsistentModelError
        As `SiteFit`.
    InconsistentModelError
        The base moves the landmarks away from the faces.
    """
    settings = settings or RefitSettings()
    report = progress or no_progress
    forest = thin_base(base, settings.thin)
    chosen = settings.resolved(forest)
    fit = SiteFit(forest, faces, chosen, threads)
    changes = np.zeros_like(forest.leaves)
    counts = np.zeros(len(forest.leaves), dtype=np.uint32)
    leaves_of_level = [len(level.leaves) for level in forest.levels()]
    start = 0
    for number, fitted in enumerate(fit_levels(forest, fit, chosen.own_share), start=1):
        rows = slice(start, start + leaves_of_level[number - 1])
        changes[rows], counts[rows] = fitted.changes, fitted.counts
        _require_landmarks_near(fit.shapes, number)
        start = rows.stop
        report(number / forest.level_count, f"level {number} of {forest.level_count}")
    return LeafContribution(changes, counts, forest_digest(base), chosen.shared())


def _require_landmarks_near(shapes: Float32, level: int) -> None:
    """Refuse a base that moves landmarks away, where later levels would read other pixels."""
    away = ((shapes < -_FARTHEST) | (shapes > 1 + _FARTHEST)).any(axis=(1, 2)).mean()
    if away > _MOST_AWAY:
        raise InconsistentModelError(
            f"level {level} of the base moves landmarks of {away:.0%} of the samples farther than "
            f"a box width from the face, expected at most {_MOST_AWAY:.0%}; this is not a model of "
            "such faces"
        )


def _column_blocks(values: int) -> list[tuple[int, int]]:
    from aggregators.methods.refitting.kernels import BLOCK

    return [(first, min(first + BLOCK, values)) for first in range(0, values, BLOCK)]


def _require_usable(forest: ShapePredictor, faces: SiteFaces) -> None:
    from aggregators.methods.refitting.kernels import DEEPEST

    # Compiled code does not check indices.
    problem = find_forest_problem(forest)
    if problem is not None:
        raise InconsistentModelError(str(problem))
    deepest = int(forest.tree_depths.max())
    if deepest > DEEPEST:
        raise InconsistentModelError(
            f"tree_depths: found depth {deepest}, expected at most {DEEPEST} for leaf-refit"
        )
    if forest.part_count != faces.part_count:
        raise IncompatibleModelsError(
            "parts",
            f"{forest.part_count}",
            f"{faces.part_count}",
            first_name="the base",
            other_name="the faces",
            hint="use faces with the model's landmarks",
        )
