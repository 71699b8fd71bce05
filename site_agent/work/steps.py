"""Resumable work: steps that depend on one another, done side by side, each only once.

How it works. The caller lists the work as `Step`s, each with a key and the keys that it needs, and
says which results an earlier run has left; `do_steps` does the others by `Workers` (processes of
this machine, or of a cluster of Dask), the most urgent first, and gives each result to the caller,
written whole before the next step counts on it. A step that fails leaves out those that need it,
and no others. Ctrl-C ends the workers; the same call again goes on. A *job* is another thing: work
that a person asked for (`site_agent.jobs`); it can take many steps.

A folder of results is held by one process, or by several shares (`site_agent.work.claims`): each
does the steps dealt to it first, then helps the others, and takes over the steps of processes that
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
# Dealing steps out is worth a look at the folder of claims no more often than this.
_LOOK_INTERVAL_S = 2.0


@dataclass(frozen=True)
class Step:
    """One piece of work."""

    key: str
    """Names its result."""
    needs: tuple[str, ...] = ()
    """Keys of the steps that it takes results from; they come before it in any list."""
    cost: float = 1.0
    """Its duration relative to others, in any unit."""
    title: str = ""
    """For people; the key if empty."""
    lasting: bool = True
    """False: only other steps need its result."""


@dataclass(frozen=True)
class StepOutcome:
    """The outcome of a step."""

    key: str
    state: State
    """``done``, ``kept`` from an earlier run or another share, ``failed``, ``left out``;
    ``elsewhere`` while another share does it, ``waiting`` for such a step."""
    result: Any = None
    """Of its task, or of the caller's `keep`."""
    reason: str = ""
    """Why it failed or was left out; the share that does it."""
    took_s: float = 0.0


class Schedule:
    """The order of steps: the next one, those that wait, and those that can no longer be done.

    `steps`: Each after those that it needs. `kept`: Keys of those with results of an earlier
    run. `share`: Its steps come first; they are dealt by cost, in the same way at all shares.
    """

    def __init__(
        self,
        steps: Sequence[Step],
        kept: frozenset[str] = frozenset(),
        share: "claims.Share | None" = None,
    ) -> None:
        self.steps = {step.key: step for step in steps}
        self.reasons: dict[str, str] = {}
        self.shares: dict[str, float] = {}
        """How far the running steps are."""
        needed = self._needed(kept)
        self.states: dict[str, State] = {
            key: "kept" if key in kept else "waiting" if key in needed else "not needed"
            for key in self.steps
        }
        self.count = Counter(self.states.values())
        self._cost = sum(self.steps[key].cost for key in needed)
        self._ended_cost = 0.0
        self._users: dict[str, list[str]] = {}
        self._blocked: dict[str, int] = {}
        """How many results a step still lacks."""
        # Steps at the head of the longest chain go first.
        urgencies: dict[str, float] = {}
        for step in reversed(steps):
            urgencies[step.key] = urgency = urgencies.get(step.key, 0.0) + step.cost
            for key in step.needs:
                urgencies[key] = max(urgencies.get(key, 0.0), urgency)
        dealt = _deal(steps, share)
        # Of the steps dealt to others those come first that they will come to last.
        self._ranks = {
            step.key: (0, -urgencies[step.key], number)
            if step.key in dealt
            else (1, urgencies[step.key], -number)
            for number, step in enumerate(steps)
        }
        self._ready: list[tuple[tuple[int, float, int], str]] = []
        for step in steps:
            for key in step.needs:
                self._users.setdefault(key, []).append(step.key)
            self._blocked[step.key] = sum(self.states[key] != "kept" for key in step.needs)
            if self.states[step.key] == "waiting":
                self._offer(step.key)

    def next_step(self) -> Step | None:
        """Return the most urgent step that can begin, and count it as begun."""
        while self._ready:
            _, key = heapq.heappop(self._ready)
            if self.states[key] == "waiting":
                self._set(key, "running")
                return self.steps[key]
        return None

    def leave(self, key: str) -> None:
        """Note that another share does a step."""
        self._set(key, "elsewhere")

    def put_back(self, key: str) -> None:
        """Note that a step waits again."""
        self._set(key, "waiting")
        self._offer(key)

    def finish(self, key: str, state: State = "done") -> None:
        """Note that the result of a step is there."""
        self._set(key, state)
        for user in self._users.get(key, ()):
            self._blocked[user] -= 1
            self._offer(user)

    def fail(self, key: str, reason: str) -> None:
        """Note that a step has failed, and leave out the steps that depend on it."""
        self._set(key, "failed")
        self.reasons[key] = reason
        gone = [key]
        while gone:
            cause = self.steps[gone.pop()]
            for user in self._users.get(cause.key, ()):
                if self.states[user] in ("waiting", "elsewhere"):
                    self._set(user, "left out")
                    self.reasons[user] = f"needs the result of: {cause.title or cause.key}"
                    gone.append(user)

    def keys(self, *states: State) -> list[str]:
        """Return the steps in these states, in their order."""
        return [key for key, state in self.states.items() if state in states]

    @property
    def is_ready(self) -> bool:
        """True if a step can begin."""
        return any(self.states[key] == "waiting" for _, key in self._ready)

    @property
    def share(self) -> float:
        """The part of the work of this run that is done, 0 to 1."""
        running = sum(part * self.steps[key].cost for key, part in self.shares.items())
        return (self._ended_cost + running) / self._cost if self._cost else 1.0

    def _set(self, key: str, state: State) -> None:
        self.count[self.states[key]] -= 1
        self.count[state] += 1
        self.states[key] = state
        if state in _ENDED:
            self._ended_cost += self.steps[key].cost
        self.shares.pop(key, None)

    def _offer(self, key: str) -> None:
        if not self._blocked[key] and self.states[key] == "waiting":
            heapq.heappush(self._ready, (self._ranks[key], key))

    def _needed(self, kept: frozenset[str]) -> set[str]:
        needed: set[str] = set()
        for step in reversed(self.steps.values()):
            if step.key not in kept and (step.lasting or step.key in needed):
                needed.add(step.key)
                needed.update(key for key in step.needs if key not in kept)
        return needed


