"""Rounds of a plan on one machine: the worker processes train one site after the other.

A round is a list of jobs, one a site. Each writes its contribution whole, so that those of an
interrupted run can be used. There is one worker for each processor; it imports torch once,
trains in one thread, and keeps the samples that it has read.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from pathlib import Path

import numpy as np

from aggregators import file_digest
from aggregators.methods.networks import write_network_contribution
from aggregators.methods.registry import find_method
from aggregators.models import StateDict
from site_agent.errors import TrainingFailedError
from site_agent.federated.engines import simulation_folder as run_folder
from site_agent.federated.personal import PersonalStore, assemble
from site_agent.federated.plan import CombinedFiles, FederationPlan, combine_files
from site_agent.federated.rounds import Courier, hold_rounds, train_in_round
from site_agent.networks.files import read_network
from site_agent.work import Progress, no_progress
from site_agent.work.jobs import Job, JobOutcome, Schedule, do_jobs
from site_agent.work.measurements import processor_count, workers_that_fit
from site_agent.work.workers import Task, Workers

_WORKER_BYTES = 400 * 1024**2
"""Memory of torch without its code, and of training a small network."""


def simulate(
    plan: FederationPlan,
    run: run_folder.RunFolder,
    data: run_folder.DividedData,
    workers: Workers,
    progress: Progress = no_progress,
) -> run_folder.History:
    """Hold those rounds of a plan that the folder does not have yet, and return all.

    It can be killed at any moment: called again, it goes on and gives the same networks.
    """
    folder = run.method(plan.method)
    history = run_folder.read_history(folder.history, plan)
    courier = _FolderCourier(plan, folder, data, workers, progress)
    folder.tidy(len(history.rounds))
    for held in hold_rounds(plan, courier, first=len(history.rounds) + 1):
        history = replace(history, rounds=(*history.rounds, held))
        history.write(folder.history)
        folder.tidy(held.number)
    return history


class _FolderCourier(Courier[Path, CombinedFiles, run_folder.Round]):
    """Has worker processes train the sites, which write their contributions to a folder."""

    def __init__(
        self,
        plan: FederationPlan,
        folder: run_folder.MethodFolder,
        data: run_folder.DividedData,
        workers: Workers,
        progress: Progress,
    ) -> None:
        self.sites, self._plan, self._folder, self._data = data.sites, plan, folder, data
        self._workers, self._progress = workers, progress
        self._is_personal = find_method(plan.method).personal

    def collect(self, number: int, sites: Sequence[str]) -> dict[str, Path]:
        folder, plan = self._folder, self._plan
        folder.contributions(number).mkdir(exist_ok=True)
        sent = {site: folder.contribution(number, site) for site in sites}
        there = frozenset(site for site, target in sent.items() if target.exists())
        base = folder.result(number - 1)
        digest = file_digest(base)

        def train(job: Job) -> Task:
            payload = SiteRound(
                job.key, self._data.sites[job.key], base, digest, number, plan, sent[job.key],
                folder.personal,
            )  # fmt: skip
            return Task(job.key, train_site, payload)

        def end(outcome: JobOutcome) -> None:
            if outcome.state == "failed":
                raise TrainingFailedError(f"site {outcome.key}: {outcome.reason}")

        def show(share: float | None, text: str) -> None:
            completed = number - 1 + (share or 0.0) * len(sites) / (len(sites) + 1)
            self._progress(completed / plan.rounds, f"{plan.method}, round {number}: {text}")

        # Sites with many samples first, so that no worker waits long for the last one.
        jobs = [Job(site, cost=float(self._data.sites[site].samples)) for site in sites]
        do_jobs(
            Schedule(jobs, there), self._workers, train, on_outcome=end, noun="sites", progress=show
        )
        return sent

    def combine(self, number: int, contributions: Mapping[str, Path]) -> CombinedFiles:
        folder = self._folder
        base, state = folder.result(number - 1), folder.state(number - 1)
        return combine_files(self._plan, base, state, contributions, folder.result(number))

    def deliver(self, site: str, number: int, reply: bytes) -> None:
        self._folder.personal.take_reply(site, number, reply)

    def end(self, number: int, combined: CombinedFiles) -> run_folder.Round:
        folder, shares = self._folder, {}
        store = folder.personal if self._is_personal else None
        if store is not None:
            parts = {site: store.newest(site) for site in combined.update_digests}
            shares = {site: part.share for site, part in parts.items() if part is not None}
        scores = {}
        if self._data.held_out is not None:
            scores = _score(read_network(folder.result(number)), self._data, store)
        return run_folder.Round(
            number=number,
            base=file_digest(folder.result(number - 1)),
            result=combined.digest,
            state=combined.state_digest,
            updates=combined.update_digests,
            warnings=combined.warnings,
            scores=scores,
            personal_share=shares,
        )


def _score(
    network: StateDict, data: run_folder.DividedData, store: PersonalStore | None
) -> dict[str, float]:
    """Return the score of each held-out person, with the personal parts of its site if any."""
    assert data.held_out is not None, "the caller has looked"
    if store is None:
        return run_folder.score_network(network, data.held_out, data.task)
    scores: dict[str, float] = {}
    left = np.ones(len(data.held_out), dtype=np.bool_)
    for site, site_data in data.sites.items():
        is_own = np.isin(data.held_out.person, site_data.persons)
        if is_own.any():
            assembled = assemble(network, store.newest(site))
            scores.update(run_folder.score_network(assembled, data.held_out[is_own], data.task))
            left &= ~is_own
    if left.any():
        scores.update(run_folder.score_network(network, data.held_out[left], data.task))
    return dict(sorted(scores.items()))


@dataclass(frozen=True)
class SiteRound:
    """One site's training in one round, and where its contribution goes."""

    site: str
    data: run_folder.SiteData
    base: Path
    base_digest: str
    round_number: int
    plan: FederationPlan
    target: Path
    store: PersonalStore


def train_site(job: SiteRound, _progress: Progress) -> str:
    """Write the contribution of one site to one round, and return its digest."""
    contribution = train_in_round(
        read_network_once(job.base, job.base_digest),
        job.base_digest,
        run_folder.read_once(job.data),
        job.plan.method,
        job.plan.split,
        parts=job.store,
        site=job.site,
        number=job.round_number,
    )
    return write_network_contribution(contribution, job.target)


@lru_cache(maxsize=1)
def read_network_once(path: Path, _digest: str) -> StateDict:
    """Return a round's base, which stays in the worker's memory until the next round."""
    return read_network(path)


def simulator_workers(sites: int) -> Workers:
    """Return workers for the rounds of a simulation: one a processor, if memory allows."""
    count = min(processor_count(), sites)
    return Workers(
        workers_that_fit(count, [_WORKER_BYTES] * count),
        advice="run the same command again to go on, or take fewer sites",
        tasks_each=None,
    )
