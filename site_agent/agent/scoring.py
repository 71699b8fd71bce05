"""Scores of models on the site's own validation faces, measured once each."""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

from site_agent.agent.config import MergeGoal
from site_agent.agent.context import CycleContext
from site_agent.datasets import FaceDataset, dataset_digest, part_names, read_faces
from site_agent.errors import EvaluationError, InvalidInputError
from site_agent.evaluation import EvaluationSettings, evaluate_landmarks, evaluate_model


@dataclass(frozen=True)
class Scored:
    """A model and what was measured of it.

    Attributes
    ----------
    what : str
        ``own``, ``published``, ``input`` or ``merged``.
    value : float
        The metric that counts.
    """

    what: str
    model: str
    digest: str
    path: Path
    metrics: Mapping[str, float]
    value: float


class Scorer:
    """Measures models for one ``[[merge]]`` table, and remembers what was measured."""

    def __init__(self, goal: MergeGoal, context: CycleContext) -> None:
        self._goal, self._context = goal, context
        self._known = context.state.goal(goal.name)
        self._faces: FaceDataset | None = None
        self._digest = ""

    @property
    def condition(self) -> str:
        """What tells whether scores were measured in the same way on the same faces."""
        if not self._digest:
            words = [dataset_digest(self._dataset()), self._goal.normaliser, self._goal.parts]
            self._digest = hashlib.sha256(json.dumps(words).encode()).hexdigest()[:16]
        return f"faces {self._digest}"

    def require_faces(self) -> None:
        """Refuse validation faces on which no model can be scored."""
        faces = self._dataset()
        if not any(True for _ in faces.boxes()):
            raise InvalidInputError(f"{self._goal.validation}: has no faces to score models on")
        if self._goal.kind == "ert" and not part_names(faces):
            raise InvalidInputError(f"{self._goal.validation}: has no landmarks to score models on")

    def is_known(self, digest: str) -> bool:
        """Tell whether a model was measured already."""
        return self._key(digest) in self._known.scores

    def score(self, what: str, path: Path, digest: str, name: str = "") -> Scored:
        """Measure a model, unless it was measured before.

        Raises
        ------
        EvaluationError, FaceModelError
            It cannot be scored on these faces.
        """
        metric = self._goal.metric_name
        metrics = self._known.scores.get(self._key(digest))
        if metrics is None:
            measured = self._measure(path)
            metrics = {key: value for key, value in measured.items() if math.isfinite(value)}
            if metric not in metrics:
                found = ", ".join(metrics)
                raise EvaluationError(f"{name or path}: {metric} cannot be measured, only {found}")
            self._known.scores[self._key(digest)] = metrics
            self._context.save()
            self._context.journal.write(
                "evaluated",
                name=self._goal.name,
                what=what,
                model=name or str(path),
                digest=digest,
                metric=metric,
                value=metrics[metric],
            )
        return Scored(what, name or str(path), digest, path, metrics, metrics[metric])

    def best(self, scored: Iterable[Scored]) -> Scored | None:
        """Return the best, the first of equals; None where there is none."""
        sign = 1 if self._goal.lower_is_better else -1
        return min(scored, key=lambda item: sign * item.value, default=None)

    def _measure(self, path: Path) -> dict[str, float]:
        if self._goal.kind == "ert":
            return evaluate_landmarks(
                path,
                self._dataset(),
                normaliser=self._goal.normaliser,
                parts=self._goal.parts or None,
                resamples=0,
                workers=self._context.threads,
            ).metrics
        # More workers would be processes, which could outlive a killed agent.
        settings = EvaluationSettings(resamples=0)
        return evaluate_model(path, self._dataset(), settings, workers=1).metrics

    def _dataset(self) -> FaceDataset:
        if self._faces is None:
            self._faces = read_faces(self._goal.validation, self._goal.reading)
        return self._faces

    def _key(self, digest: str) -> str:
        return f"{digest}:{self.condition}"
