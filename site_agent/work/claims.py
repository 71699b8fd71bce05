"""A folder of results that processes on several machines fill together, by files alone.

Every process at work in a folder registers as a *holder*: a file with its share, host, process and
versions, touched every few seconds. It *claims* a step by creating the file ``KEY.0`` with its name
in it (O_CREAT and O_EXCL, which every file system of a cluster does for one process only). The
claim of a holder that has ended is taken over by creating ``KEY.1``; the highest number counts. At
the end of the step the claim becomes ``KEY.done`` or ``KEY.failed``::

    STUDY/.study/holders/HOLDER     share, host, process, versions; its time is the heartbeat
    STUDY/.study/claims/KEY.0       HOLDER
    STUDY/.study/plan.json          the steps, for `read_status`
    STUDY/.study/work/HOLDER/       unfinished results

Claims only save work: results are written whole, and two holders of one step write the same bytes.
On the same host a holder has ended when its process has. Elsewhere it has ended when its file is
ten minutes older than one touched just now, and has not changed in two minutes of watching. So
neither a wrong clock nor a slow file server makes a holder appear dead.
"""

import contextlib
import hashlib
import json
import logging
import os
import pickle
import platform
import random
import re
import secrets
import shutil
import socket
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, replace
from importlib import metadata
from pathlib import Path
from typing import Any, TypeVar

import numpy as np

from aggregators.whole_file import write_whole
from site_agent.errors import BusyError, InvalidInputError, writing_to
from site_agent.plain_json import json_bytes, write_json
from site_agent.wording import duration_words
from site_agent.work.processes import is_alive, this_process

_log = logging.getLogger(__name__)
HEARTBEAT_S = 15.0
SILENCE_S = 600.0
WATCH_S = 120.0
POLL_S = 2.0
_ALONE, _PREPARED = "alone", "prepared"
_ARRAYS = (
    ("SLURM_ARRAY_TASK_ID", "SLURM_ARRAY_TASK_MIN", "SLURM_ARRAY_TASK_COUNT"),
    ("PBS_ARRAY_INDEX", "", "PBS_ARRAY_COUNT"),
    ("SGE_TASK_ID", "SGE_TASK_FIRST", "SGE_TASK_LAST"),
    ("CONDOR_PROCESS", "", "CONDOR_COUNT"),
)
T = TypeVar("T")


@dataclass(frozen=True)
class Share:
    """One of several processes that work in a folder at the same time."""

    number: int
    """From 1."""
    count: int

    def __str__(self) -> str:
        return f"share {self.number}/{self.count}"


def read_share(text: str, environment: Mapping[str, str] = os.environ) -> Share:
    """Read ``3/20``, or ``auto``: the place in an array of SLURM, PBS, SGE or HTCondor."""
    if text == "auto":
        for index, first, count in _ARRAYS:
            if environment.get(index, "undefined") != "undefined" and environment.get(count):
                start = int(environment.get(first, 0 if "CONDOR" in index else 1))
                return _share(int(environment[index]) - start + 1, int(environment[count]))
        expected = " or ".join(f"{index} and {count}" for index, _, count in _ARRAYS)
        raise InvalidInputError(f"--share auto: no array job here; expected {expected}")
    if not re.fullmatch(r"\d+/\d+", text):
        raise InvalidInputError(f"--share {text}: expected I/N, such as 3/20, or auto")
    number, total = text.split("/")
    return _share(int(number), int(total))


def _share(number: int, count: int) -> Share:
    if not 1 <= number <= count:
        raise InvalidInputError(f"--share {number}/{count}: expected 1/{count} to {count}/{count}")
    return Share(number, count)


def this_host() -> str:
    """Return a name for the machine, and for the container where processes have their own."""
    space = ""
    with suppress(OSError):
        number = Path("/proc/self/ns/pid").stat().st_ino
        space = "" if number == 0xEFFFFFFC else f"-{number:x}"
    return socket.gethostname() + space


def versions() -> dict[str, str]:
    """Return the versions on which results depend."""
    return {
        "poolctl": metadata.version("poolctl"),
        "Python": platform.python_version(),
        "numpy": np.__version__,
    }


def refuse_other_versions(where: str, theirs: Mapping[str, str]) -> None:
    """Refuse to work with a process that has other versions; `where` names it."""
    mine = versions()
    if theirs != mine:
        texts = [
            ", ".join(f"{name} {each_side.get(name, 'none')}" for name in mine)
            for each_side in (theirs, mine)
        ]
        raise InvalidInputError(
            f"{where} has {texts[0]}, but this process {texts[1]}",
            hint="install the same versions everywhere, so that all results are alike",
        )


