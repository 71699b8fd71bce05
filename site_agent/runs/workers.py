"""Worker processes side by side, as their parent sees them; `site_agent.runs.worker` is inside."""

import contextlib
import json
import os
import pickle
import selectors
import signal
import subprocess
import sys
import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate
from pathlib import Path
from types import TracebackType
from typing import IO, Any

from site_agent.runs import Progress

_PARENT_VARIABLE = "POOLCTL_PARENT_PROCESS"


def start_python(
    module: str,
    *arguments: str,
    stdin: int | IO[bytes] = subprocess.DEVNULL,
    stderr: int | IO[bytes] = subprocess.STDOUT,
    environment: Mapping[str, str] | None = None,
) -> subprocess.Popen[bytes]:
    """Start ``python -m module`` with standard output in a pipe.

    Ctrl-C in a terminal reaches this process alone, which has to `stop` the child. The child calls
    `die_with_parent` first of all, so that it does not outlive a parent that is killed.

    `environment`: variables to set besides those of this process.
    """
    # The child finds this package where the parent found it, whatever the current folder holds.
    root = str(Path(__file__).resolve().parents[2])
    paths = [root, *filter(None, [os.environ.get("PYTHONPATH")])]
    own = {
        "PYTHONPATH": os.pathsep.join(paths),
        "PYTHONIOENCODING": "utf-8",
        _PARENT_VARIABLE: str(os.getpid()),
    }
    return start(
        [sys.executable, "-P", "-m", module, *arguments],
        stdin=stdin,
        stderr=stderr,
        environment={**os.environ, **(environment or {}), **own},
    )


def start(
    command: Sequence[str],
    *,
    stdin: int | IO[bytes] = subprocess.DEVNULL,
    stdout: int | IO[bytes] = subprocess.PIPE,
    stderr: int | IO[bytes] = subprocess.STDOUT,
    environment: Mapping[str, str] | None = None,
) -> subprocess.Popen[bytes]:
    """Start a command that Ctrl-C in a terminal does not reach: this process has to `stop` it.

    `environment`: all its variables; by default those of this process.
    """
    return subprocess.Popen(
        command, stdin=stdin, stdout=stdout, stderr=stderr, env=environment, start_new_session=True
    )


def stop(process: subprocess.Popen[bytes], *, grace_s: float = 0.0) -> None:
    """Kill a child where it still runs, and close what connects it.

    With a grace period it is first asked to end, and killed only if it still runs afterwards.
    """
    if process.poll() is None and grace_s > 0:
        process.terminate()
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(grace_s)
    if process.poll() is None:
        process.kill()
    process.wait()
    for stream in (process.stdin, process.stdout):
        if stream is not None:
            with contextlib.suppress(OSError):  # what it was to read is lost with it
                stream.close()


def die_with_parent() -> None:
    """Ask the system to kill this process when its parent dies, where the system can (Linux)."""
    if not sys.platform.startswith("linux"):
        return
    import ctypes

    with contextlib.suppress(OSError, AttributeError):
        set_parent_death_signal = 1
        ctypes.CDLL(None).prctl(set_parent_death_signal, signal.SIGKILL)
    parent = os.environ.get(_PARENT_VARIABLE)
    if parent is not None and os.getppid() != int(parent):  # it died before that
        os.kill(os.getpid(), signal.SIGKILL)


def available_memory_bytes() -> int | None:
    """Memory that a new process can get without swapping, None where the system does not say."""
    try:
        lines = Path("/proc/meminfo").read_text(encoding="ascii").splitlines()
        return next(int(line.split()[1]) * 1024 for line in lines if line.startswith("MemAvail"))
    except (OSError, StopIteration, ValueError):
        return None


_CHUNK_BYTES = 65536
_KEPT_BYTES = 2000
_THREAD_VARIABLES = ("OMP", "OPENBLAS", "MKL", "NUMBA")


@dataclass(frozen=True)
class Task:
    """The work of one call of a worker."""

    key: str
    do: Callable[[Any, Progress], Any]
    """A function of a module, of payload and progress; what it returns has to fit into JSON."""
    payload: Any
    """Is pickled."""


