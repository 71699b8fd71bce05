"""The folder of a simulation, and the history of its rounds.

=================================  =============================================================
file                               content
=================================  =============================================================
``run.json``                       digests of data and base, the sites, the held-out data
``base.safetensors``               the base of the first round of all methods
``METHOD/history.json``            plan, digests and scores of the rounds that have ended
``METHOD/round-001.safetensors``   each round's result, with its recipe
``METHOD/round-001...state``       the state of the last round, if the method has one
``METHOD/round-002/``              contributions to a round that has not ended
``METHOD/personal/SITE/0002...``   a site's personal part, of methods that have one, of its last
                                   two rounds
=================================  =============================================================

Contributions are removed when their round has ended, because they take many times the room of its
result; the history keeps their digests.
"""

import json
import shutil
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from functools import cache
from pathlib import Path
from typing import Any
from urllib.parse import quote

from aggregators import write_model
from aggregators.methods.networks import state_path
from aggregators.models import StateDict
from aggregators.whole_file import write_whole
from site_agent.errors import InvalidInputError
from site_agent.federated.personal import PersonalStore
from site_agent.federated.plan import FederationPlan, first_model, read_plan
from site_agent.federated.scores import PersonScores
from site_agent.federated.tasks import Holdout, Task
from site_agent.networks.modules import to_module
from site_agent.plain_json import write_json
from site_agent.training.gaze.loop import repeatable
from site_agent.work import Progress, no_progress
from site_agent.work.claims import Claims, Share, hold_folder
from site_agent.work.processes import processor_count


@dataclass(frozen=True)
class SiteData:
    """The place of a site's samples; its process reads them itself."""

    task: Task
    path: Path
    persons: tuple[str, ...]
    samples: int
    """Number of training samples."""
    holdout: Holdout

    def read(self) -> Any:
        """Return the samples with which the site trains."""
        return self.task.read(self.path, self.persons, self.holdout)


@dataclass(frozen=True, eq=False)
class DividedData:
    """Data for a federation."""

    task: Task
    digest: str
    """SHA-256 of all the data."""
    sites: Mapping[str, SiteData]
    held_out: Any | None
    """Samples with which no site trains."""
    reference: PersonScores | None
    """Scores on the held-out samples of an answer made without pictures."""
    learned: Mapping[str, Any]
    """The training samples, for `site_agent.training_record.remember_learned`."""


def divide(
    path: Path,
    task: Task,
    *,
    site_count: int | None = None,
    holdout: Holdout = "sessions",
    seed: int = 0,
    progress: Progress = no_progress,
) -> DividedData:
    """Divide data: each person is a site, or the persons are dealt to some sites.

    The task chooses the held-out data: sessions of gaze data, test clips, or drawn persons.
    """
    division = task.divide(path, holdout, seed, progress)
    sites = {
        site: SiteData(
            task, path, persons, sum(division.counts[person] for person in persons), holdout
        )
        for site, persons in _deal(path, list(division.counts), site_count).items()
    }
    return DividedData(
        task, division.digest, sites, division.held_out, division.reference, division.learned
    )


def _deal(path: Path, persons: list[str], count: int | None) -> dict[str, tuple[str, ...]]:
    if count is None:
        return {person: (person,) for person in persons}
    if count > len(persons):
        raise InvalidInputError(
            f"{path}: has {len(persons)} persons to train with, expected at least {count}, "
            "one for each site"
        )
    width = len(str(count))
    return {f"site-{number + 1:0{width}}": tuple(persons[number::count]) for number in range(count)}


@cache
def read_once(data: SiteData) -> Any:
    """Return the samples of a site, which stay in the memory of its process."""
    return data.read()


def score_network(network: StateDict, samples: Any, task: Task) -> dict[str, float]:
    """Return the score of a network for each person."""
    with repeatable(processor_count()):
        return task.score_persons(to_module(network), samples)


_WORDS = {
    "data": "other data",
    "base": "another base",
    "sites": "other sites, or other samples held out",
}


HIDDEN = ".simulation"
"""The folder with the claims on a simulation."""


@dataclass(frozen=True)
class MethodFolder:
    """The part of a run's folder that belongs to one method."""

    path: Path
    first_base: Path

    @property
    def history(self) -> Path:
        return self.path / "history.json"

    def result(self, number: int) -> Path:
        """Return the network that round `number` makes; the base of all for 0."""
        return self.path / f"round-{number:03}.safetensors" if number else self.first_base

    def state(self, number: int) -> Path | None:
        """Return the state that round `number` has left, if any."""
        path = state_path(self.result(number))
        return path if number and path.exists() else None

    def contributions(self, number: int) -> Path:
        return self.path / f"round-{number:03}"

    def contribution(self, number: int, site: str) -> Path:
        return self.contributions(number) / f"{quote(site, safe='')}.contribution"

    @property
    def personal(self) -> PersonalStore:
        """The personal parts of the sites."""
        return PersonalStore(self.path / "personal")

    def tidy(self, ended: int) -> None:
        """Remove files that no later round needs: contributions, states but the last, cut files."""
        for cut in self.path.glob(".*.partial"):
            cut.unlink()
        for number in range(1, ended + 1):
            shutil.rmtree(self.contributions(number), ignore_errors=True)
            if number < ended and (state := self.state(number)):
                state.unlink()


