"""Worker processes side by side that do a study's steps as these become possible."""

from __future__ import annotations

import selectors
from collections.abc import Callable, Iterator, Sequence
from itertools import accumulate
from typing import Any

from site_agent.runs.child_process import available_memory_bytes
from site_agent.runs.worker_process import WorkerProcess
from site_agent.studies.step_jobs import StepJob

Worker = WorkerProcess[StepJob]

NextJob = Callable[[], StepJob | None]
"""Gives the next job that can begin now; None while there is none."""

JobEvent = Callable[[StepJob, dict[str, Any]], None]
"""Takes what a worker says of a job; may raise to stop everything."""


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
    crew: list[Worker] = []
    with selectors.DefaultSelector() as selector:
        try:
            while True:
                for job in _possible(next_job, workers - sum(each.busy for each in crew)):
                    idle = next((each for each in crew if not each.busy), None)
                    if idle is None:
                        idle = Worker(
                            "site_agent.studies.step_worker",
                            workers,
                            "run the study again with fewer workers",
                        )
                        crew.append(idle)
                        selector.register(idle.output, selectors.EVENT_READ, idle)
                    idle.give(job)
                if not any(each.busy for each in crew):
                    return
                for key, _ in selector.select():
                    for job, event in key.data.read():
                        on_event(job, event)
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
