"""The folder of jobs: ``POOL_HOME/jobs/ID`` with ``job.json``, ``state.json``, events and a result.

A job waits as long as its file ``queued`` is there. The process that renames the file to
``claimed`` does the job, so two cannot both do it. ``state.json`` is for readers and is written
whole; where it names a process that has ended, the job waits again (`JobFolder.recover`).
"""

import json
import secrets
import shutil
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, field, replace
from datetime import UTC, datetime, timedelta
from functools import cached_property
from itertools import chain
from pathlib import Path
from typing import Any, Literal

from filelock import FileLock, Timeout
from pydantic import TypeAdapter

from site_agent import own_folders
from site_agent.errors import InvalidInputError, NotFoundError, writing_to
from site_agent.plain_json import write_json
from site_agent.work.locks import locked
from site_agent.work.processes import is_alive, start_lasting, this_process

JobState = Literal["waiting", "running", "done", "failed", "cancelled"]
ENDED: frozenset[JobState] = frozenset({"done", "failed", "cancelled"})
_MOST_ATTEMPTS = 2
_KEPT = timedelta(days=90)
_ADDED_WITHIN_S = 3600.0
_LONGEST_NUMBER = 40
_MOST_EVENT_BYTES = 1_000_000
_QUEUED, _CLAIMED, _CANCEL, _PAUSED = "queued", "claimed", "cancel", ".paused"


@dataclass(frozen=True)
class Job:
    """One piece of long work, as it was asked for."""

    id: str
    kind: str
    title: str
    request: Mapping[str, Any]
    """Paths and settings that the kind understands, as JSON."""
    group: str = ""
    """Jobs that were asked for together have the same one."""
    after: tuple[str, ...] = ()
    """Jobs to end before this one, which needs their results."""
    gathers: bool = False
    """Begins also when some of those before it failed."""
    asked_by: str = "command line"
    at: str = ""


@dataclass(frozen=True)
class State:
    """How far a job is; `recovered` says where a process is gone."""

    state: JobState = "waiting"
    share: float | None = None
    text: str = ""
    seconds_left: float | None = None
    attempt: int = 1
    process: tuple[int, float] | None = None
    """Number and start time of the process that runs the job."""
    reason: str = ""
    began: float | None = None
    ended: float | None = None
    order: int = 0
    """Jobs with a smaller number go first."""


@dataclass(frozen=True)
class JobView:
    """A job with its state and result, as a reader sees them."""

    job: Job
    state: State
    result: Mapping[str, Any] = field(default_factory=dict)

    @property
    def ended(self) -> bool:
        return self.state.state in ENDED


_JOB, _STATE = TypeAdapter(Job), TypeAdapter(State)


def _read_state(folder: Path) -> State:
    content = (folder / "state.json").read_bytes()
    try:
        return _STATE.validate_json(content)
    except ValueError:  # the machine lost power; `recover` has the job done again
        return State()


def _read_view(folder: Path) -> JobView:
    job = _JOB.validate_json((folder / "job.json").read_bytes())
    state = _read_state(folder)
    result: Mapping[str, Any] = {}
    if state.state == "done":
        with suppress(OSError, ValueError):
            result = json.loads((folder / "result.json").read_text(encoding="utf-8"))
    return JobView(job, state, result)


