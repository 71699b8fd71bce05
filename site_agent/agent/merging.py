"""One merged model in one cycle: choose, fetch, merge, evaluate, and upload a better result."""

import json
import math
import shutil
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from functools import cached_property
from pathlib import Path

from aggregators.errors import AggregatorError
from aggregators.formats import FORMATS, file_digest, fingerprint, read_model, recognise
from aggregators.methods import find_method, merge, merge_keys, read_recipe, recipe_path
from pool_server.wire.labels import shared_labels
from pool_server.wire.models import ModelVersionResponse
from pool_server.wire.names import ModelAddress
from site_agent import errors
from site_agent.agent.choosing import Candidate, Choice, choose, find_misfit
from site_agent.agent.config import MergeSettings
from site_agent.agent.workspace import CycleContext
from site_agent.datasets.conversion import read_faces
from site_agent.datasets.records import FaceDataset, dataset_digest, part_names
from site_agent.datasets.soundness import require_sound
from site_agent.evaluation.landmarks import evaluate_landmarks
from site_agent.evaluation.model_runs import EvaluationSettings, evaluate_model
from site_agent.plain_json import plain
from site_agent.work.steps import digest_of

_SUFFIXES = sorted({suffix for entry in FORMATS.values() for suffix in entry.suffixes})


@dataclass(frozen=True)
class Scored:
    """A model and its scores."""

    what: str
    """``own``, ``published``, ``input`` or ``merged``."""
    name: str
    digest: str
    path: Path
    metrics: Mapping[str, float]
    value: float
    """The metric that counts."""


