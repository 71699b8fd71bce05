"""The table of a study, in the paper's form, and the scores that it keeps of each model.

Faces and images are kept without names: a study's folder may be published, its pictures not.
"""

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

import numpy as np

from aggregators.whole_file import write_whole
from site_agent.errors import InvalidInputError
from site_agent.evaluation.detection import DetectionScores, ImageMatches
from site_agent.evaluation.landmark_scores import FaceErrors, LandmarkScores
from site_agent.plain_json import plain
from site_agent.studies.protocol import Row, StudyKind

HEADLINE: Mapping[StudyKind, tuple[str, ...]] = {
    "landmarks": ("mean_error",),
    "detectors": ("recall", "precision"),
}
"""The metrics of the paper's tables."""


@dataclass(frozen=True)
class TableLine:
    """One line of the table."""

    row: Row
    scores: "Scores | None"
    model: str = ""
    """The model's file, relative to the study's folder; empty where there is none."""
    digest: str = ""
    size_bytes: int = 0
    took_s: float = 0.0
    reason: str = ""
    """Why there is no model, or why it has no scores."""
    warnings: tuple[str, ...] = ()

    def value(self, metric: str) -> float:
        """Return a score, NaN where there is none."""
        return math.nan if self.scores is None else self.scores.metrics.get(metric, math.nan)


@dataclass(frozen=True)
class StudyTable:
    """The table of a study."""

    kind: StudyKind
    name: str
    lines: tuple[TableLine, ...]
    remarks: tuple[str, ...]
    """The findings, and caveats about them."""

    @property
    def headline(self) -> tuple[str, ...]:
        return HEADLINE[self.kind]

    @property
    def metrics(self) -> list[str]:
        """All metrics that a line has a score by."""
        tables = [line.scores.metrics for line in self.lines if line.scores]
        return list(dict.fromkeys(name for metrics in tables for name in metrics))

    def best_alone(self) -> TableLine | None:
        """Return the best model of one part, None where none was scored."""
        metric = self.headline[0]
        alone = [line for line in self.lines if line.row.group == "alone" and line.scores]
        choose = min if self.kind == "landmarks" else max
        return choose(alone, key=lambda line: line.value(metric), default=None)

    def find(self, group: str, *, thinned: bool = False) -> TableLine | None:
        """Return the last scored line of a group, thinned models apart."""
        lines = [
            line
            for line in self.lines
            if line.row.group == group and line.scores and ("thinned" in line.row.name) is thinned
        ]
        return lines[-1] if lines else None

    def against(self, line: TableLine, other: TableLine | None) -> float:
        """Return how much larger the first score of a line is than another's, in per cent."""
        metric = self.headline[0]
        base = math.nan if other is None else other.value(metric)
        return 100 * (line.value(metric) / base - 1) if base > 0 else math.nan


# The scores of a model in a file: whole enough to draw all curves again.

SCHEMA = "poolctl-study-scores/1"
Scores = DetectionScores | LandmarkScores

_LISTS = {"per_image", "curve", "per_face", "per_landmark", "names", "intervals"}


def write_scores(scores: Scores, path: Path) -> None:
    """Write scores as JSON."""
    content = {"schema": SCHEMA, **scores.to_dict()}
    if isinstance(scores, LandmarkScores):
        content["landmarks"] = list(scores.names)
        content["face_errors"] = [face.mean for face in scores.per_face]
        content["face_images"] = [face.image_index for face in scores.per_face]
    else:
        content["per_image"] = [_plain_matches(image) for image in scores.per_image]
        content["curve"] = [_plain_matches(image) for image in scores.curve]
    write_whole(path, json.dumps(plain(content), allow_nan=False) + "\n")


def read_scores(path: Path) -> Scores:
    """Read the file of `write_scores`.

    Of landmark models the error of each face is there, not that of each of its landmarks.
    """
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
        if content["schema"] != SCHEMA:
            raise InvalidInputError(f"{path}: found {content['schema']!r}, expected {SCHEMA!r}")
        read = _landmark_scores if content["kind"] == "ert" else _detection_scores
        return read(content)
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise InvalidInputError(f"{path}: cannot be read as scores: {error!r}") from error


def _landmark_scores(content: dict[str, Any]) -> LandmarkScores:
    faces = tuple(
        FaceErrors("", image, 0, math.nan, np.array([_number(error)]))
        for error, image in zip(content["face_errors"], content["face_images"], strict=True)
    )
    known = {name: content[name] for name in _scalars(LandmarkScores)}
    names = tuple(content["landmarks"])
    errors = [_number(content["per_landmark"][name]) for name in names]
    return LandmarkScores(
        **known,
        intervals=_intervals(content),
        per_landmark=np.array(errors, dtype=np.float64),
        names=names,
        per_face=faces,
    )


def _detection_scores(content: dict[str, Any]) -> DetectionScores:
    return DetectionScores(
        **{name: content[name] for name in _scalars(DetectionScores)},
        intervals=_intervals(content),
        per_image=_matches(content["per_image"]),
        curve=_matches(content["curve"]),
    )


def _scalars(kind: type[Scores]) -> Sequence[str]:
    return [item.name for item in fields(kind) if item.name not in _LISTS]


def _intervals(content: dict[str, Any]) -> dict[str, tuple[float, float]]:
    return {
        name: (_number(low), _number(high)) for name, (low, high) in content["intervals"].items()
    }


def _plain_matches(image: ImageMatches) -> dict[str, Any]:
    return {
        "scores": image.scores.tolist(),
        "hits": image.hits.tolist(),
        "faces": image.faces,
        "missed": image.missed,
        "ignored": image.ignored,
    }


def _matches(items: Sequence[dict[str, Any]]) -> tuple[ImageMatches, ...]:
    return tuple(
        ImageMatches(
            "",
            np.array(item["scores"], dtype=np.float64),
            np.array(item["hits"], dtype=bool),
            item["faces"],
            item["missed"],
            item["ignored"],
        )
        for item in items
    )


def _number(value: float | None) -> float:
    return math.nan if value is None else float(value)
