"""Data divided into the sites of a simulation."""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from aggregators.models import StateDict
from site_agent.errors import InvalidInputError
from site_agent.federated.tasks import Holdout, PersonScores, Task
from site_agent.runs.progress import Progress, no_progress
from site_agent.runs.workers import processor_count


@dataclass(frozen=True)
class SiteData:
    """Where the samples of a site are; its process reads them itself.

    Attributes
    ----------
    samples : int
        Number of those that train.
    """

    task: Task
    path: Path
    persons: tuple[str, ...]
    samples: int
    holdout: Holdout

    def read(self) -> Any:
        """Return the samples with which the site trains."""
        return self.task.read(self.path, self.persons, self.holdout)


@dataclass(frozen=True, eq=False)
class DividedData:
    """Data for a federation.

    Attributes
    ----------
    digest : str
        Of all the data.
    held_out : samples or None
        What no site trains with.
    reference : PersonScores or None
        Of an answer that knows no picture, on what is held out.
    """

    task: Task
    digest: str
    sites: Mapping[str, SiteData]
    held_out: Any | None
    reference: PersonScores | None


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

    What is held out is the task's choice: sessions of gaze data, test clips, or drawn persons.
    """
    found = task.divide(path, holdout, seed, progress)
    sites = {
        site: SiteData(task, path, persons, sum(found.counts[each] for each in persons), holdout)
        for site, persons in _deal(path, list(found.counts), site_count).items()
    }
    return DividedData(task, found.digest, sites, found.held_out, found.reference)


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
    from site_agent.networks import to_module
    from site_agent.training.gaze.loop import repeatable

    with repeatable(processor_count()):
        return task.score_persons(to_module(network), samples)