@dataclass(frozen=True)
class Holder:
    """A process that works in a folder."""

    share: str
    """``share 3/20``; empty for one that works alone."""
    host: str
    process: tuple[int, float]
    """Number and start time."""
    versions: Mapping[str, str]
    job: str = ""
    """Of the cluster's queue."""

    def __str__(self) -> str:
        parts = [self.share, f"on {self.host}, process {self.process[0]}"]
        return " ".join(filter(None, [*parts, self.job and f"(job {self.job})"]))


@dataclass(frozen=True)
class Claim:
    """The claim in force on a step."""

    key: str
    number: int
    """How often it was taken over."""


@dataclass(frozen=True)
class Listing:
    """The state of all steps that somebody has begun."""

    claims: Mapping[str, Claim]
    finished: frozenset[str]
    failed: frozenset[str]


class Claims:
    """The claims of this process in a folder that it holds, alone or as a share.

    `hidden`: The folder of these files, within that of the results. `what`: The work done there,
    such as "study".
    """

    def __init__(self, hidden: Path, share: Share | None, *, what: str) -> None:
        self.share, self.hidden, self._what = share, hidden, what
        self.name = f"{this_host()}-{os.getpid()}-{secrets.token_hex(3)}"
        self.work = hidden / "work" / self.name
        """For unfinished results of this process."""
        self._place, self._holders = hidden / "claims", hidden / "holders"
        self._own: dict[str, int] = {}
        self._watched: dict[Path, tuple[int, float]] = {}
        """Time of the last change of files of other machines, and since when it is known."""
        self._doubtful = set[Path]()
        self._ended: set[str] = set()
        self._failed_before: dict[str, str] = {}
        self.refused: dict[str, str] = {}
        """Steps that cannot begin, and why: for `plan`."""

    # Entering and leaving.

    @contextlib.contextmanager
    def held(self) -> Iterator["Claims"]:
        """Register in the folder until the block ends."""
        for folder in (self._place, self._holders):
            folder.mkdir(parents=True, exist_ok=True)
        queue = [os.environ.get(name) for name in ("SLURM_JOB_ID", "PBS_JOBID", "JOB_ID")]
        holder = Holder(
            str(self.share or ""), this_host(), this_process(), versions(),
            next(filter(None, queue), ""),
        )  # fmt: skip
        write_json(self._holders / self.name, asdict(holder), lasting=False)
        ended = threading.Event()
        beat = threading.Thread(target=self._beat, args=(ended,), name="heartbeat", daemon=True)
        beat.start()
        try:
            self._enter()
            yield self
        finally:
            ended.set()
            for key in list(self._own):
                self.release(key)
            shutil.rmtree(self.work, ignore_errors=True)
            with suppress(OSError):
                (self._holders / self.name).unlink()

    def _enter(self) -> None:
        while self.others() and self.in_doubt:
            pause()
        if self.share is None and not self.take(_ALONE):
            raise self._busy(self.holder_of(_ALONE))
        for name in self.others():
            try:
                holder = self._holder(name)
            except FileNotFoundError:  # it has left just now
                continue
            if self.share is None or not holder.share:
                raise self._busy(name)
            refuse_other_versions(f"{self.hidden.parent}: {holder}", holder.versions)
        if self.share is None:
            # Nobody else is here, so nothing that others left is in force. Processes that look
            # whether they may enter have a file of a holder, too.
            for path in [*self._place.iterdir(), *self._holders.iterdir()]:
                if path.name.startswith(".") or path.name == f"{_ALONE}.{self._own[_ALONE]}":
                    continue
                if path.parent != self._holders or not self.is_alive(path.name):
                    path.unlink(missing_ok=True)
            shutil.rmtree(self.hidden / "work", ignore_errors=True)
        elif (alone := self.holder_of(_ALONE)) is not None and self.is_alive(alone):
            raise self._busy(alone)
        else:
            self._failed_before = {
                key: self._read(f"{key}.failed") for key in self.look().failed
            }  # fmt: skip
        self.work.mkdir(parents=True)

    def _busy(self, name: str | None) -> BusyError:
        return BusyError(
            f"{self.hidden.parent}: another {self._what} is at work here ({self.describe(name)}); "
            "wait for it, or choose another folder with -o"
        )

    def _beat(self, ended: threading.Event) -> None:
        while not ended.wait(HEARTBEAT_S):
            with suppress(OSError):
                os.utime(self._holders / self.name)

    # Claims.

    def take(self, key: str) -> bool:
        """Claim a step; False if a living process has it."""
        number, name = 0, ""
        while not self._create(key, number):
            name = self._read(f"{key}.{number}")
            if not self.is_left(Claim(key, number)):
                return False
            number += 1
        self._own[key] = number
        if number and self._read(f"{key}.{number - 1}") != name:
            # It was no leftover: its holder has given it back just now.
            self.release(key, older=False)
            return False
        return True

    def is_left(self, claim: Claim) -> bool:
        """Return whether the process that has a claim has ended."""
        file = f"{claim.key}.{claim.number}"
        name = self._read(file)
        # It may have died before it wrote its name.
        return not self.is_alive(name) if name else self._is_still(self._place / file)

    def _create(self, key: str, number: int) -> bool:
        try:
            file = os.open(
                self._place / f"{key}.{number}", os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o666
            )
        except FileExistsError:
            return False
        try:
            os.write(file, self.name.encode())
        finally:
            os.close(file)
        return True

    def has(self, key: str) -> bool:
        """Return whether this process has claimed a step."""
        return key in self._own

    def release(self, key: str, *, becomes: str = "", older: bool = True) -> None:
        """Give a claim back: `becomes` is ``done`` where the result is there.

        `older`: With those that it took over.
        """
        number = self._own.pop(key)
        for taken_over in range(number if older else 0):
            (self._place / f"{key}.{taken_over}").unlink(missing_ok=True)
        with suppress(FileNotFoundError):
            if becomes:
                (self._place / f"{key}.{number}").replace(self._place / f"{key}.{becomes}")
            else:
                (self._place / f"{key}.{number}").unlink()

    def fail(self, key: str, reason: str) -> None:
        """Note for all shares that a step has failed."""
        write_json(self._place / f"{key}.failed", {"reason": reason, "holder": self.name})
        self.release(key)

    def failure(self, key: str) -> str | None:
        """Return why a step has failed; None where this run shall try it again."""
        text = self._read(f"{key}.failed")
        if not text or self._failed_before.get(key) == text:
            return None
        return str(json.loads(text)["reason"])

    def look(self) -> Listing:
        """List the folder of claims, once."""
        return list_claims(self._place)

    @contextlib.contextmanager
    def turn(self, key: str, is_over: Callable[[], bool] = lambda: False) -> Iterator[bool]:
        """Wait for a claim; yields False where `is_over` becomes true meanwhile."""
        while not self.take(key):
            if is_over():
                yield False
                return
            pause()
        try:
            yield not is_over()
        finally:
            self.release(key)

    def agree(self, request: Any, prepare: Callable[[], T]) -> T:
        """Prepare the common files of all shares, once; refuse another request in their folder."""
        file = self.hidden / _PREPARED
        digest = hashlib.sha256(json_bytes(request)).hexdigest()
        with self.turn(_PREPARED):
            if self.others() and file.exists():
                if file.stat().st_uid != (self._holders / self.name).stat().st_uid:
                    raise InvalidInputError(
                        f"{file}: was written by another user, expected shares of one user",
                        hint="Choose another folder with -o.",
                    )
                theirs, prepared = pickle.loads(file.read_bytes())
                if theirs != digest:
                    raise InvalidInputError(
                        f"{self.hidden.parent}: {self.describe(self.others()[0])} is at work here "
                        "with other data or settings; expected the same command for all shares"
                    )
                return prepared  # type: ignore[no-any-return]
            prepared = prepare()
            write_whole(file, pickle.dumps((digest, prepared)))
            return prepared

    def plan(self, steps: Sequence[tuple[str, bool]]) -> None:
        """Write the steps, and whether their results are there, for `read_status`."""
        jobs = [*steps, *((key, False) for key in self.refused)]
        content = {"what": self._what, "jobs": jobs, "refused": self.refused}
        write_json(self.hidden / "plan.json", content)

    # Holders.

    def others(self) -> list[str]:
        """Return the names of the other living processes here."""
        names = sorted(path.name for path in self._holders.iterdir())
        return [
            name
            for name in names
            if name != self.name and not name.startswith(".") and self.is_alive(name)
        ]

    def holder_of(self, key: str) -> str | None:
        """Return the name of the holder of a claim in force."""
        claim = self.look().claims.get(key)
        return None if claim is None else self._read(f"{key}.{claim.number}") or None

    def describe(self, name: str | None) -> str:
        """Return words for a holder."""
        try:
            return str(self._holder(name or ""))
        except OSError:
            return "unknown"

    def is_alive(self, name: str) -> bool:
        """Return whether a holder is still at work, as far as can be told."""
        if name == self.name:
            return True
        if name in self._ended:
            return False
        try:
            holder = self._holder(name)
            if holder.host == this_host():
                alive = is_alive(holder.process)
            else:
                alive = not self._is_still(self._holders / name)
        except FileNotFoundError:
            alive = False
        if not alive:
            self._ended.add(name)
            self._doubtful.discard(self._holders / name)
        return alive

    def _is_still(self, path: Path) -> bool:
        """Return whether a file of another process is old, and did not change while watched."""
        try:
            touched_ns = path.stat().st_mtime_ns
        except FileNotFoundError:
            return True
        known = path in self._watched
        if self._watched.get(path, (0, 0.0))[0] != touched_ns:
            self._watched[path] = (touched_ns, time.monotonic())
            self._doubtful.discard(path)
            if known:
                return False
        heartbeat = self._holders / self.name
        os.utime(heartbeat)
        if (heartbeat.stat().st_mtime_ns - touched_ns) / 1e9 < SILENCE_S:
            return False
        self._doubtful.add(path)
        return time.monotonic() - self._watched[path][1] >= WATCH_S

    @property
    def in_doubt(self) -> bool:
        """True while a process of another machine is watched because of its long silence."""
        return any(path.exists() for path in self._doubtful)

    def _holder(self, name: str) -> Holder:
        return read_holder(self._holders / name)

    def _read(self, name: str) -> str:
        try:
            return (self._place / name).read_text(encoding="utf-8")
        except FileNotFoundError:
            return ""


