"""Resumable work: jobs that depend on one another, done side by side, each only once.

How it works. The caller lists the work as `Job`s, each with a key and the keys that it needs, and
says which results an earlier run has left; `do_jobs` does the others by `Workers` (processes of
this machine, or of a cluster of Dask), the most urgent first, and gives each result to the caller,
written whole before the next job counts on it. A job that fails leaves out those that need it, and
no others. Ctrl-C ends the workers; the same call again goes on.

A folder of results is held by one process, or by several shares (`site_agent.work.claims`): each
does the jobs dealt to it first, then helps the others, and takes over the jobs of processes that
ended without a result.
"""

import hashlib
import heapq
import json
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from site_agent.wording import duration_words
from site_agent.work import Progress, claims, no_progress
from site_agent.work.workers import Task, Workers

State = Literal[
    "kept", "done", "failed", "left out", "waiting", "running", "elsewhere", "not needed"
]

_ENDED: frozenset[State] = frozenset({"kept", "done", "failed", "left out"})
_EARLIEST_ESTIMATE = 0.03
_LEAST_FOR_ESTIMATE_S = 5.0
# Dealing jobs out is worth a look at the folder of claims no more often than this.
_LOOK_INTERVAL_S = 2.0


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
    """``done``, ``kept`` from an earlier run or another share, ``failed``, ``left out``;
    ``elsewhere`` while another share does it, ``waiting`` for such a job."""
    result: Any = None
    """Of its task, or of the caller's `keep`."""
    reason: str = ""
    """Why it failed or was left out; the share that does it."""
    took_s: float = 0.0


class Schedule:
    """The order of jobs: the next one, those that wait, and those that can no longer be done.

    `jobs`: Each after those that it needs. `kept`: Keys of those with results of an earlier
    run. `share`: Its jobs come first; they are dealt by cost, in the same way at all shares.
    """

    def __init__(
        self,
        jobs: Sequence[Job],
        kept: frozenset[str] = frozenset(),
        share: "claims.Share | None" = None,
    ) -> None:
        self.jobs = {job.key: job for job in jobs}
        self.reasons: dict[str, str] = {}
        self.shares: dict[str, float] = {}
        """How far the running jobs are."""
        needed = self._needed(kept)
        self.states: dict[str, State] = {
            key: "kept" if key in kept else "waiting" if key in needed else "not needed"
            for key in self.jobs
        }
        self.count = Counter(self.states.values())
        self._cost = sum(self.jobs[key].cost for key in needed)
        self._ended_cost = 0.0
        self._users: dict[str, list[str]] = {}
        self._blocked: dict[str, int] = {}
        """How many results a job still lacks."""
        # Jobs at the head of the longest chain go first.
        urgencies: dict[str, float] = {}
        for job in reversed(jobs):
            urgencies[job.key] = urgency = urgencies.get(job.key, 0.0) + job.cost
            for key in job.needs:
                urgencies[key] = max(urgencies.get(key, 0.0), urgency)
        dealt = _deal(jobs, share)
        # Of the jobs dealt to others those come first that they will come to last.
        self._ranks = {
            job.key: (0, -urgencies[job.key], number)
            if job.key in dealt
            else (1, urgencies[job.key], -number)
            for number, job in enumerate(jobs)
        }
        self._ready: list[tuple[tuple[int, float, int], str]] = []
        for job in jobs:
            for key in job.needs:
                self._users.setdefault(key, []).append(job.key)
            self._blocked[job.key] = sum(self.states[key] != "kept" for key in job.needs)
            if self.states[job.key] == "waiting":
                self._offer(job.key)

    def next_job(self) -> Job | None:
        """Return the most urgent job that can begin, and count it as begun."""
        while self._ready:
            _, key = heapq.heappop(self._ready)
            if self.states[key] == "waiting":
                self._set(key, "running")
                return self.jobs[key]
        return None

    def leave(self, key: str) -> None:
        """Note that another share does a job."""
        self._set(key, "elsewhere")

    def put_back(self, key: str) -> None:
        """Note that a job waits again."""
        self._set(key, "waiting")
        self._offer(key)

    def finish(self, key: str, state: State = "done") -> None:
        """Note that the result of a job is there."""
        self._set(key, state)
        for user in self._users.get(key, ()):
            self._blocked[user] -= 1
            self._offer(user)

    def fail(self, key: str, reason: str) -> None:
        """Note that a job has failed, and leave out the jobs that depend on it."""
        self._set(key, "failed")
        self.reasons[key] = reason
        gone = [key]
        while gone:
            cause = self.jobs[gone.pop()]
            for user in self._users.get(cause.key, ()):
                if self.states[user] in ("waiting", "elsewhere"):
                    self._set(user, "left out")
                    self.reasons[user] = f"needs the result of: {cause.title or cause.key}"
                    gone.append(user)

    def keys(self, *states: State) -> list[str]:
        """Return the jobs in these states, in their order."""
        return [key for key, state in self.states.items() if state in states]

    @property
    def is_ready(self) -> bool:
        """True if a job can begin."""
        return any(self.states[key] == "waiting" for _, key in self._ready)

    @property
    def share(self) -> float:
        """The part of the work of this run that is done, 0 to 1."""
        running = sum(part * self.jobs[key].cost for key, part in self.shares.items())
        return (self._ended_cost + running) / self._cost if self._cost else 1.0

    def _set(self, key: str, state: State) -> None:
        self.count[self.states[key]] -= 1
        self.count[state] += 1
        self.states[key] = state
        if state in _ENDED:
            self._ended_cost += self.jobs[key].cost
        self.shares.pop(key, None)

    def _offer(self, key: str) -> None:
        if not self._blocked[key] and self.states[key] == "waiting":
            heapq.heappush(self._ready, (self._ranks[key], key))

    def _needed(self, kept: frozenset[str]) -> set[str]:
        needed: set[str] = set()
        for job in reversed(self.jobs.values()):
            if job.key not in kept and (job.lasting or job.key in needed):
                needed.add(job.key)
                needed.update(key for key in job.needs if key not in kept)
        return needed


