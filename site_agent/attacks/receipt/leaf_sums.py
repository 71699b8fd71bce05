"""Attacks on the leaf sums that a site contributes to the refinement of a landmark model.

The strongest is by a *camera*: the author of a refinement's base can make each tree compare one
pixel with one outside the picture. The leaf that a face reaches then says how bright that pixel is,
so that the sums of leaves with a single sample are a photograph.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from aggregators.methods import refitting
from aggregators.models import CascadeLevel, Float32, Float64, LeafContribution, ShapePredictor
from pool_server.wire.cards import AttackFinding
from pool_server.wire.evaluations import Score
from site_agent.attacks.receipt.findings import mean_over_persons, membership, read_sent, share_of
from site_agent.attacks.receipt.sub_models import FaceSides
from site_agent.attacks.separation import MemberScores
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
    rules = refitting.RefitSettings.model_validate(dict(sent.settings))
    unguarded = rules.model_copy(update={"min_faces": 1, "starts": 1, "jitter": 0.0})
    leaky = refitting.contribute(base, _load(sides, base, most=None), unguarded, threads=1)
    yield AttackFinding(
        name="leaves with few faces",
        measure=f"share of sent leaves that may rest on fewer than {FEW_FACES} faces",
        found=_few(sent),
        chance=0.0,
        control=_few(leaky),
        note=f"the site sends leaves of at least {rules.min_faces} faces, with {rules.starts} "
        "starts a face",
    )
    shapes = sides.members.shapes(names), sides.others.shapes(names)
    persons = np.concatenate([sides.members.persons, sides.others.persons])
    is_own = np.arange(len(persons)) < len(sides.members)
    recovered = _recover(sent, refitting.thin_base(base, rules.thin), np.concatenate(shapes))
    camera = build_camera(base.initial_shape, _OUTSIDE)
    shown = refitting.contribute(
        camera, _load(sides, base, most=None), _on_camera(unguarded), threads=1
    )
    control = _recover(shown, camera, np.concatenate(shapes))
    yield AttackFinding(
        name="landmarks recovered from residuals",
        measure="how much nearer the nearest guess is than the mean shape, 0 to 1",
        found=_gain(recovered, persons, is_own, seed),
        chance=recovered.gain((~is_own).astype(np.float64)),
        control=_gain(control, persons, is_own, seed),
        note="chance is the same guesses on held-out persons, the control a base built for the "
        "purpose without limits on faces",
        reveals="landmarks",
    )
    yield membership(
        "membership of faces: recovered landmarks",
        MemberScores(-recovered.nearest, is_own, persons),
        MemberScores(-control.nearest, is_own, persons),
        seed,
    )
    yield _photograph_faces(camera, _load(sides, base, most=_CAMERA_FACES), rules, unguarded)


def _few(sent: LeafContribution) -> Score:
    counts = sent.counts[sent.counts > 0]
    starts, least = int(sent.settings["starts"]), int(sent.settings["min_faces"])
    faces = np.maximum(np.ceil(counts / starts), least)
    return share_of(int(np.count_nonzero(faces < FEW_FACES)), len(counts))


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


def _gain(
    recovered: _Recovered, persons: NDArray[np.str_], is_own: NDArray[np.bool_], seed: int
) -> Score:
    of_members = _Recovered(recovered.nearest[is_own], recovered.mean_shape[is_own])
    return mean_over_persons(of_members.gain, persons[is_own], seed)


def _on_camera(settings: refitting.RefitSettings) -> refitting.RefitSettings:
    """Return settings of a fit to a camera, which has one level; leaves hardly move."""
    return settings.model_copy(update={"thin": None, "nu": 0.001, "mode": "one-shot"})


def _photograph_faces(
    camera: ShapePredictor,
    faces: refitting.SiteFaces,
    rules: refitting.RefitSettings,
    unguarded: refitting.RefitSettings,
) -> AttackFinding:
    shares = []
    for settings in (rules, unguarded):
        pictures, _ = develop(refitting.contribute(camera, faces, _on_camera(settings), threads=1))
        seen = [_is_seen(face, pictures) for face in photograph(faces)]
        shares.append(share_of(sum(seen), len(seen)))
    return AttackFinding(
        name="camera base",
        measure=f"share of faces photographed (correlation above {_ALIKE})",
        found=shares[0],
        chance=0.0,
        control=shares[1],
        note="what a base built for the purpose would see by the rules of this contribution",
        reveals="pictures",
    )


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
        image = faces.image_of_face[face]
        height, width = faces.image_sizes[image]
        start = faces.image_starts[image]
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
