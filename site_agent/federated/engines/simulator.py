"""Rounds of a plan on one machine: the worker processes train one site after the other.

A round is a list of jobs, one a site. Each writes its contribution whole, so that those of an
interrupted run can be used. There is one worker for each processor; it imports torch once,
trains in one thread, and keeps the samples that it has read.
"""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from functools import lru_cache
from pathlib import Path

import numpy as np

from aggregators import file_digest
from aggregators.methods.networks import write_network_contribution
from aggregators.methods.networks.replies import encode_reply
from aggregators.methods.registry import find_method
from aggregators.models import OptimiserState, StateDict
from site_agent.errors import TrainingFailedError
from site_agent.federated.engines import simulation_folder as run_folder
from site_agent.federated.local_training import train_at_site
from site_agent.federated.personal import PersonalStore, assemble
from site_agent.federated.plan import FederationPlan, combine_files
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
    for number in range(len(history.rounds) + 1, plan.rounds + 1):
        folder.tidy(number - 1)

        def report(share: float, text: str, finished: int = number - 1) -> None:
            progress(
                (finished + share) / plan.rounds, f"{plan.method}, round {finished + 1}: {text}"
            )

        held = _hold(plan, number, folder, data, workers, report=report)
        history = replace(history, rounds=(*history.rounds, held))
        history.write(folder.history)
    folder.tidy(len(history.rounds))
    return history


def _hold(
    plan: FederationPlan,
    number: int,
    folder: run_folder.MethodFolder,
    data: run_folder.DividedData,
    workers: Workers,
    *,
    report: Callable[[float, str], None],
) -> run_folder.Round:
    base, result = folder.result(number - 1), folder.result(number)
    base_digest = file_digest(base)
    folder.contributions(number).mkdir(exist_ok=True)
    sites = plan.sites_in(number, data.sites)
    sent = {site: folder.contribution(number, site) for site in sites}
    there = frozenset(site for site, target in sent.items() if target.exists())
    store = folder.personal if find_method(plan.method).personal else None

    def train(job: Job) -> Task:
        site_data = data.sites[job.key]
        payload = SiteRound(
            job.key, site_data, base, base_digest, number, plan, sent[job.key],
            store,
        )  # fmt: skip
        return Task(job.key, train_site, payload)

    def end(outcome: JobOutcome) -> None:
        if outcome.state == "failed":
            raise TrainingFailedError(f"site {outcome.key}: {outcome.reason}")

    def show(share: float | None, text: str) -> None:
        report((share or 0.0) * len(sites) / (len(sites) + 1), text)

    # Sites with many samples first, so that no worker waits long for the last one.
    jobs = [Job(site, cost=float(data.sites[site].samples)) for site in sites]
    do_jobs(Schedule(jobs, there), workers, train, on_outcome=end, noun="sites", progress=show)
    merged = combine_files(plan, base, folder.state(number - 1), sent, result)
    assert merged.digest is not None, "it was written"
    output = merged.recipe.output
    updates = {site: file_digest(path) for site, path in sent.items()}
    if store is not None and find_method(plan.method).replies:
        _deliver(merged.state, updates, store, number)
    scores = {}
    if data.held_out is not None:
        scores = _score(read_network(result), data, store)
    return run_folder.Round(
        number=number,
        base=base_digest,
        result=merged.digest,
        state=None if output is None else output.state,
        updates=updates,
        warnings=merged.warnings,
        scores=scores,
        personal_share=_shares(store, sites),
    )


def _deliver(
    state: OptimiserState | None, updates: Mapping[str, str], store: PersonalStore, number: int
) -> None:
    """Put the reply to each contribution in the part of its site."""
    assert state is not None, "a method with replies makes a state"
    for site, digest in updates.items():
        if (reply := encode_reply(state, digest)) is not None:
            store.take_reply(site, number, reply)


def _shares(store: PersonalStore | None, sites: Iterable[str]) -> dict[str, float]:
    """Return the share of the numbers that each of these sites keeps."""
    parts = {} if store is None else {site: store.newest(site) for site in sites}
    return {site: part.share for site, part in parts.items() if part is not None}


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
    """One site's training in one round, and where its contribution goes.

    `store` has the site's personal parts.
    """

    site: str
    data: run_folder.SiteData
    base: Path
    base_digest: str
    round_number: int
    plan: FederationPlan
    target: Path
    store: PersonalStore | None = None


def train_site(job: SiteRound, _progress: Progress) -> str:
    """Write the contribution of one site to one round, and return its digest."""
    update = train_at_site(
        read_network_once(job.base, job.base_digest),
        job.base_digest,
        run_folder.read_once(job.data),
        job.plan.training,
        site=job.site,
        round_number=job.round_number,
        method=job.plan.method,
        options=job.plan.own_options,
        before=None if job.store is None else job.store.before(job.site, job.round_number),
    )
    if job.store is not None and update.part is not None:
        # Before the contribution: where that is, nothing is computed again.
        job.store.keep(update.part)
    return write_network_contribution(update.contribution, job.target)


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
