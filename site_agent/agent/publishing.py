"""The end of a cycle: models are scored on the site's own faces, and better ones uploaded.

Each model is measured once. A merged model lies in ``outgoing/`` before anything of it is sent, and
the best one in ``best/``, for the site's own use.
"""

import hashlib
import json
import math
import shutil
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

from aggregators.formats import FORMATS, recognise
from aggregators.methods import read_recipe, recipe_path
from pool_server.wire.names import ModelAddress
from site_agent.agent.config import MergeGoal
from site_agent.agent.workspace import CycleContext, Outgoing
from site_agent.datasets.conversion import read_faces
from site_agent.datasets.records import FaceDataset, dataset_digest, part_names
from site_agent.datasets.soundness import require_sound
from site_agent.errors import ConflictError, EvaluationError, InvalidInputError
from site_agent.evaluation.landmarks import evaluate_landmarks
from site_agent.evaluation.model_runs import EvaluationSettings, evaluate_model


@dataclass(frozen=True)
class Scored:
    """A model and its scores."""

    what: str
    """``own``, ``published``, ``input`` or ``merged``."""
    model: str
    digest: str
    path: Path
    metrics: Mapping[str, float]
    value: float
    """The metric that counts."""


class Scorer:
    """Measures models for one ``[[merge]]`` table, and remembers their scores."""

    def __init__(self, goal: MergeGoal, context: CycleContext) -> None:
        self._goal, self._context = goal, context
        self._known = context.state.goal(goal.name)
        self._faces: FaceDataset | None = None
        self._digest = ""

    @property
    def condition(self) -> str:
        """Equal for scores that were measured in the same way on the same faces."""
        if not self._digest:
            conditions = [dataset_digest(self._dataset()), self._goal.normaliser, self._goal.parts]
            self._digest = hashlib.sha256(json.dumps(conditions).encode()).hexdigest()[:16]
        return f"faces {self._digest}"

    def require_faces(self) -> None:
        """Refuse validation faces on which no model can be scored."""
        faces = self._dataset()
        if not any(True for _ in faces.boxes()):
            raise InvalidInputError(f"{self._goal.validation}: has no faces to score models on")
        if self._goal.kind == "ert" and not part_names(faces):
            raise InvalidInputError(f"{self._goal.validation}: has no landmarks to score models on")
        require_sound(faces, use="landmarks" if self._goal.kind == "ert" else "boxes")

    def is_known(self, digest: str) -> bool:
        """Return whether a model was measured already."""
        return self._key(digest) in self._known.scores

    def score(self, what: str, path: Path, digest: str, name: str = "") -> Scored:
        """Measure a model, unless it was measured before."""
        metric = self._goal.metric_name
        metrics = self._known.scores.get(self._key(digest))
        if metrics is None:
            measured = self._measure(path)
            metrics = {key: value for key, value in measured.items() if math.isfinite(value)}
            if metric not in metrics:
                names = ", ".join(metrics)
                raise EvaluationError(f"{name or path}: {metric} cannot be measured, only {names}")
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
        """Return the best, the first of equals; None of nothing."""
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


_SUFFIXES = sorted({suffix for entry in FORMATS.values() for suffix in entry.suffixes})


class Publisher:
    """Keeps the best model of one ``[[merge]]`` table, and uploads merged models."""

    def __init__(self, goal: MergeGoal, context: CycleContext) -> None:
        self._goal, self._context, self._workspace = goal, context, context.workspace
        self._known = context.state.goal(goal.name)

    def has_best(self, digest: str) -> bool:
        """Return whether a model is the one in ``best/``."""
        return self._known.best == digest and any(path.is_file() for path in self._best_files())

    def keep_best(self, best: Scored) -> None:
        """Copy the best model to where the site finds it."""
        if self.has_best(best.digest):
            return
        place = self._workspace.best / f"{self._goal.name}{recognise(best.path).suffixes[0]}"
        temporary = self._workspace.new_file(best.path.suffix)
        shutil.copyfile(best.path, temporary)
        for old in self._best_files():
            recipe_path(old).unlink(missing_ok=True)
            if old != place:
                old.unlink(missing_ok=True)
        if recipe_path(best.path).is_file():
            shutil.copyfile(recipe_path(best.path), recipe_path(place))
        temporary.replace(place)
        self._known.best = best.digest
        self._context.save()
        self._context.journal.write(
            "best_changed",
            name=self._goal.name,
            what=best.what,
            model=best.model,
            digest=best.digest,
            metric=self._goal.metric_name,
            value=best.value,
            file=place,
        )

    def put_outgoing(
        self, path: Path, digest: str, metrics: Mapping[str, float], labels: Mapping[str, str]
    ) -> None:
        """Keep a model for its upload, before anything is sent."""
        place = self._workspace.outgoing / digest / f"{self._goal.name}{path.suffix}"
        place.parent.mkdir(exist_ok=True)
        # The recipe first: a model without one could not be uploaded after a crash in between.
        recipe_path(path).replace(recipe_path(place))
        path.replace(place)
        self._known.outgoing = Outgoing(
            digest=digest, file_name=place.name, metrics=dict(metrics), labels=dict(labels)
        )
        self._context.save()

    def send(self) -> int:
        """Upload the model that is waiting; return the number of uploads."""
        waiting = self._known.outgoing
        if waiting is None:
            return 0
        path = self._workspace.outgoing / waiting.digest / waiting.file_name
        if not self._goal.upload or not path.is_file() or not recipe_path(path).is_file():
            # No longer wanted, or cleared away by somebody: it will be found again.
            self._known.outgoing = None
            self._context.save()
            return 0
        self._context.journal.write(
            "uploading", name=self._goal.name, digest=waiting.digest, size_bytes=path.stat().st_size
        )
        try:
            upload = self._context.pool.upload(
                path,
                ModelAddress(self._context.site, self._goal.name),
                description=self._goal.description,
                labels={**waiting.labels, **self._goal.upload_labels},
                metrics=waiting.metrics,
                recipe=json.loads(read_recipe(recipe_path(path)).to_json()),
                intended_use=self._goal.use,
            )
        except ConflictError as error:
            if error.code == "inputs_withdrawn":
                # Since the merge; the next one goes without.
                self._known.outgoing = None
                self._context.save()
            raise
        self._known.uploaded.append(waiting.digest)
        self._known.outgoing = None
        self._context.save()
        self._context.journal.write(
            "uploaded",
            name=self._goal.name,
            address=upload.version.address,
            digest=waiting.digest,
            sent_bytes=upload.sent_bytes,
            metric=self._goal.metric_name,
            value=waiting.metrics.get(self._goal.metric_name, math.nan),
        )
        shutil.rmtree(path.parent, ignore_errors=True)
        return 1

    def _best_files(self) -> list[Path]:
        names = [self._workspace.best / f"{self._goal.name}{suffix}" for suffix in _SUFFIXES]
        return [path for path in names if path.is_file()]
