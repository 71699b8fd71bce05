"""Errors of a landmark model against the landmarks that people marked.

The model starts from the boxes of the data set, as in dlib's ``test_shape_predictor``. The error
of a landmark is its distance from the truth in pixels, divided by a length in the face (see
`site_agent.evaluation.landmark_scores`). Landmarks are not rounded to whole pixels, as dlib's are.
"""

import os
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from aggregators.predictors import LandmarkPredictor, to_grey
from site_agent import errors, training_record
from site_agent.datasets import landmark_schemes, part_order, records
from site_agent.datasets.landmark_schemes import mean_eye_aspect_ratio
from site_agent.evaluation import landmark_scores
from site_agent.faces.models import in_threads, open_landmarks
from site_agent.pictures.images import read_image
from site_agent.work import Progress, no_progress

UInt8 = NDArray[np.uint8]
Float64 = NDArray[np.float64]
Corners = tuple[int, int, int, int]
_MOST_THREADS = 8
_GROUPS = landmark_schemes.PART_GROUPS


def evaluate_landmarks(
    landmarks: LandmarkPredictor | Path,
    dataset: records.FaceDataset,
    *,
    normaliser: str | None = None,
    parts: Sequence[str] | None = None,
    resamples: int = 1000,
    workers: int = 0,
    progress: Progress = no_progress,
) -> landmark_scores.LandmarkScores:
    """Run a landmark model on every box of a data set and measure its errors.

    `dataset`: Boxes marked `ignore` are left out, those without landmarks are counted as skipped.
    `parts`: The landmarks to compare: names, ranges of numbers and groups, as `expand_parts` takes
    them. A model must place just these, or all of the data set. By default all that the model
    places, which are known where they are all of the data set, where a metadata file lies next to
    the model, and where they are a group of iBUG's (see `find_model_parts`). `workers`: Threads at
    once; 0: as many as the machine has processors, up to 8.

    Raises `EvaluationError`: no landmarks to compare with, another number of them than the model
    has, or an unfit normaliser.
    """
    predictor = open_landmarks(landmarks) if isinstance(landmarks, Path) else landmarks
    names, places = _model_parts(landmarks, predictor, dataset, parts or ())
    chosen = landmark_scores.normaliser_for(names, normaliser)
    jobs, skipped = _testable_faces(dataset, names, chosen)
    if not jobs:
        raise errors.EvaluationError(
            f"{dataset.path or 'the data set'} has no face with the landmarks that the normaliser "
            f"{chosen.name!r} needs; choose another one, for example 'box'"
        )
    threads = workers or min(_MOST_THREADS, os.cpu_count() or 1)
    measured: list[landmark_scores.FaceErrors] = []

    def place(grey: UInt8, corners: Sequence[Corners]) -> Float64:
        return predictor.predict(grey, corners)[:, places]

    for count, faces in enumerate(
        in_threads(lambda job: _measure(place, names, *job), jobs, threads), 1
    ):
        measured.extend(faces)
        progress(count / len(jobs), f"image {count} of {len(jobs)}")
    return landmark_scores.summarise_landmarks(
        measured, names, chosen, skipped_faces=skipped, resamples=resamples
    )


def _model_parts(
    landmarks: LandmarkPredictor | Path,
    predictor: LandmarkPredictor,
    dataset: records.FaceDataset,
    terms: Sequence[str],
) -> tuple[tuple[str, ...], list[int]]:
    """Names of the landmarks that are compared, and which of the model's these are."""
    known = records.part_names(dataset)
    place = dataset.path or "the data set"
    if not known:
        raise errors.EvaluationError(f"{place} has no landmarks (<part>) to compare with")
    count = predictor.part_count
    model = landmarks if isinstance(landmarks, Path) else "the model"
    if terms and len(known) == count:
        names, unknown = landmark_schemes.expand_parts(terms, known)
        columns = [known.index(name) for name in names]
    else:
        if not terms and len(known) != count and isinstance(landmarks, Path):
            terms = _trained_parts(landmarks)
            # Names that a record has may mean other landmarks here, where numbers begin at 1.
            shown = part_order.group_of_shape(predictor.initial_shape, known)
            groups = {landmark_schemes.expand_parts([name], known)[0] for name in _GROUPS} - {()}
            if shown and landmark_schemes.expand_parts(terms, known)[0] not in groups:
                terms = (shown,)
        names, unknown = part_order.find_model_parts(known, predictor.initial_shape, terms)
        columns = list(range(count))
    if unknown:
        raise errors.EvaluationError(
            f"{place} has no landmarks that are called {', '.join(unknown[:6])}; expected names "
            f"({_shorten_names(known)}), ranges of numbers (36-47), or groups of iBUG's 68 "
            f"({', '.join(_GROUPS)})"
        )
    if len(names) != len(columns):
        raise errors.EvaluationError(
            f"{model} places {count} landmarks, and {place} has "
            f"{len(names) or len(known)} ({_shorten_names(names or known)}); test on data of the "
            "same scheme, or name the model's landmarks (parts, for example eyes or 36-47)"
        )
    return names, columns


def _shorten_names(names: Sequence[str]) -> str:
    return f"{', '.join(names[:4])} ..." if len(names) > 4 else ", ".join(names)


def _trained_parts(model_file: Path) -> tuple[str, ...]:
    record = training_record.read_training_metadata(model_file) or {}
    # In whatever order they were asked for, dlib numbers landmarks by their sorted names.
    return tuple(sorted(record.get("settings", {}).get("parts", ())))


def _testable_faces(
    dataset: records.FaceDataset, names: Sequence[str], normaliser: landmark_scores.Normaliser
) -> tuple[list[tuple[int, records.AnnotatedImage, list[tuple[records.FaceBox, float]]]], int]:
    """Return images with their testable boxes and scales, and the number of other boxes."""
    jobs = []
    skipped = 0
    for index, image in enumerate(dataset.images):
        boxes = [box for box in image.boxes if not box.ignore]
        scaled = [
            (box, normaliser.scale(records.parts_array(box, names), box.corners)) for box in boxes
        ]
        usable = [
            (box, scale)
            for box, scale in scaled
            if scale > 0 and any(name in box.parts for name in names)
        ]
        skipped += len(boxes) - len(usable)
        if usable:
            jobs.append((index, image, usable))
    return jobs, skipped


def _measure(
    place: Callable[[UInt8, Sequence[Corners]], Float64],
    names: Sequence[str],
    index: int,
    image: records.AnnotatedImage,
    boxes: Sequence[tuple[records.FaceBox, float]],
) -> list[landmark_scores.FaceErrors]:
    grey = to_grey(read_image(image.path, apply_orientation=False))
    placed = place(grey, [box.corners for box, _ in boxes])
    truth = np.stack([records.parts_array(box, names) for box, _ in boxes])
    unknown = np.full(len(truth), np.nan)
    ears, marked_ears = (
        unknown if (ratios := mean_eye_aspect_ratio(shapes, names)) is None else ratios
        for shapes in (placed, truth)
    )
    return [
        landmark_scores.FaceErrors(
            image=image.path.name,
            image_index=index,
            line=box.line,
            scale_px=scale,
            errors=np.linalg.norm(points - marked, axis=1) / scale,
            ear=float(ear),
            marked_ear=float(marked_ear),
        )
        for points, marked, ear, marked_ear, (box, scale) in zip(
            placed, truth, ears, marked_ears, boxes, strict=True
        )
    ]
