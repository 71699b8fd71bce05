"""Scores of a landmark model, made of the errors of single faces.

Errors in pixels are divided by a measure of the face (`Normaliser`), so that large and small
faces count alike.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, field, fields
from typing import Any

import numpy as np
from numpy.typing import NDArray

from site_agent.datasets.landmark_schemes import PART_GROUPS, ibug_places
from site_agent.errors import EvaluationError
from site_agent.evaluation import Interval, bootstrap_intervals
from site_agent.plain_json import plain

Float64 = NDArray[np.float64]

_IBUG_EYES = (PART_GROUPS["right-eye"], PART_GROUPS["left-eye"])
_IBUG_OUTER_CORNERS = (range(36, 37), range(45, 46))
NAMES = ("inter-ocular", "outer-corners", "box", "none")


@dataclass(frozen=True)
class Normaliser:
    """A length in the face."""

    name: str
    first: tuple[int, ...] = ()
    second: tuple[int, ...] = ()
    """Indices of the landmarks of the two groups, empty for ``"box"`` and ``"none"``."""

    def scale(self, parts: Float64, corners: tuple[int, int, int, int]) -> float:
        """Return the length in pixels, NaN where a landmark of it is not marked.

        `parts` (float64, shape (parts, 2)): True landmarks, NaN where one is not marked.
        """
        if self.name == "none":
            return 1.0
        if self.name == "box":
            left, top, right, bottom = corners
            return math.sqrt((right - left + 1) * (bottom - top + 1))
        between = parts[list(self.first)].mean(axis=0) - parts[list(self.second)].mean(axis=0)
        return float(np.hypot(*between))


def normaliser_for(names: Sequence[str], requested: str | None = None) -> Normaliser:
    """Choose a normaliser for landmarks of these names.

    `requested`: One of `NAMES`. By default
    ``"inter-ocular"`` where the landmarks are iBUG's 68, or an excerpt of them that is named by
    their numbers and has both eyes; ``"box"`` otherwise.
    """
    if requested is None:
        eyes = _ibug_groups(names, _IBUG_EYES)
        return Normaliser("inter-ocular", *eyes) if eyes else Normaliser("box")
    if requested in ("box", "none"):
        return Normaliser(requested)
    if requested in ("inter-ocular", "outer-corners"):
        numbers = _IBUG_EYES if requested == "inter-ocular" else _IBUG_OUTER_CORNERS
        groups = _ibug_groups(names, numbers)
        if groups is None:
            raise EvaluationError(
                f"the normaliser {requested!r} needs the eyes of the 68-landmark scheme, and there "
                f"are {len(names)} landmarks; use 'box'"
            )
        return Normaliser(requested, *groups)
    raise EvaluationError(f"unknown normaliser {requested!r}; expected {', '.join(NAMES)}")


def _ibug_groups(
    names: Sequence[str], groups: Sequence[Sequence[int]]
) -> tuple[tuple[int, ...], tuple[int, ...]] | None:
    """Return the indices of landmarks with these iBUG numbers; None where there are none."""
    place = ibug_places(names)
    if any(number not in place for group in groups for number in group):
        return None
    first, second = (tuple(place[number] for number in group) for group in groups)
    return first, second


FAILURE_THRESHOLDS = (0.08, 0.10)
CLOSED_EAR = 0.15
"""Eyes with a marked eye aspect ratio below this count as closed."""
_EYE_MEASURES = ("eye_error", "ear_error", "closed_ear_error", "ear_range")
# A range cannot be measured where all eyes are about equally open.
_LEAST_EAR_DEVIATION = 0.02


@dataclass(frozen=True, eq=False)
class FaceErrors:
    """The errors of one face."""

    image: str
    image_index: int
    line: int
    scale_px: float
    errors: Float64
    """Of shape (parts,). Normalised, NaN for landmarks that are not marked."""
    ear: float = float("nan")
    marked_ear: float = float("nan")
    """Eye aspect ratio (mean of both eyes) of the predicted and of the annotated landmarks; NaN
    where the eyes are not known."""

    @property
    def ear_error(self) -> float:
        return abs(self.ear - self.marked_ear)

    @property
    def mean(self) -> float:
        """Mean error of the face."""
        return float(np.nanmean(self.errors))


@dataclass(frozen=True, eq=False)
class LandmarkScores:
    """Scores of a landmark model on a data set."""

    mean_error: float
    median_error: float
    failure_rate: float
    failure_rate_at_10: float
    """Share of the faces with a mean error above 0.08, above 0.10."""
    auc: float
    """Area under the curve of the part of faces up to each error, from 0 to 0.08, over 0.08."""
    mean_error_px: float
    eye_error: float | None
    """Mean error of the eyes' landmarks alone, where they are known."""
    ear_error: float | None
    """Mean over the faces of how far the eye aspect ratio is off, where the eyes are known: the
    error of the distance between the lids, in widths of an eye."""
    closed_ear_error: float | None
    """The same over faces with closed eyes; None without such faces."""
    ear_range: float | None
    """Part of the marked range between open and closed eyes that the model shows: the slope of the
    regression of predicted on marked eye aspect ratios. 1: the landmarks follow the lids; 0.5: they
    go half the way. It predicts how well blinks are found. None where the marked ratios hardly
    differ."""
    normaliser: str
    images: int
    faces: int
    parts: int
    skipped_faces: int
    intervals: dict[str, Interval]
    per_landmark: Float64 = field(repr=False)
    names: tuple[str, ...] = field(repr=False)
    per_face: tuple[FaceErrors, ...] = field(repr=False)

    @property
    def protocol(self) -> str:
        """A few words on how the scores were measured, so that only like is compared with like."""
        return f"{self.normaliser}, {self.parts} landmarks"

    @property
    def metrics(self) -> dict[str, float]:
        """The headline numbers by name, for upload and tables."""
        eyes = {name: getattr(self, name) for name in _EYE_MEASURES}
        return {
            "mean_error": self.mean_error,
            "median_error": self.median_error,
            "failure_rate": self.failure_rate,
            "failure_rate_at_10": self.failure_rate_at_10,
            "auc": self.auc,
            **{name: value for name, value in eyes.items() if value is not None},
        }

    def cumulative_errors(self) -> tuple[Float64, Float64]:
        """Return the errors of the faces in rising order, and the part of faces up to each."""
        errors = np.sort([face.mean for face in self.per_face])
        return errors, np.arange(1, len(errors) + 1) / len(errors)

    def to_dict(self, *, per_image: bool = False) -> dict[str, Any]:
        """Return plain data for JSON; names of images only when asked for."""
        values = {
            entry.name: getattr(self, entry.name)
            for entry in fields(self)
            if entry.name not in {"names", "per_face", "per_landmark"}
        }
        errors = dict(zip(self.names, self.per_landmark, strict=True))
        described = {"kind": "ert", **plain(values), "per_landmark": plain(errors)}
        if per_image:
            described["per_face"] = [
                {
                    "image": face.image,
                    "line": face.line,
                    "error": face.mean,
                    "ear_error": plain(face.ear_error),
                    "scale_px": face.scale_px,
                }
                for face in self.per_face
            ]
        return described


