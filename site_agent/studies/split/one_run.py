"""One run of a study of split training."""

import math
from collections.abc import Iterator
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from aggregators.models import StateDict
from aggregators.whole_file import write_whole
from site_agent.attacks.smashed import SmashedAttackSettings, attack_smashed_data, sheet_of
from site_agent.datasets.gaze.records import GazeSamples, angular_errors_deg, join_samples
from site_agent.errors import TrainingFailedError
from site_agent.federated.in_process import run_rounds
from site_agent.networks.gaze_modules import StagedNetwork
from site_agent.networks.modules import new_network, predict_gaze, to_module
from site_agent.split.in_process import run_split_rounds
from site_agent.split.noise import SmashedNoise, sensitivity_of
from site_agent.split.parts import split_network
from site_agent.split.plan import SplitPlan
from site_agent.studies.eyes import MethodRun, StudyJob, StudySamples
from site_agent.studies.split import INVERSION, SplitStudySettings
from site_agent.training.gaze.loop import repeatable, to_tensors
from site_agent.work import Progress

_MOST_VICTIM_EYES = 60


def do_run(job: StudyJob, progress: Progress) -> dict[str, Any]:
    """Do a run, and return its scores: plain data."""
    progress(0.0, job.run.method)
    people = job.read_samples()
    sites = {name: people[name] for name in job.run.train}
    test = join_samples([people[name] for name in job.run.test])
    if job.run.method == INVERSION:
        return {"levels": list(_attack(job, sites, test, progress))}
    errors = [
        _error(predicted, test) for predicted in _predictions(job.run, job.settings, sites, test)
    ]
    return {"error_deg": float(np.mean(errors))}


def _error(predicted: NDArray[np.float64], test: GazeSamples) -> float:
    return float(angular_errors_deg(predicted, test.gaze).mean())


def _predictions(
    run: MethodRun, settings: SplitStudySettings, sites: StudySamples, test: GazeSamples
) -> Iterator[NDArray[np.float64]]:
    """Yield the gaze that each network of a run finds in the patches of the person left out."""
    union = join_samples([*sites.values()])
    if run.method == "mean-gaze":
        yield np.tile(union.gaze.mean(axis=0), (len(test), 1))
        return
    if run.method == "head-pose":
        known = np.column_stack([union.head, np.ones(len(union))])
        weights, *_ = np.linalg.lstsq(known, union.gaze, rcond=None)
        yield np.column_stack([test.head, np.ones(len(test))]) @ weights
        return
    base = new_network(settings.architecture, run.seed)
    if run.method == "fedavg":
        averaging = settings.plan("v1", run.seed).averaging
        networks = [[*run_rounds(base, sites, averaging)][-1].model.network]
    elif run.method in ("data-centre", "individual"):
        # One site trains as the undivided network does.
        groups: list[StudySamples] = [{"all": union}]
        if run.method == "individual":
            groups = [{name: sites[name]} for name in sorted(sites)[: settings.alone]]
        networks = [_trained(base, group, settings.plan("v1", run.seed)) for group in groups]
    else:
        networks = [_trained(base, sites, settings.plan(run.method, run.seed))]
    for network in networks:
        yield predict_gaze(to_module(network), test.patches, test.head)


def _trained(base: StateDict, sites: StudySamples, plan: SplitPlan) -> StateDict:
    *_, held = run_split_rounds(base, sites, plan)
    return held.network


def _trained_or_none(base: StateDict, sites: StudySamples, plan: SplitPlan) -> StateDict | None:
    try:
        return _trained(base, sites, plan)
    except TrainingFailedError:
        return None


def _attack(
    job: StudyJob, shadows: StudySamples, test: GazeSamples, progress: Progress
) -> Iterator[dict[str, Any]]:
    """Train with each noise, and attack the smashed data of persons outside the training."""
    run, settings = job.run, job.settings
    sheets = job.folder / "sheets"
    sheets.mkdir(exist_ok=True)
    base = new_network(settings.architecture, run.seed)
    tries = SmashedAttackSettings(
        passes=settings.passes, releases=settings.rounds * settings.epochs, seed=run.seed
    )
    quiet = _trained(base, shadows, settings.plan("v1", run.seed))
    fixed = to_module(quiet)
    for number, level in enumerate(settings.levels):
        progress(number / len(settings.levels), f"noise {level:g}")
        plan = settings.plan("v1", run.seed, level)
        network: StateDict | None = quiet
        if level:
            # Under strong noise SGD diverges; Adam's steps do not grow with the noise.
            plans = [
                settings.plan("v1", run.seed, level, by_adam=by_adam) for by_adam in (False, True)
            ]
            network = next(
                filter(None, (_trained_or_none(base, shadows, plan) for plan in plans)), None
            )
        noise, cut = SmashedNoise(plan.noise, level), plan.found_cut
        attacked = attack_smashed_data(
            split_network(network or base, cut).client, cut, join_samples([*shadows.values()]),
            test[:: max(1, len(test) // _MOST_VICTIM_EYES)], noise, settings=tries,
            estimate=lambda pictures, head: predict_gaze(fixed, pictures, head),
        )  # fmt: skip
        write_whole(sheets / f"noise-{level:g}_seed{run.seed}.png", sheet_of(attacked))
        ratio = attacked.signal_to_noise_db
        yield {
            "level": level,
            "error_deg": _error(_noisy_predictions(network, plan, test, run.seed), test)
            if network
            else None,
            "signal_to_noise_db": None if math.isinf(ratio) else ratio,
            "attackers": {name: inversion.facts() for name, inversion in attacked.results.items()},
        }


def _noisy_predictions(
    network: StateDict, plan: SplitPlan, test: GazeSamples, seed: int
) -> NDArray[np.float64]:
    """Return the main server's predictions from noisy smashed data."""
    module, cut, data = to_module(network), plan.found_cut, to_tensors(test)
    assert isinstance(module, StagedNetwork)
    part = split_network(network, cut).client
    alter = SmashedNoise(plan.noise, plan.noise_level).alter(
        sensitivity_of(part, cut), torch.Generator().manual_seed(seed)
    )
    with repeatable(), torch.inference_mode():
        smashed = module.run_stages(cut.front_stages(module.stages), data.patches, data.head)
        predicted = module.run_stages(module.stages[cut.front :], alter(smashed), data.head)
    return predicted.numpy().astype(np.float64)
