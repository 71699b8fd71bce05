"""Holding the rounds of a plan on one machine."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from aggregators import file_digest
from site_agent.federated.combining import combine_files
from site_agent.federated.engines.simulator.data import DividedData
from site_agent.federated.engines.simulator.folder import MethodFolder, RunFolder
from site_agent.federated.engines.simulator.history import History, Round, read_history
from site_agent.federated.engines.simulator.scoring import score_network
from site_agent.federated.engines.simulator.site_process import SiteProcesses, SiteRound
from site_agent.federated.plan import FederationPlan
from site_agent.networks import read_network
from site_agent.runs.progress import Progress, no_progress


def simulate(
    plan: FederationPlan,
    run: RunFolder,
    data: DividedData,
    processes: SiteProcesses,
    progress: Progress = no_progress,
) -> History:
    """Hold those rounds of a plan that the folder does not have yet, and return all.

    It can be killed at any moment: called again, it goes on and gives the same networks.

    Raises
    ------
    InvalidInputError
        The folder has rounds of the method with other options.
    TrainingFailedError
        A site cannot train.
    AggregatorError
        The method refuses the contributions.
    """
    folder = run.method(plan.method)
    history = read_history(folder.history, plan)
    for number in range(len(history.rounds) + 1, plan.rounds + 1):
        folder.tidy(number - 1)

        def report(share: float, text: str, done: int = number - 1) -> None:
            progress((done + share) / plan.rounds, f"{plan.method}, round {done + 1}: {text}")

        held = _hold(plan, number, folder, data, processes, report=report)
        history = replace(history, rounds=(*history.rounds, held))
        history.write(folder.history)
    folder.tidy(len(history.rounds))
    return history


def _hold(
    plan: FederationPlan,
    number: int,
    folder: MethodFolder,
    data: DividedData,
    processes: SiteProcesses,
    *,
    report: Callable[[float, str], None],
) -> Round:
    base, result = folder.result(number - 1), folder.result(number)
    base_digest = file_digest(base)
    folder.contributions(number).mkdir(exist_ok=True)
    sites = plan.sites_in(number, data.sites)
    sent = {site: folder.contribution(number, site) for site in sites}
    # Contributions are written whole, so that those of an interrupted run can be used.
    missing = [
        SiteRound(site, data.sites[site], base, base_digest, number, plan.training, target)
        for site, target in sent.items()
        if not target.exists()
    ]
    there = len(sites) - len(missing)

    def count(done: SiteRound) -> None:
        nonlocal there
        there += 1
        report(there / (len(sites) + 1), f"{done.site} has trained ({there} of {len(sites)})")

    processes.train(missing, count)
    merged = combine_files(plan, base, folder.state(number - 1), sent, result)
    assert merged.digest is not None, "it was written"
    output = merged.recipe.output
    errors = {}
    if data.held_out is not None:
        errors = dict(score_network(read_network(result), data.held_out).by_person)
    return Round(
        number=number,
        base=base_digest,
        result=merged.digest,
        state=None if output is None else output.state,
        updates={site: file_digest(path) for site, path in sent.items()},
        warnings=merged.warnings,
        errors_deg=errors,
    )