@dataclass(frozen=True)
class RunFolder:
    """The folder of a simulation, held by this process."""

    path: Path
    claims: Claims

    @property
    def base(self) -> Path:
        return self.path / "base.safetensors"

    def method(self, name: str) -> MethodFolder:
        """Return the folder of a method, made if necessary."""
        path = self.path / name
        path.mkdir(exist_ok=True)
        return MethodFolder(path, self.base)


@contextmanager
def open_run(
    path: Path, data: DividedData, base: StateDict, share: Share | None = None
) -> Iterator[RunFolder]:
    """Hold the folder of a simulation: a new one, or one that was begun with the same data.

    `share`: Of the processes that hold it at the same time.
    """
    record = path / "run.json"
    if path.is_dir() and any(path.iterdir()) and not (path / HIDDEN).exists():
        raise InvalidInputError(f"{path}: holds other files; choose a new or empty folder")
    with hold_folder(path, HIDDEN, what="simulation", share=share) as claims:
        run = RunFolder(path, claims)
        facts = _facts(data, base)
        with claims.turn("begin"):
            if not record.exists():
                write_model(base, run.base)
                write_json(record, facts)
        recorded = json.loads(record.read_text(encoding="utf-8"))
        for name, expected in facts.items():
            if recorded.get(name) != expected:
                raise InvalidInputError(
                    f"{path}: was begun with {_WORDS[name]}; choose another folder"
                )
        yield run


def _facts(data: DividedData, base: StateDict) -> dict[str, Any]:
    """Return the facts that all methods of a run share, as JSON values."""
    sites = {
        site: {"persons": list(entry.persons), "samples": entry.samples}
        for site, entry in data.sites.items()
    }
    return {"data": data.digest, "base": first_model(base).digest, "sites": sites}


# `History` is the content of ``history.json``, which is rewritten after each round.
_SCHEMA = "poolctl-simulation/2"


@dataclass(frozen=True)
class Round:
    """One round that was held."""

    number: int
    """From 1."""
    base: str
    """SHA-256 of the base's file."""
    result: str
    """SHA-256 of the result's file."""
    state: str | None
    """SHA-256 of the file of the method's state."""
    updates: Mapping[str, str]
    """SHA-256 of the sites' contributions, by site."""
    warnings: tuple[str, ...]
    scores: Mapping[str, float]
    """The result's scores on held-out samples, by person; empty without such samples. With personal
    parts, each person's samples are scored with the network of its site."""
    personal_share: Mapping[str, float] = field(default_factory=dict)
    """Share of the numbers that each site keeps to itself from the next round on."""


@dataclass(frozen=True)
class History:
    """The rounds of one plan, in their order."""

    plan: FederationPlan
    rounds: tuple[Round, ...] = ()

    def write(self, path: Path) -> None:
        """Write the history, whole or not at all."""
        content: dict[str, Any] = {
            "schema": _SCHEMA,
            "plan": self.plan.model_dump(),
            "rounds": [asdict(entry) for entry in self.rounds],
        }
        write_whole(path, json.dumps(content, indent=2, ensure_ascii=False) + "\n")


def read_history(path: Path, plan: FederationPlan) -> History:
    """Return the rounds held of a plan; none if there is no file.

    The numbers of rounds may differ: a simulation can be made longer.
    """
    if not path.exists():
        return History(plan)
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
        plan_ = read_plan(content["plan"])
        rounds = tuple(
            Round(**{**entry, "warnings": tuple(entry["warnings"])}) for entry in content["rounds"]
        )
    except (ValueError, KeyError, TypeError) as error:
        raise InvalidInputError(f"{path}: is not the history of a simulation: {error}") from error
    mine, theirs = _settings(plan), _settings(plan_)
    for name in mine:
        if mine[name] != theirs.get(name):
            raise InvalidInputError(
                f"{path}: was made with {name} {theirs.get(name)}, not {mine[name]}; "
                "choose another folder"
            )
    return History(plan, rounds[: plan.rounds])


def _settings(plan: FederationPlan) -> dict[str, Any]:
    return {"method": plan.method, "cohort": plan.cohort, **plan.options}