def read_holder(path: Path) -> Holder:
    """Read the file of a holder."""
    content = json.loads(path.read_text(encoding="utf-8"))
    return Holder(**{**content, "process": tuple(content["process"])})


def list_claims(place: Path) -> Listing:
    """Return the claims in force, and the steps that have ended."""
    claims: dict[str, Claim] = {}
    ended: dict[str, set[str]] = {"done": set(), "failed": set()}
    with os.scandir(place) as entries:
        for entry in entries:
            key, _, state = entry.name.rpartition(".")
            if state in ended:
                ended[state].add(key)
            elif state.isdigit() and (key not in claims or claims[key].number < int(state)):
                claims[key] = Claim(key, int(state))
    return Listing(claims, frozenset(ended["done"]), frozenset(ended["failed"]))


def pause() -> None:
    """Wait a moment, out of step with other processes."""
    time.sleep(POLL_S * random.uniform(0.5, 1.5))


@contextlib.contextmanager
def hold_folder(
    folder: Path, hidden: str, *, what: str, share: Share | None = None, wait: bool = False
) -> Iterator[Claims]:
    """Make a folder and register there, alone or as a share.

    `hidden`: Name of the folder within it for claims. `what`: The work done there, such as
    "study". `wait`: Until the processes at work there have ended.

    Raises `BusyError` if another process is at work there, and `InvalidInputError` if the folder is
    a file, cannot be written, or has shares with other versions.
    """
    if folder.exists() and not folder.is_dir():
        raise InvalidInputError(f"{folder}: is a file, expected a folder for the {what}")
    with contextlib.ExitStack() as stack:
        while True:
            try:
                with writing_to(folder):
                    claims = stack.enter_context(Claims(folder / hidden, share, what=what).held())
                break
            except BusyError:
                if not wait:
                    raise
            pause()
        try:
            yield claims
        except KeyboardInterrupt:
            _log.info("%s: what is finished is kept, and the same command does the rest", folder)
            raise