def _deal(steps: Sequence[Step], share: "claims.Share | None") -> set[str]:
    """Return the steps of a share: the most costly first, each to the share with the least work."""
    if share is None:
        return {step.key for step in steps}
    dealt, loads = set[str](), [(0.0, number) for number in range(1, share.count + 1)]
    for step in sorted(steps, key=lambda step: -step.cost):
        load, number = loads[0]
        heapq.heapreplace(loads, (load + step.cost, number))
        if number == share.number:
            dealt.add(step.key)
    return dealt


def do_steps(
    schedule: Schedule,
    workers: Workers,
    make_task: Callable[[Step], Task],
    *,
    folder: "claims.Claims | None" = None,
    find: Callable[[str], Any] | None = None,
    kept: Mapping[str, Any] | None = None,
    keep: Callable[[str, Any, float], Any] = lambda _key, result, _took_s: result,
    on_outcome: Callable[[StepOutcome], None] = lambda _outcome: None,
    wait: bool = False,
    noun: str = "steps",
    progress: Progress = no_progress,
) -> dict[str, StepOutcome]:
    """Do the remaining steps of a schedule.

    `make_task`: Called when a step begins. `folder`: Where steps are claimed; `find` then returns
    the result that another share has left, and raises `LookupError` if there is none. `kept`:
    Results of an earlier run, by key. `keep`: Gets key, result and seconds of each step that is
    done, writes it whole and returns the part to keep. The step fails where it raises `OSError`.
    `on_outcome`: Called with every ended step, after `keep`. May raise to stop everything. `wait`:
    Until other shares have ended all steps, not only those that this share could still help with.
    `noun`: The name of the steps in the text of `progress`.

    Returns
    -------
    dict of str to StepOutcome
        In the order of the steps, without those that were not needed.
    """
    outcomes = {key: StepOutcome(key, "kept", result) for key, result in (kept or {}).items()}
    run = _Run(schedule, make_task, folder, find, keep, on_outcome, noun, progress, outcomes)
    if folder is not None:
        folder.plan([(key, key in outcomes) for key in schedule.steps])
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
        outcomes[key] = StepOutcome(key, "left out", reason=schedule.reasons[key])
    for key in schedule.keys("elsewhere", "waiting"):
        outcomes[key] = StepOutcome(key, schedule.states[key], reason=run.describe_others())
    return {key: outcomes[key] for key in schedule.steps if key in outcomes}


@dataclass
class _Run:
    """One call of `do_steps`."""

    schedule: Schedule
    make_task: Callable[[Step], Task]
    folder: "claims.Claims | None"
    find: Callable[[str], Any] | None
    keep: Callable[[str, Any, float], Any]
    on_outcome: Callable[[StepOutcome], None]
    noun: str
    progress: Progress
    outcomes: dict[str, StepOutcome]

    def __post_init__(self) -> None:
        self._began_s = time.monotonic()
        self._started_s: dict[str, float] = {}
        self._looked_s = self._began_s
        self._tried = False

    def begin(self) -> Task | None:
        """Return the next task; claimed, if others work in the folder, too."""
        if self.schedule.count["elsewhere"]:
            self.look(_LOOK_INTERVAL_S)
        while (step := self.schedule.next_step()) is not None:
            if not self._claim(step.key):
                continue
            self._started_s[step.key] = time.monotonic()
            return self.make_task(step)
        return None

    def _claim(self, key: str) -> bool:
        if self.folder is None:
            return True
        if not self.folder.take(key):
            self.schedule.leave(key)
            # The others' steps are not tried one by one.
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
        self.outcomes[key] = StepOutcome(key, "kept", result)
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
                self.outcomes[key] = StepOutcome(key, "failed", reason=reason)
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
        title = self.schedule.steps[key].title or key
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
        self.outcomes[key] = StepOutcome(key, state, result, reason, took_s)
        self.on_outcome(self.outcomes[key])
        self.report(f"{title}: {state}")

    def report(self, text: str) -> None:
        """Tell how far the work is."""
        total = len(self.schedule.steps) - self.schedule.count["not needed"]
        ended = sum(self.schedule.count[state] for state in _ENDED)
        share, elapsed_s = self.schedule.share, time.monotonic() - self._began_s
        left = ""
        if _EARLIEST_ESTIMATE < share < 1 and elapsed_s > _LEAST_FOR_ESTIMATE_S:
            left = f", about {duration_words(elapsed_s / share * (1 - share))} left"
        self.progress(share, f"{ended} of {total} {self.noun}{left}  {text}")


def digest_of(content: Any) -> str:
    """Return the SHA-256 of a value of JSON, with any order of its keys."""
    return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()
