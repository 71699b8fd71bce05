"""Attacks on sub-models, detectors and landmark models, with faces of known persons."""

import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, partial
from pathlib import Path
from typing import Any, Generic, TypeVar

import numpy as np
from numpy.typing import NDArray

from aggregators.formats import read_model
from aggregators.models import FhogDetector, ShapePredictor
from aggregators.pictures import draw_model, hog_picture, png_bytes
from aggregators.predictors import LandmarkPredictor, to_grey
from pool_server.wire.cards import AttackFinding
from site_agent.attacks.separation import Float64, MemberScores
from site_agent.attacks.table import Attack, Trial
from site_agent.datasets import part_order, records
from site_agent.errors import InvalidInputError
from site_agent.evaluation.detection import overlap_scores
from site_agent.faces.models import FaceDetector, open_detector
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


ModelT = TypeVar("ModelT")
Detector = tuple[FhogDetector, FaceDetector]
"""A model of the file, and of dlib."""


@dataclass(frozen=True, eq=False)
class FaceCase(Generic[ModelT]):
    """A model under attack, with faces that trained it and others."""

    model: ModelT
    sides: FaceSides
    """All faces."""
    members: KnownFaces
    others: KnownFaces
    """Those that are scored."""
    seed: int
    names: Sequence[str] = ()
    """The landmarks of a model of them."""

    @cached_property
    def _known(self) -> dict[object, MemberScores]:
        return {}

    def compare(self, signal: "Signal[ModelT]") -> MemberScores:
        """Return how well a signal tells faces that trained from others; computed once."""
        if signal not in self._known:
            self._known[signal] = MemberScores(
                np.concatenate([signal(self, faces) for faces in (self.members, self.others)]),
                np.arange(len(self.members) + len(self.others)) < len(self.members),
                np.concatenate([self.members.persons, self.others.persons]),
            )
        return self._known[signal]

    def trained(self, train: Callable[[records.FaceDataset, Path], object], suffix: str) -> Any:
        """Return the model that learns a few of the faces by heart, and those faces."""
        memorised = self.sides.members.first(_CONTROL_FACES)
        with tempfile.TemporaryDirectory(prefix="poolctl-probe-") as folder:
            path = Path(folder) / f"control{suffix}"
            train(memorised.dataset, path)
            model: Any = read_model(path)
            if suffix == ".svm":
                model = model, open_detector(path)
        return replace(self, model=model, members=memorised)


Signal = Callable[[FaceCase[ModelT], KnownFaces], Float64]
Leak = Callable[[FaceCase[ModelT]], FaceCase[ModelT]]


def _face_attacks(
    name: str, signal: Signal[ModelT], control: Leak[ModelT]
) -> tuple[Attack[FaceCase[ModelT]], Attack[FaceCase[ModelT]]]:
    """Return the rows on faces and on persons."""
    of_faces, of_persons = f"membership of faces: {name}", f"re-identification: {name}"
    return (
        Attack(
            name=of_faces, needs="pictures of each candidate", control=control,
            score=lambda case: {of_faces: case.compare(signal)},
        ),
        Attack(
            name=of_persons, needs="pictures of each candidate", control=control,
            score=lambda case: {of_persons: case.compare(signal).by_person()},
            reveals="persons", note="candidates are all persons; the attacker has the pictures",
        ),
    )  # fmt: skip


def _overfitted_detector(case: FaceCase[Detector]) -> FaceCase[Detector]:
    size = case.model[0].window_width_px, case.model[0].window_height_px
    settings = HogSvmSettings(
        c=1000.0, target_size_px=size, ignore_unreachable=True, max_runtime_s=30.0
    )
    train = partial(train_hog_svm, settings=settings, training_scores=False)
    leaky: FaceCase[Detector] = case.trained(train, ".svm")
    return leaky


def _overfitted_landmarks(case: FaceCase[ShapePredictor]) -> FaceCase[ShapePredictor]:
    settings = ErtSettings(
        oversampling_amount=2, nu=0.5, cascade_depth=4, num_trees_per_cascade_level=40,
        feature_pool_size=200, seed=case.seed, threads=1, parts=tuple(case.names),
    )  # fmt: skip
    train = partial(train_ert, settings=settings, training_scores=False)
    leaky: FaceCase[ShapePredictor] = case.trained(train, ".dat")
    return leaky


def _nearness(case: FaceCase[ShapePredictor], faces: KnownFaces) -> Float64:
    return -_mean_distance(faces.shapes(case.names) - case.model.initial_shape)


def _one_face(case: FaceCase[ShapePredictor]) -> FaceCase[ShapePredictor]:
    """Return the mean shape of one face, which is that face."""
    one = case.sides.members.first(1)
    shape = one.shapes(case.names)[0]
    return replace(case, model=replace(case.model, initial_shape=shape), members=one)


def _margins(case: FaceCase[Detector], faces: KnownFaces) -> Float64:
    """Return the highest score of a detection on each face, shape (faces,)."""
    margins = []
    for grey, boxes in faces.images():
        detections = case.model[1].detect(grey, threshold=_LOWEST_SCORE)
        places = [
            (detection.left, detection.top, detection.right, detection.bottom)
            for detection in detections
        ]
        scores = np.array([detection.score for detection in detections])
        for row in overlap_scores([box.corners for box in boxes], places) > _OVERLAP:
            margins.append(scores[row].max(initial=_LOWEST_SCORE))
    return np.array(margins)


def _negative_errors(case: FaceCase[ShapePredictor], faces: KnownFaces) -> Float64:
    """Return the mean landmark error of each face, negated, in box sizes."""
    predictor, names = LandmarkPredictor(case.model), case.names
    apart = []
    for grey, boxes in faces.images():
        placed = predictor.predict(grey, [box.corners for box in boxes])
        for points, box in zip(placed, boxes, strict=True):
            apart.append(in_box(points, box) - in_box(records.parts_array(box, names), box))
    return -_mean_distance(np.array(apart))


def _mean_distance(apart: Float64) -> Float64:
    distances: Float64 = np.linalg.norm(apart, axis=-1).mean(axis=-1)
    return distances


DETECTOR_ATTACKS = _face_attacks("margin", _margins, _overfitted_detector)
LANDMARK_ATTACKS = (
    *_face_attacks("landmark error", _negative_errors, _overfitted_landmarks),
    *_face_attacks("mean shape", _nearness, _one_face),
)


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
        scored = sides.members.first(_MOST_FACES), sides.others.first(_MOST_FACES)
        pictures = {"What the detector's weights show": png_bytes(hog_picture(model))}
        of_detector = FaceCase((model, open_detector(artifact)), sides, *scored, seed)
        return Trial(of_detector, seed).judge(DETECTOR_ATTACKS), pictures
    if not isinstance(model, ShapePredictor):
        raise InvalidInputError(
            f"{artifact}: neither a detector (.svm) nor a landmark model (.dat)"
        )
    sides, names = sides.complete(model.initial_shape)
    scored = sides.members.first(_MOST_FACES), sides.others.first(_MOST_FACES)
    pictures = {"The mean shape in the file": draw_model(model, "large")[1]}
    of_landmarks = FaceCase(model, sides, *scored, seed, names)
    return Trial(of_landmarks, seed).judge(LANDMARK_ATTACKS), pictures
