"""Rounds of a plan simulated: the workers train one site after the other.

A round is a list of steps, one a site. Each writes its contribution whole, so that those of an
interrupted run can be used. A worker imports torch once, trains in one thread, and keeps the
samples that it has read. Several processes may hold one simulation, each as a share: they share out
the sites of a round, and one of them combines it.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache, partial
from pathlib import Path
from urllib.parse import quote

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
from site_agent.training_record import remember_learned
from site_agent.work import Progress, no_progress
from site_agent.work.claims import Claims
from site_agent.work.engines import open_workers
from site_agent.work.processes import processor_count, workers_that_fit
from site_agent.work.steps import Schedule, Step, StepOutcome, do_steps
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
    """Hold the rounds of a plan that the folder lacks, and return the whole history.

    It can be killed at any moment: called again, it goes on and gives the same networks.
    """
    folder = run.method(plan.method)
    history = run_folder.read_history(folder.history, plan)
    courier = _FolderCourier(plan, folder, data, workers, claims=run.claims, progress=progress)
    if not run.claims.others():
        folder.tidy(len(history.rounds))

    def is_over(number: int) -> bool:
        return len(run_folder.read_history(folder.history, plan).rounds) >= number

    while (number := len(history.rounds) + 1) <= plan.rounds:
        courier.collect(number, plan.sites_in(number, data.sites))
        key = f"{plan.method}-{number}"
        with run.claims.turn(key, partial(is_over, number)) as is_mine:
            if is_mine:
                held = next(hold_rounds(plan, courier, first=number))
                replace(history, rounds=(*history.rounds, held)).write(folder.history)
                folder.tidy(number)
        history = run_folder.read_history(folder.history, plan)
    return history


class _FolderCourier(Courier[Path, CombinedFiles, run_folder.Round]):
    """Has worker processes train the sites, which write their contributions to a folder."""

    def __init__(
        self,
        plan: FederationPlan,
        folder: run_folder.MethodFolder,
        data: run_folder.DividedData,
        workers: Workers,
        *,
        claims: Claims,
        progress: Progress,
    ) -> None:
        self.sites, self._plan, self._folder, self._data = data.sites, plan, folder, data
        self._workers, self._claims, self._progress = workers, claims, progress
        self._is_personal = find_method(plan.method).personal

    def collect(self, number: int, sites: Sequence[str]) -> dict[str, Path]:
        folder, plan = self._folder, self._plan
        folder.contributions(number).mkdir(exist_ok=True)
        sent = {site: folder.contribution(number, site) for site in sites}
        if all(target.exists() for target in sent.values()):
            return sent
        base = folder.result(number - 1)
        digest = file_digest(base)

        def train(step: Step) -> Task:
            site = step.title
            payload = SiteRound(
                site, self._data.sites[site], base, digest, number, plan, sent[site],
                folder.personal,
            )  # fmt: skip
            return Task(step.key, train_site, payload)

        def find(key: str) -> str:
            # Once a round has been combined, its contributions are removed.
            if not (sent[sites_by_key[key]].exists() or folder.result(number).exists()):
                raise LookupError(key)
            return key

        def end(outcome: StepOutcome) -> None:
            if outcome.state == "failed":
                raise TrainingFailedError(f"site {sites_by_key[outcome.key]}: {outcome.reason}")

        def show(share: float | None, text: str) -> None:
            completed = number - 1 + (share or 0.0) * len(sites) / (len(sites) + 1)
            self._progress(completed / plan.rounds, f"{plan.method}, round {number}: {text}")

        # Sites with many samples first, so that no worker waits long for the last one.
        sites_by_key = {f"{plan.method}-{number}-{quote(site, safe='')}": site for site in sites}
        steps = [
            Step(key, cost=float(self._data.sites[site].samples), title=site)
            for key, site in sites_by_key.items()
        ]
        kept = {key: key for key, site in sites_by_key.items() if sent[site].exists()}
        do_steps(
            Schedule(steps, frozenset(kept), self._claims.share), self._workers, train,
            folder=self._claims, find=find, kept=kept, on_outcome=end, wait=True, noun="sites",
            progress=show,
        )  # fmt: skip
        return sent

    def combine(self, number: int, contributions: Mapping[str, Path]) -> CombinedFiles:
        folder = self._folder
        base, state = folder.result(number - 1), folder.state(number - 1)
        return combine_files(self._plan, base, state, contributions, folder.result(number))

    def deliver(self, site: str, number: int, reply: bytes) -> None:
        self._folder.personal.take_reply(site, number, reply)

    def end(self, number: int, combined: CombinedFiles) -> run_folder.Round:
        folder, shares = self._folder, {}
        name = folder.result(number).name
        remember_learned(combined.digest, {"name": name, **self._data.learned})
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
    assert data.held_out is not None, "the caller checks this"
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
    """One site's training in one round, and the file of its contribution."""

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


def simulator_workers(sites: int, place: str = "", folder: Path = Path()) -> Workers:
    """Return workers for the rounds of a simulation; by default one a processor, if they fit.

    `place`, `folder`: As `open_workers` takes them.
    """
    count = min(processor_count(), sites)
    return open_workers(
        place,
        folder,
        advice="run the same command again to go on, or take fewer sites",
        fitting=workers_that_fit(count, [_WORKER_BYTES] * count),
        tasks_each=None,
    )
