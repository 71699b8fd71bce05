"""Running models over many images, several at once, in order and with bounded memory."""

from __future__ import annotations

import multiprocessing
import signal
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Executor, Future, ProcessPoolExecutor, ThreadPoolExecutor
from pathlib import Path
from typing import NamedTuple, TypeVar

from site_agent.errors import ImageFileError
from site_agent.faces.models import Detection, FaceDetector, open_detector
from site_agent.pictures.images import read_image

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
    """What was found in one image, best score first; `problem` says why it could not be read."""

    width_px: int
    height_px: int
    detections: list[Detection]
    problem: str = ""


def in_threads(
    function: Callable[[Item], Result], items: Iterable[Item], workers: int
) -> Iterator[Result]:
    """Map in threads, in order; no more than twice `workers` results wait at any time."""
    if workers <= 1:
        yield from map(function, items)
        return
    with ThreadPoolExecutor(workers) as pool:
        yield from _in_order(pool, function, items, workers)


def detect_in_images(
    detector: FaceDetector, tasks: Sequence[DetectionTask], workers: int = 1
) -> Iterator[DetectedImage]:
    """Find the faces of many images, in order.

    dlib holds the interpreter's lock, so more than one worker means more than one process; these
    are started only when the first images say that it pays. A script that asks for several
    workers must guard its main part with ``if __name__ == "__main__":``.
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
    # A forked process could inherit locks that threads of this one hold.
    context = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(workers, context, _open_here, (detector.path,)) as pool:
        yield from _in_order(pool, _detect_here, rest, workers)


def detect_in_image(detector: FaceDetector, task: DetectionTask) -> DetectedImage:
    """Read one image and find its faces."""
    try:
        image = read_image(task.path, apply_orientation=task.apply_orientation)
    except ImageFileError as error:
        if not task.skip_unreadable:
            raise
        return DetectedImage(0, 0, [], str(error))
    found = detector.detect(image, task.upsample, task.threshold)
    return DetectedImage(image.shape[1], image.shape[0], found)


_OPENED: list[FaceDetector] = []
"""In a worker process: its detector."""


def _open_here(path: Path | None) -> None:
    # Ctrl-C in a terminal reaches all processes; the one that the user started ends the others.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    _OPENED[:] = [open_detector(path)]


def _detect_here(task: DetectionTask) -> DetectedImage:
    return detect_in_image(_OPENED[0], task)


def _in_order(
    pool: Executor, function: Callable[[Item], Result], items: Iterable[Item], workers: int
) -> Iterator[Result]:
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
