"""Jobs of the quickstart that run at once."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeVar

from site_agent.runs.block_threads import BlockThreads
from site_agent.runs.progress import Progress

T = TypeVar("T")


class SharedProgress:
    """Joins the progress of several jobs that run at once into one."""

    def __init__(self, count: int, progress: Progress) -> None:
        self._done = [0.0] * count
        self._progress = progress

    def of(self, index: int) -> Progress:
        def tell(fraction: float | None, text: str) -> None:
            if fraction is not None:
                self._done[index] = fraction
            self._progress(sum(self._done) / len(self._done), text)

        return tell


def run_two_at_once(jobs: Sequence[Callable[[], T]]) -> list[T]:
    """Run two jobs at a time; the first error stops what has not begun, Ctrl-C waits for none."""
    with BlockThreads("job") as threads:
        return threads.run(lambda job: job(), jobs, 2)
