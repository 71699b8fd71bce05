"""The folder of a study of networks, and its runs; none is done twice.

How it works. A study's own module lists its runs, each a frozen dataclass with a key, and the facts
on which each result depends. `open_study` keeps other processes away from the folder; `Study.do`
keeps the results that an earlier call left and does the other runs in worker processes
(`site_agent.work.jobs`); the study's report then writes tables and pictures::

    STUDY/study.json       settings, data, versions, how to repeat it
    STUDY/runs/KEY.json    the result of each run, with the digest of its dependencies
    STUDY/table.md, *.csv, *.png
    STUDY/.study/          samples for the workers, and the lock
"""

import json
import platform
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from importlib import metadata
from pathlib import Path
from typing import Any, TypeVar

from site_agent.datasets.gaze.records import GazeSamples, person_digest
from site_agent.errors import InvalidInputError, TrainingFailedError
from site_agent.plain_json import write_json
from site_agent.work import Progress, jobs, no_progress
from site_agent.work.measurements import processor_count
from site_agent.work.workers import Task, Workers

R = TypeVar("R")


@dataclass(frozen=True)
class Conduct:
    """The options of conducting a study, which change no result."""

    progress: Progress = no_progress
    workers: int = 0
    """Runs at once; 0: as many as processors."""
    redo: bool = False
    """Repeat finished runs, too."""
    repeat: Sequence[str] = ()
    """The words of the command, for readers of the folder."""
    on_run: Callable[[str, float], None] = lambda _key, _took_s: None
    """Called with the key of each finished run and its duration in seconds."""


@dataclass(frozen=True)
class StudyResults:
    """The results of the runs of a study."""

    results: Mapping[str, Mapping[str, Any]]
    """By the key of the run."""
    failed: Mapping[str, str]
    """Why runs failed, by key."""
    kept: int
    """Number of results that an earlier call had left."""
    files: tuple[Path, ...] = ()
    """Tables and pictures; the one with the verdict first."""
    findings: tuple[str, ...] = ()
    """The verdict first."""

    def require_complete(self) -> None:
        """Raise `TrainingFailedError` where a run failed; the finished ones are kept."""
        for key, reason in self.failed.items():
            raise TrainingFailedError(f"{key}: {reason}")


class Study:
    """A study's folder, held by this process; `open_study` makes it."""

    def __init__(self, folder: Path, schema: str, conduct: Conduct, pool: Workers) -> None:
        self.folder, self.hidden = folder, folder / ".study"
        self._schema, self._conduct, self._pool = schema, conduct, pool
        self.versions = {name: metadata.version(name) for name in ("poolctl", "torch", "numpy")}

    def describe(self, settings: Any, facts: Mapping[str, Any]) -> None:
        """Write ``study.json``.

        `facts`: Of the data.
        """
        content = {
            "schema": self._schema,
            "settings": asdict(settings),
            **facts,
            "versions": {**self.versions, "python": platform.python_version()},
            "repeat": list(self._conduct.repeat),
        }
        write_json(self.folder / "study.json", content)

    def do(
        self,
        runs: Mapping[str, R],
        depends: Callable[[R], Mapping[str, Any]],
        function: Callable[[Any, Progress], Any],
        payload: Callable[[R], Any],
        *,
        cost: Callable[[R], float] = lambda _run: 1.0,
        progress: Progress,
    ) -> StudyResults:
        """Do the runs without results.

        `runs`: By key. `depends`: Returns the facts besides the run, the program and `schema` on
        which a run's result depends. `function`, `payload`: A worker's function and its argument;
        `payload` is called when a run begins. `cost`: The relative duration of a run.
        """
        facts = {key: asdict(run) for key, run in runs.items()}  # type: ignore[call-overload]
        shared = {"schema": self._schema, "versions": self.versions}
        digests = {
            key: jobs.digest_of({**shared, "run": facts[key], **depends(run)})
            for key, run in runs.items()
        }
        place = self.folder / "runs"
        place.mkdir(exist_ok=True)
        records = jobs.JobRecords(place, self._schema, digests, facts)
        kept = {} if self._conduct.redo else records.read_all()

        def end(outcome: jobs.JobOutcome) -> None:
            if outcome.state == "done":
                self._conduct.on_run(outcome.key, outcome.took_s)

        outcomes = jobs.do_jobs(
            jobs.Schedule(
                [jobs.Job(key, cost=cost(run)) for key, run in runs.items()], frozenset(kept)
            ),
            self._pool,
            lambda job: Task(job.key, function, payload(runs[job.key])),
            kept=kept,
            keep=records.keep,
            on_outcome=end,
            noun="runs",
            progress=progress,
        )
        failed = {
            key: outcome.reason for key, outcome in outcomes.items() if outcome.state == "failed"
        }
        results = {key: outcome.result for key, outcome in outcomes.items() if key not in failed}
        return StudyResults(results, failed, len(kept))


@contextmanager
def open_study(folder: Path, schema: str, conduct: Conduct) -> Iterator[Study]:
    """Make the folder of a study, and keep other processes away from it until the block ends.

    Raises `InvalidInputError`: the folder holds a study of another kind, is a file, or cannot be
    written. `BusyError`: another process is at work there.
    """
    with jobs.hold_folder(folder, folder / ".study" / "lock", what="study"):
        file = folder / "study.json"
        if file.exists() and _schema_of(file) != schema:
            raise InvalidInputError(f"{folder} holds another study; choose another folder with -o")
        advice = "run the study again with fewer workers"
        with Workers(conduct.workers or processor_count(), advice=advice) as pool:
            yield Study(folder, schema, conduct, pool)


def _schema_of(file: Path) -> Any:
    try:
        return json.loads(file.read_bytes())["schema"]
    except (ValueError, KeyError, TypeError):
        return None


def describe_persons(samples: Mapping[str, GazeSamples]) -> dict[str, dict[str, Any]]:
    """Return the number of samples and the digest of each person's, by name."""
    return {
        name: {"samples": len(person_samples), "digest": person_digest(person_samples)}
        for name, person_samples in samples.items()
    }