def processor_count() -> int:
    """Return how many processors this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def workers_that_fit(wanted: int, needed_bytes: Sequence[int]) -> int:
    """Return how many of `wanted` workers memory allows, at least one.

    `needed_bytes`: memory of each job; the largest are assumed to run at the same time.
    """
    available = available_memory_bytes()
    if available is None:
        return wanted
    together = list(accumulate(sorted(needed_bytes, reverse=True)[:wanted]))
    if not together or together[-1] <= available:
        return wanted
    return max(1, sum(total <= available for total in together))


class Workers:
    """At most `count` worker processes, which start when they are needed and end with the block.

    `count`: They share the threads of the machine. `advice`: What to do when memory ran out, such
    as "run the study again with fewer workers". `tasks_each`: A worker is replaced after so many
    tasks, so that what libraries leak does not add up; None: never, where starting costs more.
    """

    def __init__(self, count: int, *, advice: str, tasks_each: int | None = 25) -> None:
        self.count = max(1, count)
        self._advice, self._tasks_each = advice, tasks_each
        self._running: list[_Worker] = []

    def run(
        self, next_task: Callable[[], Task | None], on_event: Callable[[str, dict[str, Any]], None]
    ) -> None:
        """Do tasks until there are no more.

        `next_task`: Called whenever a worker is free, because a finished task may have made others
        possible. Returns None when none can begin now. `on_event`: Gets a task's key with
        ``{"progress": share, "text": text}`` and, once, ``{"done": ...}`` or ``{"failed": text}``.
        A worker that dies fails its own task only. May raise to stop everything.
        """
        with selectors.DefaultSelector() as selector:
            for worker in self._running:
                selector.register(worker.output, selectors.EVENT_READ, worker)
            while True:
                while sum(each.busy for each in self._running) < self.count:
                    task = next_task()
                    if task is None:
                        break
                    self._free_worker(selector).give(task)
                if not any(each.busy for each in self._running):
                    return
                for key, _ in selector.select():
                    worker = key.data
                    for done, event in worker.read():
                        on_event(done, event)
                    worn_out = not worker.busy and worker.tasks_done == self._tasks_each
                    if worker.dead or worn_out:
                        selector.unregister(worker.output)
                        self._running.remove(worker)
                        worker.stop()

    def _free_worker(self, selector: selectors.BaseSelector) -> "_Worker":
        worker = next((each for each in self._running if not each.busy), None)
        if worker is None:
            worker = _Worker(max(1, processor_count() // self.count), self._advice)
            self._running.append(worker)
            selector.register(worker.output, selectors.EVENT_READ, worker)
        return worker

    def __enter__(self) -> "Workers":
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        for worker in self._running:
            worker.kill()
        for worker in self._running:
            worker.stop()


class _Worker:
    """One worker process."""

    def __init__(self, threads: int, advice: str) -> None:
        self._key: str | None = None
        self.tasks_done = 0
        self.dead = False
        self._advice = advice
        self._rest = b""
        self._printed: IO[bytes] = tempfile.TemporaryFile()  # noqa: SIM115 (closed by `stop`)
        self._process: subprocess.Popen[bytes] = start_python(
            "site_agent.runs.worker",
            stdin=subprocess.PIPE,
            stderr=self._printed,
            environment={f"{name}_NUM_THREADS": str(threads) for name in _THREAD_VARIABLES},
        )

    @property
    def busy(self) -> bool:
        return self._key is not None

    @property
    def output(self) -> IO[bytes]:
        """What to wait for: when there is something to read, call `read`."""
        assert self._process.stdout is not None
        return self._process.stdout

    def give(self, task: Task) -> None:
        self._key = task.key
        assert self._process.stdin is not None
        try:
            self._process.stdin.write(pickle.dumps((task.do, task.payload)))
            self._process.stdin.flush()
        except OSError:
            pass  # it is dead already, which reading its output shows

    def read(self) -> list[tuple[str, dict[str, Any]]]:
        """Return what it has said, and of which task; after the last word it is not busy."""
        key = self._key
        piece = os.read(self.output.fileno(), _CHUNK_BYTES)
        if not piece:
            self.dead, self._key = True, None
            return [] if key is None else [(key, {"failed": self._last_words()})]
        *lines, self._rest = (self._rest + piece).split(b"\n")
        events = [json.loads(line) for line in lines]
        if any("progress" not in event for event in events):
            self._key = None
            self.tasks_done += 1
        assert key is not None, "a worker speaks of its task only"
        return [(key, event) for event in events]

    def kill(self) -> None:
        self._process.kill()

    def stop(self) -> None:
        stop(self._process)
        self._printed.close()

    def _last_words(self) -> str:
        code = self._process.wait()
        if code == -signal.SIGKILL:
            return f"its process was killed; most likely memory ran out: {self._advice}"
        size = self._printed.seek(0, os.SEEK_END)
        self._printed.seek(max(0, size - _KEPT_BYTES))
        lines = self._printed.read().decode("utf-8", "replace").split("\n")
        said = " / ".join(line.strip() for line in lines[-4:] if line.strip())
        how = f"was ended by {signal.Signals(-code).name}" if code < 0 else f"ended with {code}"
        return f"its process {how}{': ' + said if said else ''}"
