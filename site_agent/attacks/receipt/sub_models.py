"""Attacks on sub-models, detectors and landmark models, with faces of known persons."""

import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from aggregators.formats import read_model
from aggregators.models import FhogDetector, ShapePredictor
from aggregators.pictures import draw_model, hog_picture, png_bytes
from aggregators.predictors import LandmarkPredictor, to_grey
from pool_server.wire.cards import AttackFinding
from site_agent.attacks.receipt.findings import membership
from site_agent.attacks.separation import Float64, MemberScores
from site_agent.datasets import part_order, records
from site_agent.errors import InvalidInputError
from site_agent.evaluation.detection import overlap_scores
from site_agent.faces.models import open_detector
from site_agent.pictures.images import read_image
from site_agent.training.detector_plan import HogSvmSettings
from site_agent.training.ert import ErtSettings, train_ert
from site_agent.training.hog_svm import train_hog_svm

GroupOf = Callable[[records.AnnotatedImage], str]


@dataclass(frozen=True, eq=False)
class KnownFaces:
    """Faces of known persons."""

    dataset: records.FaceDataset
    """Without boxes to ignore, and without images that have no other."""
    persons: NDArray[np.str_]
    """Of shape (faces,). In the order of ``dataset.boxes()``."""

    def __len__(self) -> int:
        return len(self.persons)

    def complete(self, names: Sequence[str]) -> "KnownFaces":
        """Return the faces that have all of these landmarks."""
        keep = [all(name in box.parts for name in names) for _, box in self.dataset.boxes()]
        return self._choose(np.array(keep, dtype=bool))

    def first(self, most: int) -> "KnownFaces":
        """Return at most this many faces, spread evenly."""
        keep = np.zeros(len(self), dtype=bool)
        keep[np.linspace(0, len(self) - 1, min(most, len(self))).astype(int)] = True
        return self._choose(keep)

    def images(self) -> Iterator[tuple[NDArray[np.uint8], tuple[records.FaceBox, ...]]]:
        """Yield each image in grey with its faces."""
        for image in self.dataset.images:
            yield to_grey(read_image(image.path, apply_orientation=False)), image.boxes

    def shapes(self, names: Sequence[str]) -> Float64:
        """Return the landmarks in box coordinates, shape (faces, parts, 2)."""
        return np.array(
            [in_box(records.parts_array(box, names), box) for _, box in self.dataset.boxes()]
        ).reshape(-1, len(names), 2)

    def _choose(self, keep: NDArray[np.bool_]) -> "KnownFaces":
        flags = iter(keep)
        images = []
        for image in self.dataset.images:
            boxes = tuple(box for box in image.boxes if next(flags))
            if boxes:
                images.append(replace(image, boxes=boxes))
        return KnownFaces(replace(self.dataset, images=tuple(images)), self.persons[keep])


@dataclass(frozen=True, eq=False)
class FaceSides:
    """Faces of persons that trained the model, and of others."""

    members: KnownFaces
    others: KnownFaces

    def complete(self, initial_shape: NDArray[np.floating]) -> "tuple[FaceSides, tuple[str, ...]]":
        """Return the faces that have the landmarks of a model, and the landmarks' names.

        Raises `InvalidInputError`: either side has fewer than 2 such faces.
        """
        names, _ = part_order.find_model_parts(
            records.part_names(self.members.dataset), initial_shape
        )
        if len(names) != len(initial_shape):
            raise InvalidInputError(
                f"the model places {len(initial_shape)} landmarks, which the faces do not have"
            )
        sides = FaceSides(self.members.complete(names), self.others.complete(names))
        if min(len(sides.members), len(sides.others)) < 2:
            raise InvalidInputError("expected at least 2 faces with all landmarks on either side")
        return sides, names


def know_faces(dataset: records.FaceDataset, person_of: GroupOf) -> KnownFaces:
    """Return the faces of a data set with their persons."""
    images, persons = [], []
    for image in dataset.images:
        boxes = tuple(box for box in image.boxes if not box.ignore)
        if boxes:
            images.append(replace(image, boxes=boxes))
            persons += [person_of(image)] * len(boxes)
    if not persons:
        raise InvalidInputError(f"{dataset.path}: has no faces")
    return KnownFaces(replace(dataset, images=tuple(images)), np.array(persons))


