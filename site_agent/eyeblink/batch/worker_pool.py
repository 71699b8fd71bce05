"""Worker processes side by side, each with one job at a time."""

from __future__ import annotations

import selectors
from collections.abc import Callable, Iterable
from typing import Any

from site_agent.eyeblink.batch.worker import SessionJob
from site_agent.runs.child_process import available_memory_bytes
from site_agent.runs.worker_process import WorkerProcess, processor_count

Worker = WorkerProcess[SessionJob]

JobEvent = Callable[[SessionJob, dict[str, Any]], None]
"""Takes what a worker says of a job; may raise to stop everything."""

# A worker is replaced after so many jobs, so that what libraries leak does not add up.
JOBS_PER_WORKER = 25
# What a worker takes besides its landmark model: libraries, frames read ahead, a long trace.
_WORKER_BYTES = 700_000_000
# dlib's .dat in memory, as arrays and as read, relative to the file.
_MODEL_COPIES = 3


def worker_count(wanted: int | None, jobs: int, model_bytes: int) -> int:
    """Return how many workers to run: one a core, as many as memory allows, at least one."""
    if wanted is not None:
        return max(1, min(wanted, jobs))
    count = processor_count()
    available = available_memory_bytes()
    if available is not None:
        count = min(count, available // (_WORKER_BYTES + _MODEL_COPIES * model_bytes))
    return max(1, min(count, jobs))


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
    crew: list[Worker] = []
    with selectors.DefaultSelector() as selector:
        try:
            for _ in range(workers):
                _engage(crew, selector, waiting, workers)
            while crew:
                for key, _ in selector.select():
                    worker: Worker = key.data
                    for job_told, event in worker.read():
                        on_event(job_told, event)
                    if worker.busy:
                        continue
                    job = None if _is_worn_out(worker) else next(waiting, None)
                    if job is None:
                        selector.unregister(worker.output)
                        crew.remove(worker)
                        worker.stop()
                        if _is_worn_out(worker):
                            _engage(crew, selector, waiting, workers)
                    else:
                        worker.give(job)
        finally:
            for worker in crew:
                worker.kill()
            for worker in crew:
                worker.stop()


def _engage(
    crew: list[Worker],
    selector: selectors.BaseSelector,
    waiting: Iterable[SessionJob],
    workers: int,
) -> None:
    job = next(iter(waiting), None)
    if job is None:
        return
    worker = Worker(
        "site_agent.eyeblink.batch.worker", workers, "run the batch again with fewer workers"
    )
    crew.append(worker)
    selector.register(worker.output, selectors.EVENT_READ, worker)
    worker.give(job)


def _is_worn_out(worker: Worker) -> bool:
    return worker.dead or worker.jobs_done >= JOBS_PER_WORKER
