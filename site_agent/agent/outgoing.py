"""The best model for the site's own use, and merged models on their way to the pool."""

from __future__ import annotations

import json
import math
import shutil
from collections.abc import Mapping
from pathlib import Path

from aggregators.formats import FORMATS, recognise
from aggregators.methods import read_recipe, recipe_path
from pool_server.wire.names import ModelAddress
from site_agent.agent.config import MergeGoal
from site_agent.agent.context import CycleContext
from site_agent.agent.scoring import Scored
from site_agent.agent.workspace import Outgoing
from site_agent.errors import ConflictError

_SUFFIXES = sorted({suffix for entry in FORMATS.values() for suffix in entry.suffixes})


class Shelf:
    """Where the models of one ``[[merge]]`` table lie."""

    def __init__(self, goal: MergeGoal, context: CycleContext) -> None:
        self._goal, self._context, self._workspace = goal, context, context.workspace
        self._known = context.state.goal(goal.name)

    def has_best(self, digest: str) -> bool:
        """Tell whether a model is the one in ``best/``."""
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
        recipe_path(path).replace(recipe_path(place))
        path.replace(place)
        self._known.outgoing = Outgoing(
            digest=digest, file_name=place.name, metrics=dict(metrics), labels=dict(labels)
        )
        self._context.save()

    def send(self) -> int:
        """Upload what was found better, now or before an interruption; return how many."""
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
            "uploading",
            name=self._goal.name,
            digest=waiting.digest,
            size_bytes=path.stat().st_size,
        )
        try:
            done = self._context.pool.upload(
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
            address=done.version.address,
            digest=waiting.digest,
            sent_bytes=done.sent_bytes,
            metric=self._goal.metric_name,
            value=waiting.metrics.get(self._goal.metric_name, math.nan),
        )
        shutil.rmtree(path.parent, ignore_errors=True)
        return 1

    def _best_files(self) -> list[Path]:
        names = [self._workspace.best / f"{self._goal.name}{suffix}" for suffix in _SUFFIXES]
        return [path for path in names if path.is_file()]
