"""One ``[[merge]]`` table in one cycle: pull, merge, evaluate, and push a better result."""

import hashlib
import json
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from aggregators.errors import AggregatorError
from aggregators.formats import FORMATS
from aggregators.methods import find_method, merge, recipe_path
from pool_server.wire.labels import shared_labels
from pool_server.wire.models import ModelVersionResponse
from pool_server.wire.names import ModelAddress
from site_agent import errors
from site_agent.agent import choosing, config, publishing, workspace


@dataclass(frozen=True)
class _Merged:
    digest: str
    path: Path | None


class GoalRun:
    """The work on one ``[[merge]]`` table in one cycle.

    Interrupted work goes on in the next cycle: downloads stay in the cache, scores in the state,
    and a merged model waiting for its upload in ``outgoing/``.
    """

    def __init__(self, goal: config.MergeGoal, context: workspace.CycleContext) -> None:
        self.goal, self.context = goal, context
        self.pool, self.journal = context.pool, context.journal
        self.known = context.state.goal(goal.name)
        self.scorer = publishing.Scorer(goal, context)
        self.publisher = publishing.Publisher(goal, context)

    def run(self) -> int:
        """Subscribe, pull, merge, evaluate, push; return how many models were uploaded."""
        uploads = self.publisher.send()
        choice = self._pull(self._subscribe())
        best = self.scorer.best(self._rivals(choice))
        merged = self._merge(choice) if len(choice.digests) > 1 else None
        scored = None if merged is None else self._evaluate(merged)
        if (
            merged is not None
            and scored is not None
            and (best is None or self.goal.is_better(scored.value, best.value))
        ):
            uploads += self._push(choice, merged, scored)
        elif best is not None:
            self._keep(best, scored if merged is not None and merged.path is not None else None)
        self.known.forget_old()
        self.context.save()
        return uploads

    def _keep(self, best: publishing.Scored, beaten: publishing.Scored | None) -> None:
        """Keep the best model; `beaten`: the merge just made, if it is not better."""
        if beaten is not None:
            self._report_not_better(beaten, best)
        self.publisher.keep_best(best)
        if beaten is None:
            self._report_up_to_date(best.value)

    # -- subscribing and pulling ----------------------------------------------------------

    def _subscribe(self) -> choosing.Choice:
        self.scorer.require_faces()
        own_models = choosing.read_own_models(self.goal)
        choice = choosing.choose(
            self.goal,
            self.context.site,
            own_models,
            choosing.list_versions(self.pool, self.goal),
            self.known,
            conditions=(self.scorer.condition, choosing.today()),
        )
        new = [version for version in choice.chosen if version.digest not in self.known.checked]
        self.journal.write(
            "models_found",
            name=self.goal.name,
            found=choice.asked,
            taken=len(choice.chosen),
            new=len(new),
            refused_before=choice.refused_before,
        )
        for digest, refusal in choice.refused.items():
            self._refuse(digest, refusal)
        return choice

    def _pull(self, choice: choosing.Choice) -> choosing.Choice:
        """Download the chosen versions, and leave out those that cannot be used."""
        good = tuple(version for version in choice.chosen if self._admit(version, choice.key))
        return replace(choice, chosen=good)

    def _admit(self, version: ModelVersionResponse, key: str) -> bool:
        try:
            self._fetch(version, key)
            if "inputs" in self.goal.against:
                self._score_version("input", version)
        except _RefusedError as error:
            self._refuse(version.digest, error.refusal)
            return False
        return True

    def _fetch(self, version: ModelVersionResponse, key: str) -> None:
        try:
            if version.digest not in self.known.checked:
                self.pool.require_merge_right(version)
            download = self.pool.fetch(version)
        except (errors.PoolUnreachableError, errors.NotLoggedInError):
            raise
        except errors.PoolClientError as error:
            # The pool may have put it right by tomorrow.
            raise _RefusedError(version, str(error), choosing.today()) from error
        if version.digest in self.known.checked:
            return
        self.journal.write(
            "model_fetched",
            name=self.goal.name,
            address=version.address,
            digest=version.digest,
            received_bytes=download.received_bytes,
        )
        refusal = choosing.check_downloaded(self.goal, download.path, version.address, key)
        if refusal is not None:
            raise _RefusedError(version, refusal.reason, refusal.against)
        self.known.checked.append(version.digest)
        self.context.save()

    def _refuse(self, digest: str, refusal: workspace.Refusal) -> None:
        self.known.refused[digest] = refusal
        self.context.save()
        self.journal.write(
            "model_refused",
            name=self.goal.name,
            address=refusal.address,
            digest=digest,
            reason=refusal.reason,
        )

    # -- evaluating -----------------------------------------------------------------------

    def _rivals(self, choice: choosing.Choice) -> list[publishing.Scored]:
        rivals = []
        if "own" in self.goal.against:
            rivals += [self.scorer.score("own", m.path, m.digest) for m in choice.own_models]
        if "published" in self.goal.against and (version := self._find_published()) is not None:
            rivals.append(self._score_version("published", version))
        if "inputs" in self.goal.against:
            rivals += [self._score_version("input", version) for version in choice.chosen]
        return rivals

    def _find_published(self) -> ModelVersionResponse | None:
        try:
            version = self.pool.version(ModelAddress(self.context.site, self.goal.name))
        except errors.NotFoundError:
            return None
        return version if version.state == "available" and not version.flags else None

    def _score_version(self, what: str, version: ModelVersionResponse) -> publishing.Scored:
        path = self.pool.fetch(version).path
        try:
            return self.scorer.score(what, path, version.digest, version.address)
        except (errors.EvaluationError, errors.FaceModelError) as error:
            if what != "input":
                raise
            reason = f"cannot be scored: {error}"
            raise _RefusedError(version, reason, self.scorer.condition) from error

    def _evaluate(self, merged: _Merged) -> publishing.Scored:
        path = merged.path or Path()
        return self.scorer.score("merged", path, merged.digest, self.goal.name)

    # -- merging --------------------------------------------------------------------------

    def _merge(self, choice: choosing.Choice) -> _Merged | None:
        """Merge, unless exactly this was done before and is known by its score."""
        key = self._merge_key(choice)
        digest = self.known.merged.get(key)
        if digest == "":
            return None  # it failed, and would again
        if digest is not None and self.scorer.is_known(digest):
            return _Merged(digest, None)
        try:
            merged = self._do_merge(choice)
        except AggregatorError:
            self.known.merged[key] = ""
            self.context.save()
            raise
        self.known.merged[key] = merged.digest
        self.context.save()
        return merged

    def _do_merge(self, choice: choosing.Choice) -> _Merged:
        goal = self.goal
        suffix = FORMATS[find_method(goal.method_name).output_formats[0]].suffixes[0]
        output = self.context.workspace.new_file(suffix)
        fetched = [self.pool.fetch(version).path for version in choice.chosen]
        own_paths: list[str | None] = [None] * len(choice.own_models)
        outcome = merge(
            goal.method_name,
            [*(model.path for model in choice.own_models), *fetched],
            weights=choice.weights(goal),
            options=goal.method_options,
            output=output,
            addresses=[*own_paths, *(version.address for version in choice.chosen)],
            file_names=[*own_paths, *(version.file_name for version in choice.chosen)],
        )
        assert outcome.digest is not None
        self.journal.write(
            "merged",
            name=goal.name,
            method=goal.method_name,
            inputs=len(choice.digests),
            digest=outcome.digest,
        )
        return _Merged(outcome.digest, output)

    def _merge_key(self, choice: choosing.Choice) -> str:
        method = find_method(self.goal.method_name)
        weights: Sequence[float] = choice.weights(self.goal) or [1.0] * len(choice.digests)
        content: dict[str, Any] = {
            "method": [method.name, method.version],
            "options": self.goal.method_options,
            # In their order: what cannot be averaged is taken from the first.
            "inputs": list(zip(choice.digests, weights, strict=True)),
        }
        return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()

    def _push(self, choice: choosing.Choice, merged: _Merged, scored: publishing.Scored) -> int:
        is_uploadable = self.goal.upload and merged.digest not in self.known.uploaded
        if not is_uploadable and self.publisher.has_best(merged.digest):
            self._report_up_to_date(scored.value)
            return 0
        path = merged.path
        if path is None or not path.is_file():
            again = self._do_merge(choice)
            if again.digest != merged.digest or again.path is None:
                raise errors.InvalidInputError(
                    f"merging again gave {again.digest}, not {merged.digest}"
                )
            path = again.path
        self.publisher.keep_best(replace(scored, path=path))
        if not is_uploadable:
            return 0
        own_labels, input_labels = (
            [model.labels for model in inputs] for inputs in (choice.own_models, choice.chosen)
        )
        labels = shared_labels([*own_labels, *input_labels])
        self.publisher.put_outgoing(path, merged.digest, scored.metrics, labels)
        return self.publisher.send()

    # -- reporting ------------------------------------------------------------------------

    def _report_up_to_date(self, value: float) -> None:
        self.journal.write(
            "up_to_date", name=self.goal.name, metric=self.goal.metric_name, value=value
        )

    def _report_not_better(self, merged: publishing.Scored, best: publishing.Scored) -> None:
        self.journal.write(
            "not_better",
            name=self.goal.name,
            metric=self.goal.metric_name,
            value=merged.value,
            best=best.value,
            best_model=best.model,
            margin=self.goal.margin,
        )
        if merged.path.is_file():
            merged.path.unlink()
            recipe_path(merged.path).unlink(missing_ok=True)


class _RefusedError(Exception):
    def __init__(self, version: ModelVersionResponse, reason: str, against: str) -> None:
        self.refusal = workspace.Refusal(address=version.address, reason=reason, against=against)
        super().__init__(reason)
