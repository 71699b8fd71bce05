"""The processes of sites: ``python -m site_agent.federated.engines.simulator.site_process``.

A process trains one site's network at a time, in one thread, and writes its contribution; see
`site_agent.runs.worker_process`.
"""

from __future__ import annotations

import selectors
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any

from aggregators.methods.networks import write_network_contribution
from aggregators.methods.networks.round_options import LocalTraining
from site_agent.errors import TrainingFailedError
from site_agent.federated.engines.simulator.data import SiteData, read_once
from site_agent.federated.local_training import train_contribution
from site_agent.networks import read_network
from site_agent.runs.progress import Progress
from site_agent.runs.worker_pool import workers_that_fit
from site_agent.runs.worker_process import WorkerProcess, do_jobs, processor_count

_MODULE = "site_agent.federated.engines.simulator.site_process"
_ADVICE = "run the same command again to go on, or take fewer sites"
_PROCESS_BYTES = 400 * 1024**2
"""What torch takes, without its code, and training a small network."""


@dataclass(frozen=True)
class SiteRound:
    """One site's training in one round, and where its contribution goes."""

    site: str
    data: SiteData
    base: Path
    base_digest: str
    round_number: int
    training: LocalTraining
    target: Path


class SiteProcesses:
    """A process for each site, of which at most as many are at work as there are processors.

    Where memory is short, a process trains for several sites, one after the other.
    """

    def __init__(self, sites: Sequence[str]) -> None:
        count = workers_that_fit(len(sites), [_PROCESS_BYTES] * len(sites))
        self._place_of: Mapping[str, int] = {
            site: number % count for number, site in enumerate(sites)
        }
        self._processes: dict[int, WorkerProcess[SiteRound]] = {}

    def train(self, rounds: Sequence[SiteRound], on_done: Callable[[SiteRound], None]) -> None:
        """Have sites train; return when all contributions are written.

        Raises
        ------
        TrainingFailedError
            A site cannot train, or its process has ended.
        """
        waiting, at_work = deque(rounds), 0
        most = processor_count()
        with selectors.DefaultSelector() as selector:
            while waiting or at_work:
                for _ in range(len(waiting)):
                    if at_work == most:
                        break
                    job = waiting.popleft()
                    process = self._process_of(job.site)
                    if process.busy:
                        waiting.append(job)
                        continue
                    process.give(job)
                    selector.register(process.output, selectors.EVENT_READ, process)
                    at_work += 1
                for key, _ in selector.select():
                    for done, event in key.data.read():
                        if "failed" in event:
                            raise TrainingFailedError(f"site {done.site}: {event['failed']}")
                        selector.unregister(key.data.output)
                        at_work -= 1
                        on_done(done)

    def _process_of(self, site: str) -> WorkerProcess[SiteRound]:
        place = self._place_of[site]
        if place not in self._processes:
            # As many workers as processors: one thread each.
            self._processes[place] = WorkerProcess(_MODULE, processor_count(), _ADVICE)
        return self._processes[place]

    def __enter__(self) -> SiteProcesses:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        for process in self._processes.values():
            process.kill()
        for process in self._processes.values():
            process.stop()


def train_site(job: SiteRound, _progress: Progress) -> dict[str, Any]:
    """Write the contribution of one site to one round."""
    made = train_contribution(
        read_network(job.base),
        job.base_digest,
        read_once(job.data),
        job.training,
        site=job.site,
        round_number=job.round_number,
    )
    return {"digest": write_network_contribution(made, job.target)}


def main() -> None:
    """Train until standard input ends."""
    do_jobs(train_site, lambda job: job.target)


if __name__ == "__main__":
    main()