class GoalRun:
    """The work on one merged model in one cycle.

    A cycle ends with the best model in ``best/`` and, if it is a new merge, in the pool. The next
    cycles do nothing until inputs, faces or settings change. A killed cycle starts again: downloads
    are in the cache, scores in the state, and the same merge gives the same bytes, which the pool
    accepts only once.
    """

    def __init__(self, name: str, goal: MergeSettings, context: CycleContext) -> None:
        self.name, self.goal, self.context = name, goal, context
        self.pool, self.state = context.pool, context.state

    def run(self) -> int:
        """Bring the merged model up to date; return how many models were uploaded."""
        choice = choose(self.goal, self.name, self.context.site, self.pool)
        work = self._digest_of_work(choice)
        tried_today = f"{work} {datetime.now(UTC):%Y-%m-%d}"
        if self.state.finished.get(self.name) in {work, tried_today}:
            self._write("up_to_date")
            return 0
        counts = [
            sum(candidate.version is not None for candidate in candidates)
            for candidates in (choice.inputs, choice.left_out)
        ]
        self._write("models_found", found=sum(counts), taken=counts[0])
        self._report_left_out(choice.left_out)
        choice, paths, is_complete = self._fetch(choice)
        merged = self._merge(choice, paths) if len(choice.inputs) > 1 else None
        uploads = self._keep_best(choice, merged, self._score_rivals(choice, paths))
        for path in self.context.workspace.work.glob(f"{self.name}.*"):
            path.unlink()
        # Failed downloads are tried again tomorrow.
        self.state.finished[self.name] = work if is_complete else tried_today
        self.context.save()
        return uploads

    @cached_property
    def _faces(self) -> FaceDataset:
        faces = read_faces(Path(self.goal.validation))
        if not any(True for _ in faces.boxes()):
            raise errors.InvalidInputError(
                f"{self.goal.validation}: has no faces to score models on"
            )
        if self.goal.kind == "ert" and not part_names(faces):
            raise errors.InvalidInputError(
                f"{self.goal.validation}: has no landmarks to score models on"
            )
        require_sound(faces, use="landmarks" if self.goal.kind == "ert" else "boxes")
        return faces

    @cached_property
    def _faces_digest(self) -> str:
        return dataset_digest(self._faces)[:16]

    def _digest_of_work(self, choice: Choice) -> str:
        content = {
            "settings": plain(self.goal),
            "version": find_method(self.goal.method).version,
            "faces": self._faces_digest,
            "inputs": [item.digest for item in choice.inputs],
        }
        return digest_of(content)

    # -- fetching -------------------------------------------------------------------------

    def _fetch(self, choice: Choice) -> tuple[Choice, dict[str, Path], bool]:
        """Download the chosen versions, and leave out those that cannot be used.

        Returns the files by digest, too, and whether the pool gave all of them.
        """
        paths: dict[str, Path] = {}
        refused = []
        is_complete = True
        reference = choice.inputs[0].key if choice.inputs else None
        for candidate in choice.inputs:
            if candidate.version is None:
                paths[candidate.digest] = Path(candidate.name)
                continue
            try:
                paths[candidate.digest] = self._fetch_version(candidate.version)
                self._check_download(candidate, paths[candidate.digest], reference)
            except (errors.PoolUnreachableError, errors.NotLoggedInError):
                raise
            except (
                errors.PoolClientError, errors.EvaluationError, errors.FaceModelError,
                errors.InvalidInputError, AggregatorError,
            ) as error:  # fmt: skip
                refused.append(replace(candidate, reason=str(error)))
                is_complete = is_complete and not isinstance(error, errors.PoolClientError)
        self._report_left_out(refused)
        return choice.without(refused), paths, is_complete

    def _fetch_version(self, version: ModelVersionResponse) -> Path:
        self.pool.require_merge_right(version)
        download = self.pool.fetch(version)
        if download.received_bytes:
            self._write(
                "model_fetched",
                address=version.address,
                digest=version.digest,
                received_bytes=download.received_bytes,
            )
        return download.path

    def _check_download(self, candidate: Candidate, path: Path, reference: str | None) -> None:
        """Refuse a file that cannot be merged or scored; the pool's description is not trusted."""
        key = merge_keys(fingerprint(read_model(path))).get(self.goal.method)
        if reason := find_misfit(self.goal, replace(candidate, key=key), reference):
            raise errors.InvalidInputError(reason)
        self._score("input", candidate.name, candidate.digest, path)

    # -- merging and evaluating -----------------------------------------------------------

    def _merge(self, choice: Choice, paths: Mapping[str, Path]) -> Scored:
        suffix = FORMATS[find_method(self.goal.method).output_formats[0]].suffixes[0]
        output = self.context.workspace.work / f"{self.name}{suffix}"
        versions = [candidate.version for candidate in choice.inputs]
        outcome = merge(
            self.goal.method,
            [paths[candidate.digest] for candidate in choice.inputs],
            options=self.goal.method_options,
            output=output,
            addresses=[None if version is None else version.address for version in versions],
            file_names=[None if version is None else version.file_name for version in versions],
        )
        assert outcome.digest is not None
        self._write(
            "merged", method=self.goal.method, inputs=len(choice.inputs), digest=outcome.digest
        )
        return self._score("merged", self.name, outcome.digest, output)

    def _score_rivals(self, choice: Choice, paths: Mapping[str, Path]) -> list[Scored]:
        rivals = [
            self._score(
                "own" if candidate.version is None else "input",
                candidate.name,
                candidate.digest,
                paths[candidate.digest],
            )
            for candidate in choice.inputs
        ]
        try:
            version = self.pool.version(ModelAddress(self.context.site, self.name))
        except errors.NotFoundError:
            return rivals
        if version.state == "available" and not version.flags:
            path = self.pool.fetch(version).path
            rivals.append(self._score("published", version.address, version.digest, path))
        return rivals

    def _score(self, what: str, name: str, digest: str, path: Path) -> Scored:
        """Score a model on the validation faces; a known score is not measured again."""
        metric, key = self.goal.metric_name, f"{digest}:{self._faces_digest}"
        metrics = self.state.scores.get(key)
        if metrics is None:
            measured = self._measure(path)
            metrics = {key: value for key, value in measured.items() if math.isfinite(value)}
            if metric not in metrics:
                raise errors.EvaluationError(
                    f"{name}: {metric} cannot be measured, only {', '.join(metrics)}"
                )
            self.state.scores[key] = metrics
            self.context.save()
            self._write("evaluated", what=what, model=name, digest=digest, value=metrics[metric])
        return Scored(what, name, digest, path, metrics, metrics[metric])

    def _measure(self, path: Path) -> dict[str, float]:
        if self.goal.kind == "ert":
            threads = self.context.threads
            return evaluate_landmarks(path, self._faces, resamples=0, workers=threads).metrics
        # More workers would be processes, which could outlive a killed agent.
        settings = EvaluationSettings(resamples=0)
        return evaluate_model(path, self._faces, settings, workers=1).metrics

    # -- keeping and uploading ------------------------------------------------------------

    def _keep_best(self, choice: Choice, merged: Scored | None, rivals: Sequence[Scored]) -> int:
        """Keep the best model, and upload it if it is the merged one; return the uploads."""
        sign = 1 if self.goal.lower_is_better else -1
        # A cycle that was killed after its upload finds the result in the pool.
        others = [rival for rival in rivals if merged is None or rival.digest != merged.digest]
        best = min(others, key=lambda rival: sign * rival.value, default=None)
        if merged is not None and (best is None or self.goal.is_better(merged.value, best.value)):
            self._keep(merged)
            return self._upload(merged, choice) if len(others) == len(rivals) else 0
        if best is not None:
            if merged is not None:
                self._report_not_better(merged, best)
            self._keep(best)
        return 0

    def _best_file(self) -> Path | None:
        names = [self.context.workspace.best / f"{self.name}{suffix}" for suffix in _SUFFIXES]
        return next((path for path in names if path.is_file()), None)

    def _keep(self, best: Scored) -> None:
        """Copy the best model to ``best/`` in the workspace."""
        place = self.context.workspace.best / f"{self.name}{recognise(best.path).suffixes[0]}"
        previous = self._best_file()
        if previous is not None and file_digest(previous) == best.digest:
            self._write("up_to_date", value=best.value)
            return
        temporary = self.context.workspace.work / f"{self.name}.best"
        shutil.copyfile(best.path, temporary)
        if previous is not None:
            recipe_path(previous).unlink(missing_ok=True)
            previous.unlink()
        if recipe_path(best.path).is_file():
            shutil.copyfile(recipe_path(best.path), recipe_path(place))
        temporary.replace(place)
        self._write(
            "best_changed",
            what=best.what,
            model=best.name,
            digest=best.digest,
            value=best.value,
            file=place,
        )

    def _upload(self, merged: Scored, choice: Choice) -> int:
        path = self._best_file()
        if not self.goal.upload or path is None:
            return 0
        self._write("uploading", digest=merged.digest, size_bytes=path.stat().st_size)
        asked = [word.partition("=") for word in self.goal.labels]
        upload = self.pool.upload(
            path,
            ModelAddress(self.context.site, self.name),
            labels={
                **shared_labels([candidate.labels for candidate in choice.inputs]),
                **{key: value for key, is_equal, value in asked if is_equal},
            },
            metrics=merged.metrics,
            recipe=json.loads(read_recipe(recipe_path(path)).to_json()),
        )
        self._write(
            "uploaded",
            address=upload.version.address,
            digest=merged.digest,
            sent_bytes=upload.sent_bytes,
            value=merged.value,
        )
        return 1

    # -- reporting ------------------------------------------------------------------------

    def _write(self, event: str, **values: object) -> None:
        metric = {"metric": self.goal.metric_name} if "value" in values else {}
        self.context.journal.write(event, name=self.name, **metric, **values)

    def _report_left_out(self, candidates: Sequence[Candidate]) -> None:
        for item in candidates:
            self._write("model_refused", address=item.name, digest=item.digest, reason=item.reason)

    def _report_not_better(self, merged: Scored, best: Scored) -> None:
        self._write(
            "not_better",
            value=merged.value,
            best=best.value,
            best_model=best.name,
            margin_pct=self.goal.margin_pct,
        )