def _deal(jobs: Sequence[Job], share: "claims.Share | None") -> set[str]:
    """Return the jobs of a share: the most costly first, each to the share with the least work."""
    if share is None:
        return {job.key for job in jobs}
    dealt, loads = set[str](), [(0.0, number) for number in range(1, share.count + 1)]
    for job in sorted(jobs, key=lambda job: -job.cost):
        load, number = loads[0]
        heapq.heapreplace(loads, (load + job.cost, number))
        if number == share.number:
            dealt.add(job.key)
    return dealt


def do_jobs(
    schedule: Schedule,
    workers: Workers,
    make_task: Callable[[Job], Task],
    *,
    folder: "claims.Claims | None" = None,
    find: Callable[[str], Any] | None = None,
    kept: Mapping[str, Any] | None = None,
    keep: Callable[[str, Any, float], Any] = lambda _key, result, _took_s: result,
    on_outcome: Callable[[JobOutcome], None] = lambda _outcome: None,
    wait: bool = False,
    noun: str = "jobs",
    progress: Progress = no_progress,
) -> dict[str, JobOutcome]:
    """Do the remaining jobs of a schedule.

    `make_task`: Called when a job begins. `folder`: Where jobs are claimed; `find` then returns the
    result that another share has left, and raises `LookupError` if there is none. `kept`: Results
    of an earlier run, by key. `keep`: Gets key, result and seconds of each job that is done, writes
    it whole and returns the part to keep. The job fails where it raises `OSError`. `on_outcome`:
    Called with every ended job, after `keep`. May raise to stop everything. `wait`: Until other
    shares have ended all jobs, not only those that this share could still help with. `noun`: The
    name of the jobs in the text of `progress`.

    Returns
    -------
    dict of str to JobOutcome
        In the order of the jobs, without those that were not needed.
    """
    outcomes = {key: JobOutcome(key, "kept", result) for key, result in (kept or {}).items()}
    run = _Run(schedule, make_task, folder, find, keep, on_outcome, noun, progress, outcomes)
    if folder is not None:
        folder.plan([(key, key in outcomes) for key in schedule.jobs])
    while True:
        workers.run(run.begin, run.note)
        if folder is None or not schedule.count["elsewhere"]:
            break
        run.look()
        if not schedule.is_ready:
            if not (wait or schedule.count["waiting"] or folder.in_doubt):
                break
            run.report(f"wait for {run.describe_others()}")
            claims.pause()
    for key in schedule.keys("left out"):
        outcomes[key] = JobOutcome(key, "left out", reason=schedule.reasons[key])
    for key in schedule.keys("elsewhere", "waiting"):
        outcomes[key] = JobOutcome(key, schedule.states[key], reason=run.describe_others())
    return {key: outcomes[key] for key in schedule.jobs if key in outcomes}