class JobFolder:
    """The jobs of one POOL_HOME."""

    def __init__(self, place: Path | None = None) -> None:
        self.place = (place or own_folders.config_folder() / "jobs").absolute()
        self._read: dict[str, tuple[tuple[int, int], JobView]] = {}

    def add(
        self,
        kind: str,
        title: str,
        request: Mapping[str, Any],
        *,
        group: str = "",
        after: Sequence[str] = (),
        gathers: bool = False,
        asked_by: str = "command line",
    ) -> Job:
        """Add a job at the end of the queue; `start_runner` has it done."""
        number = secrets.token_hex(5)
        at = datetime.now(UTC).isoformat(timespec="seconds")
        job = Job(number, kind, title, request, group, tuple(after), gathers, asked_by, at)
        made = self.place / f".new-{number}"
        with writing_to(self.place):
            own_folders.make_private(self.place)
            made.mkdir(mode=0o700)
            write_json(made / "job.json", asdict(job), mode=0o600)
            # Of the clock: jobs added by several processes stay in their order.
            state = State(order=time.time_ns())
            write_json(made / "state.json", asdict(state), mode=0o600)
            (made / _QUEUED).touch(mode=0o600)
            made.rename(self.place / number)
        self.note(number, f"asked for by {asked_by}")
        return job

    def views(self) -> list[JobView]:
        """Return all jobs in the order of the queue."""
        views = []
        if self.place.is_dir():
            for folder in self.place.iterdir():
                if not folder.name.startswith(".") and folder.is_dir():
                    with suppress(NotFoundError):
                        views.append(self.view(folder.name))
        return sorted(views, key=lambda view: view.state.order)

    def view(self, number: str) -> JobView:
        """Return a job; its first letters may stand for its number."""
        folder = self.path(number)
        try:
            # Each state is a new file.
            status = (folder / "state.json").stat()
            version = (status.st_mtime_ns, status.st_ino)
            if self._read.get(folder.name, (None,))[0] != version:
                self._read[folder.name] = (version, _read_view(folder))
        except (OSError, ValueError) as error:
            raise NotFoundError(f"job {number}: cannot be read: {error}") from error
        view = self._read[folder.name][1]
        if view.state.state == "running" and not is_alive(view.state.process):
            text = "was interrupted; begins again"
            state = replace(view.state, state="waiting", share=None, seconds_left=None, text=text)
            return replace(view, state=state)
        return view

    def path(self, number: str) -> Path:
        """Return the folder of a job."""
        if not number.isalnum() or len(number) > _LONGEST_NUMBER:
            raise NotFoundError(f"{number!r} is no number of a job; see 'poolctl jobs ls'")
        if (self.place / number).is_dir():
            return self.place / number
        folders = [path for path in self.place.glob(f"{number}*") if path.is_dir()]
        if len(folders) != 1:
            problem = "several jobs begin" if folders else "no job begins"
            raise NotFoundError(f"{problem} with {number!r}; see 'poolctl jobs ls'")
        return folders[0]

    def note(self, number: str, what: str) -> None:
        """Append to the events of a job, up to their largest size."""
        path = self.path(number) / "events.jsonl"
        if path.exists() and path.stat().st_size > _MOST_EVENT_BYTES:
            return
        event = {"at": datetime.now(UTC).isoformat(timespec="seconds"), "what": what}
        with path.open("a", encoding="utf-8") as file:
            file.write(json.dumps(event) + "\n")

    def events(self, number: str) -> list[dict[str, str]]:
        """Return the events of a job, oldest first."""
        try:
            text = (self.path(number) / "events.jsonl").read_text(encoding="utf-8")
        except FileNotFoundError:
            return []
        events = []
        for line in text.splitlines():
            with suppress(ValueError):  # a last line without its end
                events.append(json.loads(line))
        return events

    def log(self, number: str) -> str:
        """Return the last output of a job's worker."""
        try:
            content = (self.path(number) / "log.txt").read_bytes()
        except FileNotFoundError:
            return ""
        return content.decode("utf-8", "replace")

    def claim(self, number: str) -> bool:
        """Take a waiting job; False where another process has taken it, or it was removed."""
        if not self._take(number):
            return False
        state = self._state(number)
        running = replace(state, state="running", process=this_process(), began=time.time())
        self.write_state(number, replace(running, share=None, text="begins", ended=None))
        return True

    @property
    def is_paused(self) -> bool:
        """True while no further job begins; those in work go on."""
        return (self.place / _PAUSED).exists()

    def pause(self, *, paused: bool) -> None:
        """Let no further job begin, or let them begin again."""
        if paused:
            own_folders.make_private(self.place)
            (self.place / _PAUSED).touch(mode=0o600)
        else:
            (self.place / _PAUSED).unlink(missing_ok=True)

    def has_waiting(self) -> bool:
        """Return whether a job waits to be claimed."""
        return next(self.place.glob(f"[!.]*/{_QUEUED}"), None) is not None

    def finish(self, number: str, state: JobState, *, reason: str = "", result: Any = None) -> None:
        """End a job; its result is there before its state says so."""
        folder = self.place / number
        if state == "done":
            write_json(folder / "result.json", result or {}, mode=0o600)
        self.note(number, f"{state}: {reason}" if reason else state)
        before = self._state(number)
        ended = replace(before, state=state, reason=reason, text="", ended=time.time())
        share = 1.0 if state == "done" else before.share
        self.write_state(number, replace(ended, process=None, share=share, seconds_left=None))
        for name in (_CANCEL, _QUEUED, _CLAIMED):
            (folder / name).unlink(missing_ok=True)

    def cancel(self, number: str) -> None:
        """Stop a job: at once where it waits, by its runner where it runs."""
        view = self.view(number)
        number = view.job.id
        if view.ended:
            raise InvalidInputError(f"job {number}: has ended already ({view.state.state})")
        # Of two, who cancels and who claims, the first to rename wins. The process that has claimed
        # it may not stand in its state yet.
        if self._take(number) or not self.has_runner():
            self.finish(number, "cancelled")
        else:
            (self.path(number) / _CANCEL).touch(mode=0o600)

    def is_cancelled(self, number: str) -> bool:
        return (self.place / number / _CANCEL).exists()

    def retry(self, number: str) -> None:
        """Put a job that failed or was cancelled at the end of the queue."""
        view = self.view(number)
        number = view.job.id
        if view.state.state not in ("failed", "cancelled"):
            raise InvalidInputError(
                f"job {number}: is {view.state.state}; expected one that failed or was cancelled"
            )
        # Its end may have been interrupted before these were gone.
        for name in (_CANCEL, _CLAIMED):
            (self.path(number) / name).unlink(missing_ok=True)
        self.write_state(number, State(order=time.time_ns()))
        self.note(number, "asked for again")
        (self.path(number) / _QUEUED).touch(mode=0o600)

    def put_first(self, number: str) -> None:
        """Put a waiting job before all others."""
        state = self._state(self.path(number).name)
        first = min((view.state.order for view in self.views()), default=0)
        self.write_state(self.path(number).name, replace(state, order=first - 1))

    def remove(self, number: str) -> None:
        """Remove a job that has ended; its results stay."""
        view = self.view(number)
        if not view.ended:
            raise InvalidInputError(
                f"job {view.job.id}: is {view.state.state}; stop it first: "
                f"poolctl jobs cancel {view.job.id}"
            )
        # Its process may be about to remove the last files that say it runs.
        removed = self.place / f".removed-{view.job.id}"
        self.path(view.job.id).rename(removed)
        shutil.rmtree(removed)

    def recover(self) -> None:
        """Put jobs of processes that are gone back into the queue, the second time as failed.

        Only for the one runner. Also removes old jobs, and those not added or removed whole.
        """
        for path in chain(self.place.glob(".new-*"), self.place.glob(".removed-*")):
            with suppress(OSError):  # a new one is being added at this moment
                if time.time() - path.stat().st_mtime > _ADDED_WITHIN_S:
                    shutil.rmtree(path)
        for view in self.views():
            number, folder = view.job.id, self.place / view.job.id
            # One that lives holds another lock: the folder was moved under it, or made again.
            is_queued = (folder / _QUEUED).exists()
            is_left = not is_queued and not is_alive(self._state(number).process)
            if view.ended:
                age = timedelta(seconds=time.time() - (view.state.ended or time.time()))
                if view.state.state != "failed" and age > _KEPT:
                    shutil.rmtree(folder, ignore_errors=True)
            elif is_left and (folder / _CANCEL).exists():
                self.finish(number, "cancelled")
            elif is_left and view.state.attempt >= _MOST_ATTEMPTS:
                at = self._state(number).text or "its begin"
                reason = f"its process ended twice, the last time at: {at}; see its log"
                self.finish(number, "failed", reason=reason)
            elif is_left:
                again = State(attempt=view.state.attempt + 1, order=view.state.order)
                self.write_state(number, again)
                self.note(number, "its process had ended: waits again")
                (folder / _QUEUED).touch(mode=0o600)
                (folder / _CLAIMED).unlink(missing_ok=True)

    def write_state(self, number: str, state: State) -> None:
        """Write the state of a job, whole; only its end has to outlive a loss of power."""
        path, is_end = self.place / number / "state.json", state.state in ENDED
        write_json(path, asdict(state), mode=0o600, lasting=is_end)

    def _state(self, number: str) -> State:
        return _read_state(self.place / number)

    def _take(self, number: str) -> bool:
        folder = self.place / number
        try:
            (folder / _QUEUED).replace(folder / _CLAIMED)
        except OSError:
            return False
        return True

    @cached_property
    def runner_lock(self) -> Path:
        """The file that the runner has locked."""
        own_folders.make_private(self.place)
        return self.place / ".runner.lock"

    def has_runner(self) -> bool:
        """Return whether a runner is at work, or starts."""
        lock = FileLock(self.runner_lock, mode=0o600)
        try:
            lock.acquire(timeout=0)
        except Timeout:
            return True
        lock.release()
        return False

    def start_runner(self) -> None:
        """Start the runner if none is at work and a job waits."""
        with locked(self.place / ".start.lock"):
            if any(not view.ended for view in self.views()) and not self.has_runner():
                log = self.place / "runner.log"
                start_lasting("site_agent.jobs.runner", str(self.place), log=log)
                # Until it holds the lock another could be started, which would end at once.
                deadline_s = time.monotonic() + 10.0
                while not self.has_runner() and time.monotonic() < deadline_s:
                    time.sleep(0.05)