def summarise_landmarks(
    faces: Sequence[FaceErrors],
    names: Sequence[str],
    normaliser: Normaliser,
    *,
    skipped_faces: int = 0,
    resamples: int = 1000,
) -> LandmarkScores:
    """Make scores of the errors of all faces."""
    errors = np.stack([face.errors for face in faces])
    in_pixels = errors * np.array([[face.scale_px] for face in faces])
    _, image_of_face = np.unique([face.image_index for face in faces], return_inverse=True)
    images = int(image_of_face.max()) + 1
    statistics = _Statistics(faces, names, image_of_face)
    scores = statistics(np.ones(images, dtype=np.int64))
    eye_measures: dict[str, Any] = {name: scores.pop(name, None) for name in _EYE_MEASURES}
    marked = ~np.isnan(errors)
    sums = np.where(marked, errors, 0.0).sum(axis=0)
    counts = marked.sum(axis=0)
    per_landmark = np.divide(sums, counts, out=np.full(len(names), np.nan), where=counts > 0)
    return LandmarkScores(
        **eye_measures,
        **scores,
        mean_error_px=float(np.nanmean(in_pixels)),
        normaliser=normaliser.name,
        images=images,
        faces=len(faces),
        parts=len(names),
        skipped_faces=skipped_faces,
        intervals=bootstrap_intervals(statistics, images, resamples=resamples),
        per_landmark=per_landmark,
        names=tuple(names),
        per_face=tuple(faces),
    )


