"""Worker processes side by side, each with one job at a time."""

from __future__ import annotations

import selectors
from collections.abc import Callable, Sequence
from itertools import accumulate
from typing import Any, TypeVar

from site_agent.runs.child_process import available_memory_bytes
from site_agent.runs.worker_process import WorkerProcess

JobT = TypeVar("JobT")

# A worker is replaced after this many jobs, so that what libraries leak does not add up.
_JOBS_PER_WORKER = 25


def workers_that_fit(wanted: int, needed_bytes: Sequence[int]) -> int:
    """Return how many of `wanted` workers memory allows, at least one.

    Parameters
    ----------
    needed_bytes : sequence of int
        Memory of each job; the largest are assumed to run at the same time.
    """
    available = available_memory_bytes()
    if available is None:
        return wanted
    together = list(accumulate(sorted(needed_bytes, reverse=True)[:wanted]))
    if not together or together[-1] <= available:
        return wanted
    return max(1, sum(total <= available for total in together))


def run_jobs(
    next_job: Callable[[], JobT | None],
    workers: int,
    on_event: Callable[[JobT, dict[str, Any]], None],
    *,
    module: str,
    advice: str,
) -> None:
    """Run jobs until there are no more; the workers end with this call, even by Ctrl-C.

    Parameters
    ----------
    next_job : callable
        Called whenever a worker is free, because a finished job may have made others possible.
        Returns None when no job can begin now.
    on_event : callable
        Gets ``{"progress": share, "text": text}`` and, once for each job, ``{"done": ...}`` or
        ``{"failed": text}``. A worker that dies fails its own job only. May raise to stop
        everything.
    """
    running: list[WorkerProcess[JobT]] = []
    with selectors.DefaultSelector() as selector:
        try:
            while True:
                while sum(each.busy for each in running) < workers:
                    job = next_job()
                    if job is None:
                        break
                    worker = next((each for each in running if not each.busy), None)
                    if worker is None:
                        worker = WorkerProcess(module, workers, advice)
                        running.append(worker)
                        selector.register(worker.output, selectors.EVENT_READ, worker)
                    worker.give(job)
                if not any(each.busy for each in running):
                    return
                for key, _ in selector.select():
                    worker = key.data
                    for done_job, event in worker.read():
                        on_event(done_job, event)
                    worn_out = not worker.busy and worker.jobs_done >= _JOBS_PER_WORKER
                    if worker.dead or worn_out:
                        selector.unregister(worker.output)
                        running.remove(worker)
                        worker.stop()
        finally:
            for worker in running:
                worker.kill()
            for worker in running:
                worker.stop()