@dataclass
class _Run:
    """One call of `do_jobs`."""

    schedule: Schedule
    make_task: Callable[[Job], Task]
    folder: "claims.Claims | None"
    find: Callable[[str], Any] | None
    keep: Callable[[str, Any, float], Any]
    on_outcome: Callable[[JobOutcome], None]
    noun: str
    progress: Progress
    outcomes: dict[str, JobOutcome]

    def __post_init__(self) -> None:
        self._began_s = time.monotonic()
        self._started_s: dict[str, float] = {}
        self._looked_s = self._began_s
        self._tried = False

    def begin(self) -> Task | None:
        """Return the next task; claimed, if others work in the folder, too."""
        if self.schedule.count["elsewhere"]:
            self.look(_LOOK_INTERVAL_S)
        while (job := self.schedule.next_job()) is not None:
            if not self._claim(job.key):
                continue
            self._started_s[job.key] = time.monotonic()
            return self.make_task(job)
        return None

    def _claim(self, key: str) -> bool:
        if self.folder is None:
            return True
        if not self.folder.take(key):
            self.schedule.leave(key)
            # The others' jobs are not tried one by one.
            if not self._tried:
                self._tried = True
                self.look()
            return False
        if self.folder.share is not None and self._is_there(key):
            self.folder.release(key, becomes="done")
            return False
        return True

    def _is_there(self, key: str) -> bool:
        """Take a result that another share has left."""
        assert self.find is not None
        try:
            result = self.find(key)
        except LookupError:
            return False
        self.schedule.finish(key, "kept")
        self.outcomes[key] = JobOutcome(key, "kept", result)
        self.on_outcome(self.outcomes[key])
        return True

    def look(self, interval_s: float = 0.0) -> None:
        """Learn of results, failures and claims of the other shares."""
        if self.folder is None or time.monotonic() - self._looked_s < interval_s:
            return
        self._looked_s = time.monotonic()
        listing = self.folder.look()
        for key in self.schedule.keys("elsewhere", "waiting"):
            if self.schedule.states[key] not in ("elsewhere", "waiting"):
                continue  # left out, by a failure among those before it
            if key in listing.finished and key not in listing.claims and self._is_there(key):
                continue
            if key in listing.failed and (reason := self.folder.failure(key)) is not None:
                self.schedule.fail(key, reason)
                self.outcomes[key] = JobOutcome(key, "failed", reason=reason)
                self.on_outcome(self.outcomes[key])
            elif key in listing.claims and not self.folder.is_left(listing.claims[key]):
                if self.schedule.states[key] == "waiting":
                    self.schedule.leave(key)
            elif self.schedule.states[key] == "elsewhere":
                self.schedule.put_back(key)

    def describe_others(self) -> str:
        """Name the other processes in the folder."""
        assert self.folder is not None
        others = [self.folder.describe(name) for name in self.folder.others()]
        return ", ".join(others) or "nobody: run the same command again"

    def note(self, key: str, event: dict[str, Any]) -> None:
        """Take an event of a worker."""
        title = self.schedule.jobs[key].title or key
        if "progress" in event:
            if event["progress"] is not None:
                self.schedule.shares[key] = min(1.0, float(event["progress"]))
            self.report(f"{title}: {event['text']}")
            return
        took_s = time.monotonic() - self._started_s.pop(key)
        reason, result = str(event.get("failed", "")), None
        if "done" in event:
            try:
                result = self.keep(key, event["done"], took_s)
            except OSError as error:
                reason = f"{error.filename or key}: cannot be written: {error.strerror or error}"
        if reason:
            self.schedule.fail(key, reason)
            if self.folder is not None:
                self.folder.fail(key, reason)
        else:
            self.schedule.finish(key)
            if self.folder is not None:
                self.folder.release(key, becomes="done")
        state = self.schedule.states[key]
        self.outcomes[key] = JobOutcome(key, state, result, reason, took_s)
        self.on_outcome(self.outcomes[key])
        self.report(f"{title}: {state}")

    def report(self, text: str) -> None:
        """Tell how far the work is."""
        total = len(self.schedule.jobs) - self.schedule.count["not needed"]
        ended = sum(self.schedule.count[state] for state in _ENDED)
        share, elapsed_s = self.schedule.share, time.monotonic() - self._began_s
        left = ""
        if _EARLIEST_ESTIMATE < share < 1 and elapsed_s > _LEAST_FOR_ESTIMATE_S:
            left = f", about {duration_words(elapsed_s / share * (1 - share))} left"
        self.progress(share, f"{ended} of {total} {self.noun}{left}  {text}")


def digest_of(content: Any) -> str:
    """Return the SHA-256 of a value of JSON, with any order of its keys."""
    return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()
