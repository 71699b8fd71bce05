"""Scores of a face detector on an annotated data set.

The rules are dlib's (``test_simple_object_detector``), and so are the numbers: a detection is
right when it covers a face that no better one covers already; two boxes cover each other when
their common area is more than half of the smallest rectangle *around* both. Detections on boxes
marked `ignore` do not count. The average precision is taken over the detections above the
threshold alone; a lower `threshold` gathers more of them and changes recall and precision, too.

With `upsample` dlib compares boxes in the enlarged image and this module in the image itself, to
which dlib maps its detections back in whole pixels; a face on the very edge of the rule may come
out differently.
"""

import os
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from site_agent.datasets.records import AnnotatedImage, FaceDataset
from site_agent.errors import EvaluationError
from site_agent.evaluation import Interval, bootstrap_intervals
from site_agent.faces import models
from site_agent.plain_json import plain
from site_agent.work import Progress, no_progress

Float64 = NDArray[np.float64]
Bool = NDArray[np.bool_]
MATCH_THRESHOLD = 0.5


@dataclass(frozen=True, eq=False)
class ImageMatches:
    """The detections of one image, held against its boxes."""

    image: str
    scores: Float64
    """Of shape (detections,). Of the detections that count, best first."""
    hits: Bool
    faces: int
    missed: int
    ignored: int


@dataclass(frozen=True, eq=False)
class DetectionScores:
    """Scores of a detector on a data set."""

    recall: float
    precision: float
    f1: float
    average_precision: float
    true_positives: int
    false_positives: int
    false_negatives: int
    images: int
    faces: int
    ignored_detections: int
    intervals: dict[str, Interval]
    threshold: float
    upsample: int
    per_image: tuple[ImageMatches, ...] = field(repr=False)
    curve: tuple[ImageMatches, ...] = field(repr=False, default=())
    """The same with detections below the threshold, for `precision_recall`; empty where none were
    gathered."""

    @property
    def protocol(self) -> str:
        """A few words on how the scores were measured, so that only like is compared with like."""
        return (
            f"overlap {MATCH_THRESHOLD:g}, threshold {self.threshold:g}, upsampling {self.upsample}"
        )

    @property
    def metrics(self) -> dict[str, float]:
        """The headline numbers by name, for upload and tables."""
        names = ("recall", "precision", "f1", "average_precision")
        return {name: getattr(self, name) for name in names}

    def precision_recall(self) -> tuple[Float64, Float64, Float64]:
        """Return scores, precision and recall at each detection, from the best one on.

        It goes on below the threshold as far as detections were gathered there.
        """
        scores, hits, _ = _rank(self.curve or self.per_image)
        true_positives = np.cumsum(hits)
        return (
            scores,
            true_positives / np.arange(1, len(hits) + 1),
            true_positives / max(1, self.faces),
        )

    def to_dict(self, *, per_image: bool = False) -> dict[str, Any]:
        """Return plain data for JSON; names of images only when asked for."""
        described = {"kind": "hog-svm", **plain(replace(self, curve=()))}
        del described["curve"]
        if not per_image:
            del described["per_image"]
        return described


def evaluate_detector(
    detector: models.FaceDetector | Path,
    dataset: FaceDataset,
    *,
    upsample: int | None = None,
    threshold: float = 0.0,
    curve_below: float = 0.0,
    resamples: int = 1000,
    workers: int = 1,
    progress: Progress = no_progress,
) -> DetectionScores:
    """Run a detector on every image of a data set and count its hits and false alarms.

    `dataset`: Images without boxes count, too: all detections there are wrong. `upsample`: How
    often images are doubled first; by default as the detector file says. `curve_below`: How
    far below that detections are gathered for the curve of precision over recall; all other numbers
    stay the same. `workers`: Processes at once; 0: as many as the machine has processors.
    """
    if not isinstance(detector, models.FaceDetector):
        detector = models.open_detector(detector)
    if not any(True for _ in dataset.boxes()):
        raise EvaluationError(
            f"{dataset.path or 'the data set'} has no face boxes to compare detections with"
        )
    lowest = threshold - max(0.0, curve_below)
    tasks = [models.DetectionTask(image.path, upsample, lowest, False) for image in dataset.images]
    matches, curve = [], []
    detections = models.detect_in_images(detector, tasks, workers or os.cpu_count() or 1)
    for image, result in zip(dataset.images, detections, strict=True):
        # Better detections never give way to worse ones, so leaving these out afterwards is the
        # same as not having found them.
        above = [d for d in result.detections if d.score >= threshold]
        matches.append(_match(image, above))
        if curve_below > 0:
            curve.append(_match(image, result.detections))
        count = len(matches)
        progress(count / len(tasks), f"image {count} of {len(tasks)}")
    scores = summarise_detections(
        matches,
        threshold=threshold,
        upsample=detector.default_upsample if upsample is None else upsample,
        resamples=resamples,
    )
    return replace(scores, curve=tuple(curve))


def _match(image: AnnotatedImage, detections: Sequence[models.Detection]) -> ImageMatches:
    return match_image(
        [box.corners for box in image.boxes if not box.ignore],
        [box.corners for box in image.boxes if box.ignore],
        [(d.left, d.top, d.right, d.bottom) for d in detections],
        [d.score for d in detections],
        image=image.path.name,
    )


