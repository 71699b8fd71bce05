"""Detectors and landmark models of every format, and the only use of dlib's detectors."""

import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import astuple, dataclass
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

import numpy as np
from numpy.typing import NDArray

from aggregators.errors import FormatError
from aggregators.formats import read_model, recognise
from aggregators.models import FhogDetector, ForestEnsemble, ShapePredictor
from aggregators.predictors import LandmarkPredictor
from site_agent.errors import FaceModelError, ImageFileError
from site_agent.pictures.images import read_image
from site_agent.work import Progress
from site_agent.work.workers import LocalWorkers

UInt8 = NDArray[np.uint8]

DETECTOR_FORMAT = "dlib-fhog-detector"
STOCK_NAME = "dlib frontal face detector"


@dataclass(frozen=True)
class Detection:
    """One face: dlib's inclusive pixel rectangle, its score, and which detector found it."""

    left: float
    top: float
    right: float
    bottom: float
    score: float
    detector_index: int

    @property
    def width(self) -> float:
        return self.right - self.left + 1.0

    @property
    def height(self) -> float:
        return self.bottom - self.top + 1.0

    @property
    def area(self) -> float:
        return self.width * self.height


@dataclass(frozen=True, eq=False)
class FaceDetector:
    """One or several HOG-SVM detectors, run together.

    `smallest_face_px` is the width of the smallest face that is found without upsampling,
    `default_upsample` how often the file asks for the image to be doubled.
    """

    name: str
    path: Path | None
    detector_count: int
    smallest_face_px: int
    default_upsample: int
    _native: Any

    def detect(
        self, image: UInt8, upsample: int | None = None, threshold: float = 0.0
    ) -> list[Detection]:
        """Find the faces of an image.

        `upsample`: how often to double the image first; each time faces of half the size are found,
        at four times the cost.
        """
        doublings = self.default_upsample if upsample is None else upsample
        pixels = np.ascontiguousarray(image)
        boxes, scores, indices = self._native.run(pixels, doublings, threshold)
        detections = [
            Detection(
                float(box.left()),
                float(box.top()),
                float(box.right()),
                float(box.bottom()),
                float(score),
                int(index),
            )
            for box, score, index in zip(boxes, scores, indices, strict=True)
        ]
        return sorted(detections, key=lambda detection: -detection.score)


def open_detector(path: Path | str | None = None) -> FaceDetector:
    """Open a detector file (``.svm``, both kinds), or dlib's stock detector when none is given."""
    import dlib

    if path is None:
        native = _stock_detector()
        width = int(native.detection_window_width)
        return FaceDetector(STOCK_NAME, None, int(native.num_detectors), width, 0, native)
    path = Path(path)
    model = _read_detector(path)
    try:
        native = dlib.fhog_object_detector(str(path))
    except RuntimeError as error:
        raise FaceModelError(f"{path}: dlib cannot load this detector: {error}") from error
    return FaceDetector(
        name=path.name,
        path=path,
        detector_count=model.detector_count,
        smallest_face_px=model.window_width_px,
        default_upsample=model.upsampling or 0,
        _native=native,
    )


@cache
def _stock_detector() -> Any:
    # To open it takes half a second. dlib holds the interpreter's lock while one runs.
    import dlib

    return dlib.get_frontal_face_detector()


def _read_detector(path: Path) -> FhogDetector:
    """Check the file with our own reader: dlib may fail badly on a damaged one."""
    try:
        kind = recognise(path)
        if kind.name != DETECTOR_FORMAT:
            raise FaceModelError(
                f"{path}: found {kind.summary}, expected a face detector (.svm); "
                "a landmark model is given with --landmarks"
            )
        model = read_model(path)
    except FormatError as error:
        raise FaceModelError(f"{error}; expected a face detector (.svm)") from error
    except OSError as error:
        raise FaceModelError(f"{path}: {error.strerror or error}") from error
    assert isinstance(model, FhogDetector)
    return model