class _Statistics:
    def __init__(
        self, faces: Sequence[FaceErrors], names: Sequence[str], image_of_face: NDArray[np.int64]
    ) -> None:
        errors = np.stack([face.errors for face in faces])
        self._sums, self._counts = _sums_and_counts(errors)
        self._means = self._sums / self._counts
        self._order = np.argsort(self._means, kind="stable")
        self._below = np.maximum(0.0, 1.0 - self._means / FAILURE_THRESHOLDS[0])
        self._image_of_face = image_of_face
        self._extra: dict[str, tuple[Float64, NDArray[np.int64]]] = {}
        eyes = normaliser_for(names)
        if eyes.name == "inter-ocular":
            of_eyes = errors[:, [*eyes.first, *eyes.second]]
            self._extra["eye_error"] = _sums_and_counts(of_eyes)
        ears = np.array([[face.ear_error] for face in faces])
        if np.isfinite(ears).any():
            self._extra["ear_error"] = _sums_and_counts(ears)
        self._ear, self._marked = (
            np.array([getattr(face, name) for face in faces]) for name in ("ear", "marked_ear")
        )
        closed = np.where(self._marked[:, None] < CLOSED_EAR, ears, np.nan)
        if np.isfinite(closed).any():
            self._extra["closed_ear_error"] = _sums_and_counts(closed)
        known = self._marked[np.isfinite(self._ear) & np.isfinite(self._marked)]
        self._has_range = len(known) > 1 and float(np.std(known)) >= _LEAST_EAR_DEVIATION

    def __call__(self, times: NDArray[np.int64]) -> dict[str, float]:
        weights = times[self._image_of_face]
        total = int(weights.sum())
        near, far = FAILURE_THRESHOLDS
        return {
            "mean_error": _weighted_mean(weights, self._sums, self._counts),
            "median_error": self._median(weights, total),
            "failure_rate": float(weights[self._means > near].sum() / total),
            "failure_rate_at_10": float(weights[self._means > far].sum() / total),
            "auc": float((weights * self._below).sum() / total),
            **{name: _weighted_mean(weights, *extra) for name, extra in self._extra.items()},
            **({"ear_range": self._ear_range(weights)} if self._has_range else {}),
        }

    def _ear_range(self, weights: NDArray[np.int64]) -> float:
        """Return the slope of the weighted regression of predicted on marked eye aspect ratios."""
        known = np.isfinite(self._ear) & np.isfinite(self._marked) & (weights > 0)
        weight, ear, marked = weights[known], self._ear[known], self._marked[known]
        centred = marked - np.average(marked, weights=weight) if weight.sum() else marked
        squares = float((weight * centred**2).sum())
        return float((weight * centred * ear).sum()) / squares if squares else float("nan")

    def _median(self, weights: NDArray[np.int64], total: int) -> float:
        ends = np.cumsum(weights[self._order])
        middle = np.searchsorted(ends, [(total - 1) // 2, total // 2], side="right")
        return float(self._means[self._order][middle].mean())


def _sums_and_counts(errors: Float64) -> tuple[Float64, NDArray[np.int64]]:
    """Sum and number of the known values of each row."""
    known = ~np.isnan(errors)
    return np.where(known, errors, 0.0).sum(axis=1), known.sum(axis=1)


def _weighted_mean(weights: NDArray[np.int64], sums: Float64, counts: NDArray[np.int64]) -> float:
    """Mean of all values, NaN where a resample has none."""
    total = (weights * counts).sum()
    return float((weights * sums).sum() / total) if total else float("nan")