@dataclass(frozen=True)
class JobStatus:
    """The state of one step of a folder."""

    key: str
    state: str
    """``done``, ``running``, ``failed``, ``waiting``; ``lost``: its process has ended."""
    where: str = ""
    """The process that does it; the reason of a failure."""


def read_status(folder: Path) -> tuple[str, list[JobStatus]]:
    """Return the kind of work that is done in a folder, and the state of its steps.

    Nothing is written: the right to read the folder is enough.
    """
    plans = sorted(folder.glob(".*/plan.json"))
    if not plans:
        raise InvalidInputError(
            f"{folder}: no study, batch or simulation has begun here; expected its folder"
        )
    hidden = plans[0].parent
    content = json.loads(plans[0].read_text(encoding="utf-8"))
    listing = list_claims(hidden / "claims")
    rows = []
    for key, is_there in content["jobs"]:
        row = JobStatus(key, "done" if is_there or key in listing.finished else "waiting")
        if (claim := listing.claims.get(key)) is not None:
            row = replace(row, **_running(hidden, claim))
        elif key in content.get("refused", ()):
            row = JobStatus(key, "failed", content["refused"][key])
        elif row.state == "waiting" and key in listing.failed:
            with suppress(OSError, ValueError):
                reason = json.loads((hidden / "claims" / f"{key}.failed").read_text())["reason"]
                row = replace(row, state="failed", where=reason)
        rows.append(row)
    return content["what"], rows


def _running(hidden: Path, claim: Claim) -> dict[str, str]:
    holders = hidden / "holders"
    try:
        name = (hidden / "claims" / f"{claim.key}.{claim.number}").read_text(encoding="utf-8")
        holder = read_holder(holders / name)
        silent_s = time.time() - (holders / name).stat().st_mtime
    except (OSError, ValueError):
        return {"state": "lost"}
    if holder.host == this_host():
        return {"state": "running" if is_alive(holder.process) else "lost", "where": str(holder)}
    silent = f", silent for {duration_words(silent_s)}" if silent_s > SILENCE_S else ""
    return {"state": "running", "where": f"{holder}{silent}"}
