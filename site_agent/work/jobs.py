"""Resumable work: jobs that depend on one another, done side by side, each only once.

How it works. The caller lists the work as `Job`s, each with a key and the keys that it needs, and
says which results an earlier run has left; `do_jobs` does the others in worker processes
(`site_agent.work.workers`), the most urgent first, and gives each result to the caller, written
whole before the next job counts on it. A job that fails leaves out those that need it, and no
others. Ctrl-C ends the workers; the same call again goes on. The folder is held by one process at a
time (`hold_folder`).
"""

import contextlib
import hashlib
import json
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from site_agent.errors import BusyError, InvalidInputError, writing_to
from site_agent.wording import duration_words
from site_agent.work import Progress, no_progress
from site_agent.work.locks import locked
from site_agent.work.workers import Task, Workers

State = Literal["kept", "done", "failed", "left out", "waiting", "running", "not needed"]

_ENDED: frozenset[State] = frozenset({"kept", "done", "failed", "left out", "not needed"})
_THERE: frozenset[State] = frozenset({"kept", "done"})
_EARLIEST_ESTIMATE = 0.03
_LEAST_FOR_ESTIMATE_S = 5.0


@dataclass(frozen=True)
class Job:
    """One piece of work."""

    key: str
    """Names its result."""
    needs: tuple[str, ...] = ()
    """Keys of the jobs that it takes results from; they come before it in any list."""
    cost: float = 1.0
    """Its duration relative to others, in any unit."""
    title: str = ""
    """For people; the key if empty."""
    lasting: bool = True
    """False: only other jobs need its result."""


@dataclass(frozen=True)
class JobOutcome:
    """The outcome of a job."""

    key: str
    state: State
    """``done``, ``kept`` from an earlier run, ``failed``, ``left out``."""
    result: Any = None
    """Of its task, or of the caller's `keep`."""
    reason: str = ""
    """Why it failed or was left out."""
    took_s: float = 0.0


class Schedule:
    """The order of jobs: the next one, those that wait, and those that can no longer be done.

    `jobs`: Each after those that it needs. `kept`: Keys of those with results of an earlier
    run.
    """

    def __init__(self, jobs: Sequence[Job], kept: frozenset[str] = frozenset()) -> None:
        self.jobs = {job.key: job for job in jobs}
        self.reasons: dict[str, str] = {}
        self.shares: dict[str, float] = {}
        needed = self._needed(kept)
        self.states: dict[str, State] = {
            key: "kept" if key in kept else "waiting" if key in needed else "not needed"
            for key in self.jobs
        }
        # Jobs at the head of the longest chain go first.
        self._urgency: dict[str, float] = {}
        for job in reversed(jobs):
            urgency = self._urgency.get(job.key, 0.0) + job.cost
            self._urgency[job.key] = urgency
            for key in job.needs:
                self._urgency[key] = max(self._urgency.get(key, 0.0), urgency)

    def next_job(self) -> Job | None:
        """Return the most urgent job that can begin, and count it as begun."""
        ready = [
            job
            for job in self.jobs.values()
            if self.states[job.key] == "waiting"
            and all(self.states[key] in _THERE for key in job.needs)
        ]
        if not ready:
            return None
        chosen = max(ready, key=lambda job: self._urgency[job.key])
        self.states[chosen.key] = "running"
        return chosen

    def finish(self, key: str) -> None:
        """Note that a job has succeeded."""
        self.states[key] = "done"

    def fail(self, key: str, reason: str) -> None:
        """Note that a job has failed, and leave out the jobs that depend on it."""
        self.states[key], self.reasons[key] = "failed", reason
        gone = {key}
        for other in self.jobs.values():
            missing = [need for need in other.needs if need in gone]
            if missing and self.states[other.key] == "waiting":
                cause = self.jobs[missing[0]]
                self.states[other.key] = "left out"
                self.reasons[other.key] = f"needs the result of: {cause.title or cause.key}"
                gone.add(other.key)

    def keys(self, *states: State) -> list[str]:
        """Return the jobs in these states, in their order."""
        return [key for key, state in self.states.items() if state in states]

    @property
    def share(self) -> float:
        """The part of the work of this run that is done, 0 to 1."""
        total = ended_cost = 0.0
        for key, job in self.jobs.items():
            state = self.states[key]
            if state in ("kept", "not needed"):
                continue
            total += job.cost
            part = self.shares.get(key, 0.0) if state == "running" else float(state in _ENDED)
            ended_cost += part * job.cost
        return ended_cost / total if total else 1.0

    def _needed(self, kept: frozenset[str]) -> set[str]:
        needed: set[str] = set()
        for job in reversed(self.jobs.values()):
            if job.key not in kept and (job.lasting or job.key in needed):
                needed.add(job.key)
                needed.update(key for key in job.needs if key not in kept)
        return needed