def match_image(
    faces: Sequence[Sequence[float]],
    ignored: Sequence[Sequence[float]],
    detections: Sequence[Sequence[float]],
    scores: Sequence[float],
    *,
    image: str = "",
) -> ImageMatches:
    """Hold the detections of one image against its boxes.

    Each face in turn takes the best-scored detection that covers it and that no face before it
    has taken; of the others, those on ignored boxes are left out.

    `scores`: Of the detections, best first.
    """
    matched = np.zeros(len(detections), dtype=bool)
    covers = overlap_scores(faces, detections) > MATCH_THRESHOLD
    missed = 0
    for row in covers:
        free = np.flatnonzero(row & ~matched)
        if free.size:
            matched[free[0]] = True
        else:
            missed += 1
    on_ignored = (overlap_scores(ignored, detections) > MATCH_THRESHOLD).any(axis=0)
    counts = matched | ~on_ignored
    return ImageMatches(
        image=image,
        scores=np.asarray(scores, dtype=np.float64)[counts],
        hits=matched[counts],
        faces=len(faces),
        missed=missed,
        ignored=int((~counts).sum()),
    )


def overlap_scores(first: Sequence[Sequence[float]], second: Sequence[Sequence[float]]) -> Float64:
    """Return common area over that of the rectangle around both, shape (first, second)."""
    a = np.asarray(first, dtype=np.float64).reshape(-1, 1, 4)
    b = np.asarray(second, dtype=np.float64).reshape(1, -1, 4)
    common = np.minimum(a[..., 2:], b[..., 2:]) - np.maximum(a[..., :2], b[..., :2]) + 1
    around = np.maximum(a[..., 2:], b[..., 2:]) - np.minimum(a[..., :2], b[..., :2]) + 1
    shares: Float64 = np.maximum(common, 0).prod(axis=-1) / around.prod(axis=-1)
    return shares


def average_precision(hits: Bool, missed: int, weights: Float64 | None = None) -> float:
    """Average precision of ranked detections, as dlib computes it."""
    counts = np.ones(len(hits)) if weights is None else weights
    right = np.cumsum(counts * hits)
    everything = np.cumsum(counts)
    precision = np.divide(right, everything, out=np.zeros(len(hits)), where=everything > 0)
    # A detection is credited with the best precision at or below its rank.
    best = np.maximum.accumulate(np.where(hits, precision, 0.0)[::-1])[::-1]
    relevant = (counts * hits).sum() + missed
    return float((best * counts * hits).sum() / relevant) if relevant else 1.0


def summarise_detections(
    matches: Sequence[ImageMatches],
    *,
    threshold: float = 0.0,
    upsample: int = 0,
    resamples: int = 1000,
) -> DetectionScores:
    """Make scores of the matches of all images."""
    once = np.ones(len(matches), dtype=np.int64)
    statistics = _Statistics(matches)
    scores = statistics(once)
    hits = int(sum(match.hits.sum() for match in matches))
    counted = sum(len(match.hits) for match in matches)
    return DetectionScores(
        **scores,
        true_positives=hits,
        false_positives=counted - hits,
        false_negatives=sum(match.missed for match in matches),
        images=len(matches),
        faces=sum(match.faces for match in matches),
        ignored_detections=sum(match.ignored for match in matches),
        intervals=bootstrap_intervals(statistics, len(matches), resamples=resamples),
        threshold=threshold,
        upsample=upsample,
        per_image=tuple(matches),
        curve=(),
    )


class _Statistics:
    def __init__(self, matches: Sequence[ImageMatches]) -> None:
        _, self._ranked_hits, self._ranked_images = _rank(matches)
        self._hits = np.array([match.hits.sum() for match in matches], dtype=np.int64)
        self._counted = np.array([len(match.hits) for match in matches], dtype=np.int64)
        self._faces = np.array([match.faces for match in matches], dtype=np.int64)
        self._missed = np.array([match.missed for match in matches], dtype=np.int64)

    def __call__(self, times: NDArray[np.int64]) -> dict[str, float]:
        hits = int((self._hits * times).sum())
        counted, faces = int((self._counted * times).sum()), int((self._faces * times).sum())
        missed = int((self._missed * times).sum())
        recall = hits / faces if faces else 1.0
        precision = hits / counted if counted else 1.0
        weights = times[self._ranked_images].astype(np.float64)
        return {
            "recall": recall,
            "precision": precision,
            "f1": 2 * recall * precision / (recall + precision) if recall + precision else 0.0,
            "average_precision": average_precision(self._ranked_hits, missed, weights),
        }


def _rank(matches: Sequence[ImageMatches]) -> tuple[Float64, Bool, NDArray[np.int64]]:
    """Return the detections of all images, best first; of equal scores, right ones first."""
    scores = np.concatenate([np.zeros(0), *(match.scores for match in matches)])
    hits = np.concatenate([np.zeros(0, dtype=bool), *(match.hits for match in matches)])
    images = np.repeat(np.arange(len(matches)), [len(match.hits) for match in matches])
    order = np.lexsort((~hits, -scores))
    return scores[order], hits[order], images[order]