def open_landmarks(path: Path | str) -> LandmarkPredictor:
    """Open a landmark model: dlib's ``.dat``, or this project's forest file."""
    path = Path(path)
    try:
        kind = recognise(path)
        model = read_model(path)
    except FormatError as error:
        raise FaceModelError(f"{error}; expected a landmark model (.dat)") from error
    except OSError as error:
        raise FaceModelError(f"{path}: {error.strerror or error}") from error
    if not isinstance(model, ShapePredictor | ForestEnsemble):
        hint = "; a detector is given with --detector" if isinstance(model, FhogDetector) else ""
        raise FaceModelError(
            f"{path}: found {kind.summary}, expected a landmark model (.dat){hint}"
        )
    return LandmarkPredictor(model)


Item = TypeVar("Item")
Result = TypeVar("Result")

# Starting a process and loading dlib in it takes about this long; less work is done in this one.
_PROCESS_START_S = 3.0
_TRIED_FIRST = 3


class DetectionTask(NamedTuple):
    """One image to find faces in."""

    path: Path
    upsample: int | None
    threshold: float
    apply_orientation: bool
    skip_unreadable: bool = False


class DetectedImage(NamedTuple):
    """The detections in one image, best score first."""

    width_px: int
    height_px: int
    detections: list[Detection]
    problem: str = ""
    """The reason why it could not be read."""


def in_threads(
    function: Callable[[Item], Result], items: Iterable[Item], workers: int
) -> Iterator[Result]:
    """Map in threads, in order; no more than twice `workers` results wait at any time."""
    if workers <= 1:
        yield from map(function, items)
        return
    with ThreadPoolExecutor(workers) as pool:
        waiting: deque[Future[Result]] = deque()
        try:
            for item in items:
                waiting.append(pool.submit(function, item))
                if len(waiting) > 2 * workers:
                    yield waiting.popleft().result()
            while waiting:
                yield waiting.popleft().result()
        finally:
            for future in waiting:
                future.cancel()


def detect_in_images(
    detector: FaceDetector, tasks: Sequence[DetectionTask], workers: int = 1
) -> Iterator[DetectedImage]:
    """Find the faces of many images, in order.

    dlib holds the interpreter's lock, so more than one worker means more than one process; these
    are started only when the first images say that it pays.
    """
    started = time.monotonic()
    first = min(len(tasks), _TRIED_FIRST) if workers > 1 else len(tasks)
    for task in tasks[:first]:
        yield detect_in_image(detector, task)
    rest = tasks[first:]
    expected_s = (time.monotonic() - started) / max(1, first) * len(rest)
    if expected_s < 2 * _PROCESS_START_S:
        for task in rest:
            yield detect_in_image(detector, task)
        return
    payloads = ((detector.path, task._replace(skip_unreadable=True)) for task in rest)
    with LocalWorkers(workers, advice="use fewer processes", tasks_each=None) as pool:
        for task, event in zip(rest, pool.map(_detect_in_worker, payloads), strict=True):
            if "failed" in event:
                raise FaceModelError(f"{task.path}: {event['failed']}")
            width_px, height_px, detections, problem = event["done"]
            if problem and not task.skip_unreadable:
                raise ImageFileError(problem)
            faces = [Detection(*values) for values in detections]
            yield DetectedImage(width_px, height_px, faces, problem)


def detect_in_image(detector: FaceDetector, task: DetectionTask) -> DetectedImage:
    """Read one image and find its faces."""
    try:
        image = read_image(task.path, apply_orientation=task.apply_orientation)
    except ImageFileError as error:
        if not task.skip_unreadable:
            raise
        return DetectedImage(0, 0, [], str(error))
    detections = detector.detect(image, task.upsample, task.threshold)
    return DetectedImage(image.shape[1], image.shape[0], detections)


def _detect_in_worker(payload: tuple[Path | None, DetectionTask], _progress: Progress) -> list[Any]:
    """Return a `DetectedImage` as JSON has it; a worker opens its detector once."""
    path, task = payload
    width_px, height_px, detections, problem = detect_in_image(_opened(path), task)
    return [width_px, height_px, [astuple(face) for face in detections], problem]


_opened = cache(open_detector)
