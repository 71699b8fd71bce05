"""Attacks on the leaf sums that a site contributes to the refinement of a landmark model.

The strongest is by a *camera*: the author of a refinement's base can make each tree compare one
pixel with one outside the picture. The leaf that a face reaches then says how bright that pixel is,
so that the sums of leaves with a single sample are a photograph.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from aggregators.methods import refitting
from aggregators.models import CascadeLevel, Float32, Float64, LeafContribution, ShapePredictor
from pool_server.wire.cards import AttackFinding
from site_agent.attacks.receipt.sub_models import FaceSides
from site_agent.attacks.separation import MemberScores
from site_agent.attacks.table import Attack, MeanOverPersons, Scores, Share, Trial, read_sent
from site_agent.errors import InvalidInputError
from site_agent.refinement import load_site

FEW_FACES = 5
_SMALLEST_LEAVES, _CAMERA_FACES = 200, 12
_OUTSIDE = (-40.0, -40.0)
_ALIKE = 0.9


@dataclass(frozen=True, eq=False)
class _Recovered:
    """Distances of guesses from leaf sums to the landmarks of faces."""

    nearest: Float64
    mean_shape: Float64
    """Of shape (faces,). Mean distance of the landmarks, in box sizes, of the nearest guess and of
    the mean shape."""

    def gain(self, weights: Float64) -> float:
        whole = float((self.mean_shape * weights).sum())
        return 1 - float((self.nearest * weights).sum()) / whole if whole else float("nan")


@dataclass(frozen=True, eq=False)
class LeafCase:
    """Leaf sums under attack, and those that the same rules give with a camera as base."""

    sent: LeafContribution
    faces: FaceSides
    names: Sequence[str]
    base: ShapePredictor
    forest: ShapePredictor
    """Its leaves give landmarks away."""
    shown: LeafContribution
    """Of that forest."""
    rules: refitting.RefitSettings
    photographed: refitting.SiteFaces

    @property
    def persons(self) -> NDArray[np.str_]:
        return np.concatenate([self.faces.members.persons, self.faces.others.persons])

    @property
    def is_own(self) -> NDArray[np.bool_]:
        return np.arange(len(self.persons)) < len(self.faces.members)

    @cached_property
    def recovered(self) -> _Recovered:
        sides = self.faces.members, self.faces.others
        shapes = np.concatenate([faces.shapes(self.names) for faces in sides])
        return _recover(self.shown, self.forest, shapes)


def _few(case: LeafCase) -> Scores:
    counts = case.sent.counts[case.sent.counts > 0]
    starts, least = case.rules.starts, case.rules.min_faces
    faces = np.maximum(np.ceil(counts / starts), least)
    few = int(np.count_nonzero(faces < FEW_FACES))
    return {"leaves with few faces": Share(few, len(counts))}


def _gain(case: LeafCase) -> Scores:
    recovered, mine = case.recovered, case.is_own
    of_members = _Recovered(recovered.nearest[mine], recovered.mean_shape[mine])
    gain = MeanOverPersons(of_members.gain, case.persons[mine])
    return {"landmarks recovered from residuals": gain}


def _nearness(case: LeafCase) -> Scores:
    scores = MemberScores(-case.recovered.nearest, case.is_own, case.persons)
    return {"membership of faces: recovered landmarks": scores}


def _photographs(case: LeafCase) -> Scores:
    camera = build_camera(case.forest.initial_shape, _OUTSIDE)
    shown = refitting.contribute(camera, case.photographed, _on_camera(case.rules), threads=1)
    pictures, _ = develop(shown)
    seen = [_is_seen(face, pictures) for face in photograph(case.photographed)]
    return {"camera base": Share(sum(seen), len(seen))}


def _without_limits(case: LeafCase) -> LeafCase:
    free = case.rules.model_copy(update={"min_faces": 1, "starts": 1, "jitter": 0.0})
    camera = build_camera(case.base.initial_shape, _OUTSIDE)
    faces = _load(case.faces, case.base, most=None)
    return replace(
        case, forest=camera, rules=free,
        sent=refitting.contribute(case.base, faces, free, threads=1),
        shown=refitting.contribute(camera, faces, _on_camera(free), threads=1),
    )  # fmt: skip


ATTACKS: tuple[Attack[LeafCase], ...] = (
    Attack(
        name="leaves with few faces", needs="", score=_few, chance=0.0, control=_without_limits,
        measure=f"share of sent leaves that may rest on fewer than {FEW_FACES} faces", reveals="",
        note=lambda case, _: f"the site sends leaves of at least {case.rules.min_faces} faces, "
        f"with {case.rules.starts} starts a face",
    ),
    Attack(
        name="landmarks recovered from residuals", needs="base", score=_gain, reveals="landmarks",
        measure="how much nearer the nearest guess is than the mean shape, 0 to 1",
        chance=lambda case, _: case.recovered.gain((~case.is_own).astype(np.float64)),
        control=_without_limits,
        note="chance is the same guesses on held-out persons, the control a base built for the "
        "purpose without limits on faces",
    ),
    Attack(
        name="membership of faces: recovered landmarks", needs="base, pictures of each candidate",
        score=_nearness, control=_without_limits,
    ),
    Attack(
        name="camera base", needs="authorship of the base", score=_photographs, chance=0.0,
        measure=f"share of faces photographed (correlation above {_ALIKE})", reveals="pictures",
        control=_without_limits,
        note="what a base built for the purpose would see by the rules of this contribution",
    ),
)  # fmt: skip


def attack_leaf_sums(
    artifact: Path, base: ShapePredictor, sides: FaceSides, seed: int
) -> Iterator[AttackFinding]:
    """Attack a contribution of leaf sums; the control is one that shows single faces.

    Raises `InvalidInputError`: the artifact is no contribution of leaf sums, or was made to another
    base.
    """
    sent = read_sent(artifact, refitting.read_contribution)
    if sent.base_digest != refitting.forest_digest(base):
        raise InvalidInputError(f"{artifact}: not made to the base that --base names")
    sides, names = sides.complete(base.initial_shape)
    rules = refitting.refit_settings(**sent.settings)
    photographed = _load(sides, base, most=_CAMERA_FACES)
    thinned = refitting.thin_base(base, rules.thin)
    case = LeafCase(sent, sides, names, base, thinned, sent, rules, photographed)

    yield from Trial(case, seed).judge(ATTACKS)


def _recover(sent: LeafContribution, forest: ShapePredictor, shapes: Float64) -> _Recovered:
    """Guess landmarks from the leaves of the first level that the fewest samples reach.

    The residual of a leaf is the rest after the level; the guess adds how far the level moves all
    samples on the mean.
    """
    level = next(forest.levels())
    counts = sent.counts[: len(level.leaves)].astype(np.float64)
    leaves = level.leaves.reshape(len(counts), -1).astype(np.float64)
    changes = sent.changes[: len(counts)].reshape(leaves.shape)
    # A change is nu times the sum of residuals over the count and one.
    means = changes * ((counts + 1) / np.maximum(counts, 1) / float(sent.settings["nu"]))[:, None]
    reached = np.flatnonzero(counts)
    least = reached[np.argsort(counts[reached], kind="stable")[:_SMALLEST_LEAVES]]
    start = forest.initial_shape.reshape(-1)
    moved = counts @ leaves / max(1.0, counts.sum() / level.tree_count)
    guesses = np.concatenate([start + moved + means[least], [start]]).reshape(
        -1, *forest.initial_shape.shape
    )
    nearest = [np.linalg.norm(guesses - shape, axis=-1).mean(axis=1).min() for shape in shapes]
    at_mean = np.linalg.norm(shapes - forest.initial_shape, axis=-1).mean(axis=1)
    return _Recovered(np.array(nearest), at_mean)


def _on_camera(settings: refitting.RefitSettings) -> refitting.RefitSettings:
    """Return settings of a fit to a camera, which has one level; leaves hardly move."""
    return settings.model_copy(update={"thin": None, "nu": 0.001})


def _is_seen(face: Float64, pictures: Float64) -> bool:
    """Return whether one of the pictures shows a face in at least half of the pixels."""
    for picture in pictures:
        there = np.isfinite(picture)
        if there.mean() >= 0.5 and np.corrcoef(picture[there], face[there])[0, 1] > _ALIKE:
            return True
    return False


def _load(sides: FaceSides, base: ShapePredictor, *, most: int | None) -> refitting.SiteFaces:
    faces = sides.members if most is None else sides.members.first(most)
    return load_site(faces.dataset, base.part_count, initial_shape=base.initial_shape).faces


# The camera: its base, and the pictures that its leaf sums give.
SIZE = 8
DEPTH = 5
BIN = 256 // 2**DEPTH


def build_camera(initial_shape: Float32, reference: tuple[float, float] | None) -> ShapePredictor:
    """Make a forest with one tree a pixel, which sorts faces by how bright that pixel is.

    `reference` ((x, y) or None): The place, in box coordinates, with which all pixels are compared;
    outside of the image it is black. None: a camera in disguise, which compares neighbours and has
    random leaves.
    """
    places = np.concatenate([_grid(), [reference or _grid()[0]]])
    distances = np.linalg.norm(places[:, np.newaxis] - initial_shape, axis=2)
    anchors = distances.argmin(axis=1)
    thresholds = _thresholds()
    trees, splits, parts = SIZE**2, len(thresholds), len(initial_shape)
    others = np.full(trees, trees) if reference else np.arange(trees) ^ 1
    leaves = np.random.default_rng(1).normal(0, 1e-4, (trees * 2**DEPTH, parts, 2))
    level = CascadeLevel(
        tree_depths=np.full(trees, DEPTH, dtype=np.uint8),
        split_idx1=np.repeat(np.arange(trees), splits).astype(np.uint32),
        split_idx2=np.repeat(others, splits).astype(np.uint32),
        split_thresholds=np.tile(thresholds if reference else thresholds / 2 - 64, trees),
        leaves=(leaves * (reference is None)).astype(np.float32),
        anchors=anchors.astype(np.uint32),
        deltas=(places - initial_shape[anchors]).astype(np.float32),
    )
    return ShapePredictor.from_levels(initial_shape, [level])


def develop(contribution: LeafContribution) -> tuple[Float64, Float64]:
    """Return pictures and residuals of single samples: (n, SIZE, SIZE) and (n, values).

    A leaf of one sample says which it is by its residual, and how bright its pixel is by its
    place in the tree. Pixels that were not seen are NaN.
    """
    nu = contribution.settings["nu"]
    counts = contribution.counts.reshape(SIZE**2, -1)
    sums = contribution.changes.reshape(*counts.shape, -1).astype(np.float64)
    residuals = sums * (counts[..., np.newaxis] + 1) / nu
    known = np.empty((0, residuals.shape[2]))
    pictures = np.empty((0, SIZE**2))
    for pixel in range(SIZE**2):
        for leaf in np.flatnonzero(counts[pixel] == 1):
            residual = residuals[pixel, leaf]
            apart = np.linalg.norm(known - residual, axis=1) / np.linalg.norm(residual)
            if apart.min(initial=1) > 0.2:
                known = np.concatenate([known, [residual]])
                pictures = np.concatenate([pictures, np.full((1, SIZE**2), np.nan)])
                apart = np.append(apart, 0)
            pictures[apart.argmin(), pixel] = 256 - BIN * (leaf + 0.5)
    return pictures.reshape(-1, SIZE, SIZE), known


def photograph(faces: refitting.SiteFaces) -> Float64:
    """Return the true pictures that a camera should recover: (faces, SIZE, SIZE) grey values."""
    pictures = np.empty((faces.face_count, SIZE**2))
    for face, box in enumerate(faces.boxes):
        height, width = faces.image_sizes[face]
        start = faces.image_starts[face]
        grey = faces.pixels[start : start + height * width].reshape(height, width)
        columns, rows = (box[:2] + _grid() * (box[2:] - box[:2]) + 0.5).astype(int).T
        pictures[face] = grey[rows, columns]
    return pictures.reshape(-1, SIZE, SIZE)


def _grid() -> Float64:
    steps = (np.arange(SIZE) + 0.5) / SIZE
    return np.stack(np.meshgrid(steps, steps), axis=-1).reshape(-1, 2)


def _thresholds() -> Float32:
    """Return the splits of a search tree over grey values, in heap order; brighter goes left."""
    rows = [256 - 256 * (np.arange(2**depth) + 0.5) / 2**depth - 0.5 for depth in range(DEPTH)]
    return np.concatenate(rows).astype(np.float32)