def in_box(points: Float64, box: records.FaceBox) -> Float64:
    """Return points in box coordinates: (0, 0) top left corner, (1, 1) bottom right corner."""
    left, top, right, bottom = box.corners
    return (points - (left, top)) / (right - left, bottom - top)


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

    Raises `InvalidInputError`: the artifact is neither, or the faces do not fit it.
    """
    model = read_model(artifact)
    if isinstance(model, FhogDetector):
        pictures = {"What the detector's weights show": png_bytes(hog_picture(model))}
        return _attack_detector(artifact, model, sides, seed), pictures
    if isinstance(model, ShapePredictor):
        pictures = {"The mean shape in the file": draw_model(model, "large")[1]}
        return _attack_landmarks(model, sides, seed), pictures
    raise InvalidInputError(f"{artifact}: neither a detector (.svm) nor a landmark model (.dat)")


def _attack_detector(
    path: Path, model: FhogDetector, sides: FaceSides, seed: int
) -> Iterator[AttackFinding]:

    memorised, members = sides.members.first(_CONTROL_FACES), sides.members.first(_MOST_FACES)
    others = sides.others.first(_MOST_FACES)
    size = (model.window_width_px, model.window_height_px)
    with tempfile.TemporaryDirectory(prefix="poolctl-probe-") as folder:
        leaky = Path(folder) / "control.svm"
        settings = HogSvmSettings(
            c=1000.0, target_size_px=size, ignore_unreachable=True, max_runtime_s=30.0
        )
        train_hog_svm(memorised.dataset, leaky, settings, training_scores=False)
        control = _join(_margins(leaky, memorised), _margins(leaky, others), memorised, others)
    attack = _join(_margins(path, members), _margins(path, others), members, others)
    yield from _memberships("margin", attack, control, seed)


def _attack_landmarks(
    model: ShapePredictor, sides: FaceSides, seed: int
) -> Iterator[AttackFinding]:

    sides, names = sides.complete(model.initial_shape)
    memorised, members = sides.members.first(_CONTROL_FACES), sides.members.first(_MOST_FACES)
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
    attack = _negative_errors(model, members, names), _negative_errors(model, others, names)
    control = _negative_errors(leaky, memorised, names), _negative_errors(leaky, others, names)
    yield from _memberships(
        "landmark error", _join(*attack, members, others), _join(*control, memorised, others), seed
    )
    # The mean shape of one face, which is that face.
    one = sides.members.first(1)
    attack, control = (
        (_negative_distances(faces, shape, names), _negative_distances(others, shape, names))
        for faces, shape in ((members, model.initial_shape), (one, one.shapes(names)[0]))
    )
    yield from _memberships(
        "mean shape", _join(*attack, members, others), _join(*control, one, others), seed
    )


def _memberships(
    name: str, attack: MemberScores, control: MemberScores, seed: int
) -> Iterator[AttackFinding]:
    yield membership(f"membership of faces: {name}", attack, control, seed)
    pair = attack.by_person(), control.by_person()
    note = "candidates are all persons; the attacker has the pictures"
    yield membership(f"re-identification: {name}", *pair, seed, note, "persons")


def _join(members: Float64, others: Float64, mine: KnownFaces, theirs: KnownFaces) -> MemberScores:
    return MemberScores(
        np.concatenate([members, others]),
        np.arange(len(members) + len(others)) < len(members),
        np.concatenate([mine.persons, theirs.persons]),
    )


def _margins(path: Path, faces: KnownFaces) -> Float64:
    """Return the highest score of a detection on each face, shape (faces,)."""
    detector = open_detector(path)
    margins = []
    for grey, boxes in faces.images():
        detections = detector.detect(grey, threshold=_LOWEST_SCORE)
        places = [
            (detection.left, detection.top, detection.right, detection.bottom)
            for detection in detections
        ]
        scores = np.array([detection.score for detection in detections])
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
            apart.append(in_box(points, box) - in_box(records.parts_array(box, names), box))
    return -_mean_distance(np.array(apart))


def _negative_distances(
    faces: KnownFaces, shape: NDArray[np.floating], names: Sequence[str]
) -> Float64:
    """Return how far the landmarks of each face are from a shape, negated, in box sizes."""
    return -_mean_distance(faces.shapes(names) - shape)


def _mean_distance(apart: Float64) -> Float64:
    distances: Float64 = np.linalg.norm(apart, axis=-1).mean(axis=-1)
    return distances
