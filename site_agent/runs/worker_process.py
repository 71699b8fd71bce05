"""Worker processes that do one job after another: the parent's side, and their own.

The parent gives jobs as pickles; a worker answers with lines of JSON: any number of
``{"progress": share, "text": text}``, then ``{"done": ...}`` or ``{"failed": text}``. A worker
that dies fails its job, and only that.
"""

from __future__ import annotations

import json
import os
import pickle
import signal
import subprocess
import sys
import tempfile
import time
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import IO, Any, Generic, TypeVar

from aggregators.errors import AggregatorError
from site_agent.errors import SiteAgentError
from site_agent.runs.child_process import die_with_parent, start_python, stop
from site_agent.runs.progress import Progress

JobT = TypeVar("JobT")
_CHUNK_BYTES = 65536
_KEPT_BYTES = 2000
# Each line costs the parent some work; a person needs no more.
_LEAST_SILENCE_S = 0.2
_THREAD_VARIABLES = ("OMP", "OPENBLAS", "MKL", "NUMBA")


def processor_count() -> int:
    """Return how many processors this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


class WorkerProcess(Generic[JobT]):
    """A worker, as the parent sees it.

    Parameters
    ----------
    module : str
        Whose `main` calls `do_jobs`.
    workers : int
        How many share the processors.
    advice : str
        What to do when memory ran out, such as "run the study again with fewer workers".
    """

    def __init__(self, module: str, workers: int, advice: str) -> None:
        self.job: JobT | None = None
        self.jobs_done = 0
        self.dead = False
        self._advice = advice
        self._rest = b""
        self._printed: IO[bytes] = tempfile.TemporaryFile()  # noqa: SIM115 (closed by `stop`)
        threads = str(max(1, processor_count() // workers))
        self._process: subprocess.Popen[bytes] = start_python(
            module,
            stdin=subprocess.PIPE,
            stderr=self._printed,
            environment={f"{name}_NUM_THREADS": threads for name in _THREAD_VARIABLES},
        )

    @property
    def busy(self) -> bool:
        return self.job is not None

    @property
    def output(self) -> IO[bytes]:
        """What to wait for: when there is something to read, call `read`."""
        assert self._process.stdout is not None
        return self._process.stdout

    def give(self, job: JobT) -> None:
        """Have it do a job; it is not busy."""
        self.job = job
        assert self._process.stdin is not None
        try:
            self._process.stdin.write(pickle.dumps(job))
            self._process.stdin.flush()
        except OSError:
            pass  # it is dead already, which reading its output will tell

    def read(self) -> list[tuple[JobT, dict[str, Any]]]:
        """Return what it has said, and of which job; after the last word it is not busy."""
        job = self.job
        piece = os.read(self.output.fileno(), _CHUNK_BYTES)
        if not piece:
            self.dead, self.job = True, None
            return [] if job is None else [(job, {"failed": self._last_words()})]
        *lines, self._rest = (self._rest + piece).split(b"\n")
        events = [json.loads(line) for line in lines]
        if any("progress" not in event for event in events):
            self.job = None
            self.jobs_done += 1
        assert job is not None, "a worker speaks of its job only"
        return [(job, event) for event in events]

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
        told = " / ".join(line.strip() for line in lines[-4:] if line.strip())
        how = f"was ended by {signal.Signals(-code).name}" if code < 0 else f"ended with {code}"
        return f"its process {how}{': ' + told if told else ''}"


def do_jobs(do: Callable[[Any, Progress], Any], subject: Callable[[Any], object]) -> None:
    """Do jobs until standard input ends: what a worker's `main` is.

    Parameters
    ----------
    do : callable
        Does one job, telling how far it is; what it returns is the job's ``done``. An error of
        ours, of the system, or a fault fails that job alone.
    subject : callable
        What to call a job where the system names no file.
    """
    die_with_parent()
    with os.fdopen(os.dup(1), "w", encoding="utf-8", buffering=1) as events:
        # What libraries print must not come between the events.
        os.dup2(2, 1)
        jobs = sys.stdin.buffer
        while True:
            try:
                job = pickle.load(jobs)
            except EOFError:
                return
            _do_one(job, do, subject, events)


def _do_one(
    job: Any, do: Callable[[Any, Progress], Any], subject: Callable[[Any], object], events: IO[str]
) -> None:
    told_s = 0.0

    def say(event: dict[str, Any]) -> None:
        events.write(json.dumps(event) + "\n")

    def tell(share: float | None, text: str) -> None:
        nonlocal told_s
        if time.monotonic() - told_s >= _LEAST_SILENCE_S:
            told_s = time.monotonic()
            say({"progress": share, "text": text})

    try:
        outcome = do(job, tell)
    except (SiteAgentError, AggregatorError) as error:
        say({"failed": str(error)})
    except OSError as error:
        say({"failed": f"{error.filename or subject(job)}: {error.strerror or error}"})
    except Exception as error:  # a fault of one job must not end the others
        place = traceback.extract_tb(error.__traceback__)[-1]
        where = f"{Path(place.filename).name}, line {place.lineno}"
        say({"failed": f"unexpected {type(error).__name__}: {error} ({where})"})
    else:
        say({"done": outcome})
