"""Faces and landmarks of still images, for `poolctl predict`.

A detector finds the boxes, and a landmark model may place landmarks in them.
"""

import os
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from aggregators.predictors import LandmarkPredictor
from site_agent.datasets.records import AnnotatedImage, FaceBox, FaceDataset, numbered_parts
from site_agent.errors import ImageFileError, InvalidInputError
from site_agent.faces import models
from site_agent.pictures import images as image_files
from site_agent.work import Progress, no_progress

Float64 = NDArray[np.float64]
_MOST_THREADS = 8


@dataclass(frozen=True, eq=False)
class PredictedFace:
    """One face of an image. All four edges are inside the box."""

    box: tuple[float, float, float, float]
    score: float
    detector_index: int
    """Of several detectors in one file."""
    landmarks: Float64 | None = None
    """Shape (parts, 2), not rounded."""

    def to_dict(self) -> dict[str, Any]:
        """Return plain data for JSON."""
        left, top, right, bottom = self.box
        return {
            "left": left,
            "top": top,
            "right": right,
            "bottom": bottom,
            "width": right - left + 1,
            "height": bottom - top + 1,
            "score": self.score,
            "detector_index": self.detector_index,
            "landmarks": None if self.landmarks is None else self.landmarks.tolist(),
        }


@dataclass(frozen=True, eq=False)
class ImagePrediction:
    """The faces of one image; coordinates are in the picture as its EXIF data turn it."""

    path: Path
    width_px: int
    height_px: int
    faces: tuple[PredictedFace, ...]
    problem: str = ""

    def to_dict(self) -> dict[str, Any]:
        """Return plain data for JSON."""
        return {
            "image": str(self.path),
            "width_px": self.width_px,
            "height_px": self.height_px,
            "faces": [face.to_dict() for face in self.faces],
        } | ({"problem": self.problem} if self.problem else {})


def find_images(paths: Iterable[Path | str]) -> list[Path]:
    """Return the images that files and folders name, each once, in the order given."""
    images = list(dict.fromkeys(image for path in paths for image in image_files.list_images(path)))
    if not images:
        raise InvalidInputError("no images were given; name image files or folders")
    return images


def predict_images(
    images: Sequence[Path],
    *,
    detector: models.FaceDetector | Path | str,
    landmarks: LandmarkPredictor | Path | str | None = None,
    upsample: int | None = None,
    threshold: float = 0.0,
    workers: int = 1,
    skip_unreadable: bool = False,
    progress: Progress = no_progress,
) -> Iterator[ImagePrediction]:
    """Find faces, and place landmarks if there is a model of them.

    Errors of the request are raised at once, before the first image is requested; images
    are then read as they are asked for.

    Parameters
    ----------
    images : sequence of paths
        Image files as from `find_images`.
    workers : int
        Processes for detection; 0: as many as the machine has processors. A script that asks for
        more than one must guard its main part with ``if __name__ == "__main__":``.
    skip_unreadable : bool
        `problem` of their predictions has the reason.
    """
    if not images:
        raise InvalidInputError("no images were given; name image files or folders")
    if not isinstance(detector, models.FaceDetector):
        detector = models.open_detector(detector)
    if landmarks is not None and not isinstance(landmarks, LandmarkPredictor):
        landmarks = models.open_landmarks(landmarks)
    tasks = [
        models.DetectionTask(path, upsample, threshold, True, skip_unreadable) for path in images
    ]
    detected = _detected(detector, tasks, workers)
    predictions = _with_landmarks(detected, landmarks, skip_unreadable=skip_unreadable)
    return _counted(predictions, len(tasks), progress)


def predictions_to_dataset(predictions: Iterable[ImagePrediction]) -> FaceDataset:
    """Make a data set of predictions, to correct by hand or to start a model from.

    Coordinates are of the pictures as they are stored: annotation tools ignore EXIF data.
    """
    images = tuple(
        _annotated_image(prediction) for prediction in predictions if not prediction.problem
    )
    return FaceDataset(None, "predictions", "found by models, not marked by a person", images)


def _annotated_image(prediction: ImagePrediction) -> AnnotatedImage:
    orientation = image_files.exif_orientation(prediction.path)
    width_px, height_px = prediction.width_px, prediction.height_px

    def stored(face: PredictedFace) -> PredictedFace:
        corners = image_files.as_stored(
            np.reshape(face.box, (2, 2)), orientation, width_px, height_px
        )
        (left, top), (right, bottom) = corners.min(axis=0), corners.max(axis=0)
        points = face.landmarks
        return replace(
            face,
            box=(float(left), float(top), float(right), float(bottom)),
            landmarks=None
            if points is None
            else image_files.as_stored(points, orientation, width_px, height_px),
        )

    sides = (
        (height_px, width_px) if orientation >= image_files.FIRST_LYING else (width_px, height_px)
    )
    return AnnotatedImage(
        path=prediction.path,
        boxes=tuple(_face_box(stored(face)) for face in prediction.faces),
        width_px=sides[0],
        height_px=sides[1],
    )


_Found = tuple[Path, models.DetectedImage, tuple[PredictedFace, ...]]
"""An image, its detections, and its faces."""


def _detected(
    detector: models.FaceDetector, tasks: Sequence[models.DetectionTask], workers: int
) -> Iterator[_Found]:
    results = models.detect_in_images(detector, tasks, workers or os.cpu_count() or 1)
    for task, result in zip(tasks, results, strict=True):
        faces = tuple(
            PredictedFace((d.left, d.top, d.right, d.bottom), d.score, d.detector_index)
            for d in result.detections
        )
        yield task.path, result, faces


def _with_landmarks(
    pictures: Iterable[_Found], landmarks: LandmarkPredictor | None, *, skip_unreadable: bool
) -> Iterator[ImagePrediction]:
    def finish(item: _Found) -> ImagePrediction:
        try:
            return place(item)
        except ImageFileError as error:
            if not skip_unreadable:
                raise
            return ImagePrediction(item[0], 0, 0, (), str(error))

    def place(item: _Found) -> ImagePrediction:
        path, detected, faces = item
        if landmarks is None or not faces:
            size = detected.width_px, detected.height_px
            return ImagePrediction(path, *size, faces, detected.problem)
        image = image_files.read_image(path)
        placed = landmarks.predict(image, [face.box for face in faces])
        faces = tuple(
            replace(face, landmarks=points) for face, points in zip(faces, placed, strict=True)
        )
        return ImagePrediction(path, image.shape[1], image.shape[0], faces)

    threads = 1 if landmarks is None else min(_MOST_THREADS, os.cpu_count() or 1)
    return models.in_threads(finish, pictures, threads)


def _counted(
    predictions: Iterable[ImagePrediction], total: int, progress: Progress
) -> Iterator[ImagePrediction]:
    for count, prediction in enumerate(predictions, 1):
        progress(count / total, f"image {count} of {total}")
        yield prediction


def _face_box(face: PredictedFace) -> FaceBox:
    left, top, right, bottom = (int(np.floor(value + 0.5)) for value in face.box)
    return FaceBox(
        left=left,
        top=top,
        width=max(1, right - left + 1),
        height=max(1, bottom - top + 1),
        parts={} if face.landmarks is None else numbered_parts(face.landmarks),
        detection_score=face.score,
    )