def do_jobs(
    schedule: Schedule,
    workers: Workers,
    make_task: Callable[[Job], Task],
    *,
    kept: Mapping[str, Any] | None = None,
    keep: Callable[[str, Any, float], Any] = lambda _key, result, _took_s: result,
    on_outcome: Callable[[JobOutcome], None] = lambda _outcome: None,
    noun: str = "jobs",
    progress: Progress = no_progress,
) -> dict[str, JobOutcome]:
    """Do the remaining jobs of a schedule.

    `make_task`: Called when a job begins. `kept`: Results of an earlier run, by key. `keep`: Gets
    key, result and seconds of each job that is done, writes it whole and returns the part to
    keep. The job fails where it raises `OSError`. `on_outcome`: Called with every ended job,
    after `keep`. May raise to stop everything. `noun`: The name of the jobs in the text of
    `progress`.

    Returns
    -------
    dict of str to JobOutcome
        In the order of the jobs, without those that were not needed.
    """
    outcomes = {key: JobOutcome(key, "kept", result) for key, result in (kept or {}).items()}
    began_s = time.monotonic()
    started_s: dict[str, float] = {}

    def report(text: str) -> None:
        total = len(schedule.jobs) - len(schedule.keys("not needed"))
        ended = len(schedule.keys("kept", "done", "failed", "left out"))
        share, elapsed_s = schedule.share, time.monotonic() - began_s
        left = ""
        if _EARLIEST_ESTIMATE < share < 1 and elapsed_s > _LEAST_FOR_ESTIMATE_S:
            left = f", about {duration_words(elapsed_s / share * (1 - share))} left"
        progress(share, f"{ended} of {total} {noun}{left}  {text}")

    def begin() -> Task | None:
        job = schedule.next_job()
        if job is None:
            return None
        started_s[job.key] = time.monotonic()
        return make_task(job)

    def on_event(key: str, event: dict[str, Any]) -> None:
        title = schedule.jobs[key].title or key
        if "progress" in event:
            if event["progress"] is not None:
                schedule.shares[key] = min(1.0, float(event["progress"]))
            report(f"{title}: {event['text']}")
            return
        took_s = time.monotonic() - started_s[key]
        reason, result = str(event.get("failed", "")), None
        if "done" in event:
            try:
                result = keep(key, event["done"], took_s)
            except OSError as error:
                reason = f"{error.filename or key}: cannot be written: {error.strerror or error}"
        if reason:
            schedule.fail(key, reason)
        else:
            schedule.finish(key)
        outcomes[key] = JobOutcome(key, schedule.states[key], result, reason, took_s)
        on_outcome(outcomes[key])
        report(f"{title}: {schedule.states[key]}")

    workers.run(begin, on_event)
    for key in schedule.keys("left out"):
        outcomes[key] = JobOutcome(key, "left out", reason=schedule.reasons[key])
    return {key: outcomes[key] for key in schedule.jobs if key in outcomes}


@contextlib.contextmanager
def hold_folder(folder: Path, lock: Path, *, what: str) -> Iterator[None]:
    """Make a folder, and keep other processes away from it; the lock ends with this process.

    `lock`: Within the folder; its own folder is made, too. `what`: The work done there, such as
    "study".

    Raises `BusyError` if another process is at work there, and `InvalidInputError` if the folder is
    a file, or cannot be written.
    """
    if folder.exists() and not folder.is_dir():
        raise InvalidInputError(f"{folder}: is a file, expected a folder for the {what}")
    busy = BusyError(
        f"{folder}: another {what} is at work here; wait for it, or choose another folder with -o"
    )
    with contextlib.ExitStack() as stack:
        with writing_to(folder):
            lock.parent.mkdir(parents=True, exist_ok=True)
            stack.enter_context(locked(lock, busy=busy))
        yield


def digest_of(content: Any) -> str:
    """Return the SHA-256 of a value of JSON, with any order of its keys."""
    return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()
