"""Worker processes side by side, each with one job at a time."""

from __future__ import annotations

import json
import os
import pickle
import selectors
import signal
import subprocess
import tempfile
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import IO, Any

from site_agent.child_process import available_memory_bytes, start_python, stop
from site_agent.eyeblink.batch_worker import SessionJob

JobEvent = Callable[[SessionJob, dict[str, Any]], None]
"""Takes what a worker says of a job; may raise to stop everything."""

# A worker is replaced after so many jobs, so that what libraries leak does not add up.
JOBS_PER_WORKER = 25
_CHUNK_BYTES = 65536
_KEPT_BYTES = 2000
# What a worker takes besides its landmark model: libraries, frames read ahead, a long trace.
_WORKER_BYTES = 700_000_000
# dlib's .dat in memory, as arrays and as read, relative to the file.
_MODEL_COPIES = 3


def worker_count(wanted: int | None, jobs: int, model_bytes: int) -> int:
    """Return how many workers to run: one a core, as many as memory allows, at least one."""
    if wanted is not None:
        return max(1, min(wanted, jobs))
    count = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    available = available_memory_bytes()
    if available is not None:
        count = min(count or 1, available // (_WORKER_BYTES + _MODEL_COPIES * model_bytes))
    return max(1, min(count or 1, jobs))


def run_jobs(jobs: Iterable[SessionJob], workers: int, on_event: JobEvent) -> None:
    """Run all jobs; whatever ends this, be it Ctrl-C, ends the workers first.

    Parameters
    ----------
    jobs : iterable of SessionJob
        Taken one by one, when a worker is free.
    workers : int
    on_event : callable
        Gets ``{"progress": share, "text": text}`` and, once for each job, ``{"done": true}`` or
        ``{"failed": text}``. A worker that dies fails its job, and only that.
    """
    waiting = iter(jobs)
    crew: list[_Worker] = []
    with selectors.DefaultSelector() as selector:
        try:
            for _ in range(workers):
                _engage(crew, selector, waiting, workers)
            while crew:
                for key, _ in selector.select():
                    worker: _Worker = key.data
                    for event in worker.read():
                        on_event(worker.job, event)
                    if worker.busy:
                        continue
                    job = None if worker.is_worn_out else next(waiting, None)
                    if job is None:
                        selector.unregister(worker.output)
                        crew.remove(worker)
                        worker.stop()
                        if worker.is_worn_out:
                            _engage(crew, selector, waiting, workers)
                    else:
                        worker.give(job)
        finally:
            for worker in crew:
                worker.kill()
            for worker in crew:
                worker.stop()


def _engage(
    crew: list[_Worker],
    selector: selectors.BaseSelector,
    waiting: Iterable[SessionJob],
    workers: int,
) -> None:
    job = next(iter(waiting), None)
    if job is None:
        return
    worker = _Worker(job, workers)
    crew.append(worker)
    selector.register(worker.output, selectors.EVENT_READ, worker)
    worker.give(job)


@dataclass
class _Worker:
    job: SessionJob
    workers: int
    busy: bool = False
    dead: bool = False
    jobs_done: int = 0
    _rest: bytes = b""
    _process: subprocess.Popen[bytes] = field(init=False)
    _printed: IO[bytes] = field(default_factory=tempfile.TemporaryFile)

    def __post_init__(self) -> None:
        threads = str(max(1, (os.cpu_count() or 1) // self.workers))
        names = ("OMP", "OPENBLAS", "MKL", "NUMBA")
        self._process = start_python(
            "site_agent.eyeblink.batch_worker",
            stdin=subprocess.PIPE,
            stderr=self._printed,
            environment={f"{name}_NUM_THREADS": threads for name in names},
        )

    @property
    def output(self) -> IO[bytes]:
        assert self._process.stdout is not None
        return self._process.stdout

    @property
    def is_worn_out(self) -> bool:
        return self.dead or self.jobs_done >= JOBS_PER_WORKER

    def give(self, job: SessionJob) -> None:
        self.job, self.busy = job, True
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
            events = [{"failed": self._last_words()}] if self.busy else []
            self.busy = False
            return events
        *lines, self._rest = (self._rest + piece).split(b"\n")
        events = [json.loads(line) for line in lines]
        if any("progress" not in event for event in events):
            self.busy = False
            self.jobs_done += 1
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
                "its process was killed; most likely memory ran out: run the batch again with "
                "fewer workers"
            )
        size = self._printed.seek(0, os.SEEK_END)
        self._printed.seek(max(0, size - _KEPT_BYTES))
        lines = self._printed.read().decode("utf-8", "replace").split("\n")
        told = " / ".join(line.strip() for line in lines[-4:] if line.strip())
        how = f"was ended by {signal.Signals(-code).name}" if code < 0 else f"ended with {code}"
        return f"its process {how}{': ' + told if told else ''}"
