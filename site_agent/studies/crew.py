"""Worker processes side by side that do a study's steps as these become possible."""

from __future__ import annotations

import json
import os
import pickle
import selectors
import signal
import subprocess
import tempfile
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import accumulate
from typing import IO, Any

from site_agent.child_process import available_memory_bytes, start_python, stop
from site_agent.studies.step_jobs import StepJob

NextJob = Callable[[], StepJob | None]
"""Gives the next job that can begin now; None while there is none."""

JobEvent = Callable[[StepJob, dict[str, Any]], None]
"""Takes what a worker says of a job; may raise to stop everything."""

_CHUNK_BYTES = 65536
_KEPT_BYTES = 2000


def processor_count() -> int:
    """Return how many processors this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def workers_that_fit(wanted: int, needed_bytes: Sequence[int]) -> int:
    """Return how many of `wanted` workers memory allows, at least one.

    Parameters
    ----------
    needed_bytes : sequence of int
        What each of the trainings takes; the largest are assumed to meet.
    """
    available = available_memory_bytes()
    if available is None:
        return wanted
    together = list(accumulate(sorted(needed_bytes, reverse=True)[:wanted]))
    if not together or together[-1] <= available:
        return wanted
    return max(1, sum(total <= available for total in together))


def run_crew(next_job: NextJob, workers: int, on_event: JobEvent) -> None:
    """Do jobs until none is left; whatever ends this, be it Ctrl-C, ends the workers first.

    Parameters
    ----------
    next_job : callable
        Asked whenever a worker is free: a job that has ended may have made others possible.
    workers : int
    on_event : callable
        Gets ``{"progress": share, "text": text}`` and, once for each job, ``{"done": warnings}``
        or ``{"failed": text}``. A worker that dies fails its job, and only that.
    """
    crew: list[_Worker] = []
    with selectors.DefaultSelector() as selector:
        try:
            while True:
                for job in _possible(next_job, workers - sum(each.busy for each in crew)):
                    idle = next((each for each in crew if not each.busy), None)
                    if idle is None:
                        idle = _Worker(workers)
                        crew.append(idle)
                        selector.register(idle.output, selectors.EVENT_READ, idle)
                    idle.give(job)
                if not any(each.busy for each in crew):
                    return
                for key, _ in selector.select():
                    _listen(key.data, on_event)
                    if key.data.dead:
                        selector.unregister(key.data.output)
                        crew.remove(key.data)
                        key.data.stop()
        finally:
            for worker in crew:
                worker.kill()
            for worker in crew:
                worker.stop()


def _possible(next_job: NextJob, most: int) -> Iterator[StepJob]:
    for _ in range(most):
        job = next_job()
        if job is None:
            return
        yield job


def _listen(worker: _Worker, on_event: JobEvent) -> None:
    job = worker.job
    for event in worker.read():
        assert job is not None
        on_event(job, event)


@dataclass
class _Worker:
    workers: int
    job: StepJob | None = None
    dead: bool = False
    _rest: bytes = b""
    _process: subprocess.Popen[bytes] = field(init=False)
    _printed: IO[bytes] = field(default_factory=tempfile.TemporaryFile)

    def __post_init__(self) -> None:
        threads = str(max(1, processor_count() // self.workers))
        names = ("OMP", "OPENBLAS", "MKL", "NUMBA")
        self._process = start_python(
            "site_agent.studies.step_worker",
            stdin=subprocess.PIPE,
            stderr=self._printed,
            environment={f"{name}_NUM_THREADS": threads for name in names},
        )

    @property
    def busy(self) -> bool:
        return self.job is not None

    @property
    def output(self) -> IO[bytes]:
        assert self._process.stdout is not None
        return self._process.stdout

    def give(self, job: StepJob) -> None:
        self.job = job
        assert self._process.stdin is not None
        try:
            self._process.stdin.write(pickle.dumps(job))
            self._process.stdin.flush()
        except OSError:
            pass  # it is dead already, which reading its output will tell

    def read(self) -> list[dict[str, Any]]:
        """Return what the worker has said; call it when there is something to read."""
        piece = os.read(self.output.fileno(), _CHUNK_BYTES)
        if not piece:
            self.dead = True
            events: list[dict[str, Any]] = [{"failed": self._last_words()}] if self.busy else []
            self.job = None
            return events
        *lines, self._rest = (self._rest + piece).split(b"\n")
        events = [json.loads(line) for line in lines]
        if any("progress" not in event for event in events):
            self.job = None
        return events

    def kill(self) -> None:
        self._process.kill()

    def stop(self) -> None:
        stop(self._process)
        self._printed.close()

    def _last_words(self) -> str:
        code = self._process.wait()
        if code == -signal.SIGKILL:
            return (
                "its process was killed; most likely memory ran out: run the study again with "
                "fewer workers"
            )
        size = self._printed.seek(0, os.SEEK_END)
        self._printed.seek(max(0, size - _KEPT_BYTES))
        lines = self._printed.read().decode("utf-8", "replace").split("\n")
        told = " / ".join(line.strip() for line in lines[-4:] if line.strip())
        how = f"was ended by {signal.Signals(-code).name}" if code < 0 else f"ended with {code}"
        return f"its process {how}{': ' + told if told else ''}"
