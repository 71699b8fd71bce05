"""Attacks on sub-models: face detectors and landmark models."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from aggregators.formats import read_model
from aggregators.models import FhogDetector, ShapePredictor
from aggregators.pictures import hog_picture, png_bytes, shape_picture
from aggregators.predictors import LandmarkPredictor
from pool_server.wire.models.receipts import AttackFinding
from site_agent.attacks.leaks import Float64
from site_agent.attacks.receipt.faces import FaceSides, KnownFaces, in_box
from site_agent.attacks.receipt.findings import MemberScores, membership
from site_agent.datasets import parts_array
from site_agent.errors import InvalidInputError

_CONTROL_FACES, _MOST_FACES = 24, 120
_LOWEST_SCORE = -1.0
_OVERLAP = 0.5


def attack_sub_model(
    artifact: Path, sides: FaceSides, seed: int
) -> tuple[Iterator[AttackFinding], Mapping[str, bytes]]:
    """Attack a detector or a landmark model.

    Returns
    -------
    (findings, pictures)
        Pictures are PNG files by their captions.

    Raises
    ------
    InvalidInputError
        The artifact is neither, or the faces do not fit it.
    """
    model = read_model(artifact)
    if isinstance(model, FhogDetector):
        pictures = {"What the detector's weights show": png_bytes(hog_picture(model))}
        return _attack_detector(artifact, model, sides, seed), pictures
    if isinstance(model, ShapePredictor):
        pictures = {"The mean shape in the file": png_bytes(shape_picture(model, height_px=360))}
        return _attack_landmarks(model, sides, seed), pictures
    raise InvalidInputError(f"{artifact}: neither a detector (.svm) nor a landmark model (.dat)")


def _attack_detector(
    path: Path, model: FhogDetector, sides: FaceSides, seed: int
) -> Iterator[AttackFinding]:
    from site_agent.training import HogSvmSettings, train_hog_svm

    memorised, own = sides.own.first(_CONTROL_FACES), sides.own.first(_MOST_FACES)
    others = sides.others.first(_MOST_FACES)
    size = (model.window_width_px, model.window_height_px)
    with tempfile.TemporaryDirectory(prefix="poolctl-probe-") as folder:
        leaky = Path(folder) / "control.svm"
        settings = HogSvmSettings(
            c=1000.0, target_size_px=size, ignore_unreachable=True, max_runtime_s=30.0
        )
        train_hog_svm(memorised.dataset, leaky, settings, training_scores=False)
        control = _joined(_margins(leaky, memorised), _margins(leaky, others), memorised, others)
    found = _joined(_margins(path, own), _margins(path, others), own, others)
    yield from _memberships("margin", found, control, seed)


def _attack_landmarks(
    model: ShapePredictor, sides: FaceSides, seed: int
) -> Iterator[AttackFinding]:
    from site_agent.training import ErtSettings, train_ert

    sides, names = sides.complete(model.initial_shape)
    memorised, own = sides.own.first(_CONTROL_FACES), sides.own.first(_MOST_FACES)
    others = sides.others.first(_MOST_FACES)
    with tempfile.TemporaryDirectory(prefix="poolctl-probe-") as folder:
        settings = ErtSettings(
            oversampling_amount=2, nu=0.5, cascade_depth=4, num_trees_per_cascade_level=40,
            feature_pool_size=200, seed=seed, threads=1, parts=tuple(names),
        )  # fmt: skip
        path = Path(folder) / "control.dat"
        train_ert(memorised.dataset, path, settings, training_scores=False)
        leaky = read_model(path)
    assert isinstance(leaky, ShapePredictor)
    found = _negative_errors(model, own, names), _negative_errors(model, others, names)
    control = _negative_errors(leaky, memorised, names), _negative_errors(leaky, others, names)
    yield from _memberships(
        "landmark error",
        _joined(*found, own, others),
        _joined(*control, memorised, others),
        seed,
    )
    # The mean shape of one face, which is that face.
    one = sides.own.first(1)
    found, control = (
        (_negative_distances(faces, shape, names), _negative_distances(others, shape, names))
        for faces, shape in ((own, model.initial_shape), (one, one.shapes(names)[0]))
    )
    yield from _memberships(
        "mean shape", _joined(*found, own, others), _joined(*control, one, others), seed
    )


def _memberships(
    name: str, found: MemberScores, control: MemberScores, seed: int
) -> Iterator[AttackFinding]:
    yield membership(f"membership of faces: {name}", found, control, seed)
    pair = found.by_person(), control.by_person()
    note = "candidates are all persons; the attacker has the pictures"
    yield membership(f"re-identification of persons: {name}", *pair, seed, note)


def _joined(own: Float64, others: Float64, mine: KnownFaces, theirs: KnownFaces) -> MemberScores:
    return MemberScores(
        np.concatenate([own, others]),
        np.arange(len(own) + len(others)) < len(own),
        np.concatenate([mine.persons, theirs.persons]),
    )


def _margins(path: Path, faces: KnownFaces) -> Float64:
    """Return the highest score of a detection on each face, shape (faces,)."""
    from site_agent.evaluation.detection import overlap_scores
    from site_agent.faces.detector import open_detector

    detector = open_detector(path)
    margins = []
    for grey, boxes in faces.images():
        found = detector.detect(grey, threshold=_LOWEST_SCORE)
        places = [(each.left, each.top, each.right, each.bottom) for each in found]
        scores = np.array([each.score for each in found])
        for row in overlap_scores([box.corners for box in boxes], places) > _OVERLAP:
            margins.append(scores[row].max(initial=_LOWEST_SCORE))
    return np.array(margins)


def _negative_errors(model: ShapePredictor, faces: KnownFaces, names: Sequence[str]) -> Float64:
    """Return the mean landmark error of each face, negated, in box sizes."""
    predictor = LandmarkPredictor(model)
    apart = []
    for grey, boxes in faces.images():
        placed = predictor.predict(grey, [box.corners for box in boxes])
        for points, box in zip(placed, boxes, strict=True):
            apart.append(in_box(points, box) - in_box(parts_array(box, names), box))
    return -_mean_distance(np.array(apart))


def _negative_distances(
    faces: KnownFaces, shape: NDArray[np.floating], names: Sequence[str]
) -> Float64:
    """Return how far the landmarks of each face are from a shape, negated, in box sizes."""
    return -_mean_distance(faces.shapes(names) - shape)


def _mean_distance(apart: Float64) -> Float64:
    distances: Float64 = np.linalg.norm(apart, axis=-1).mean(axis=-1)
    return distances
