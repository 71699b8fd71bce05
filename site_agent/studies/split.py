"""The runs of the study of split training: methods on persons left out, attacks on smashed data."""

import math
import time
from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from aggregators.models import StateDict
from aggregators.pruning import entry_sizes, prune, weights_of_layers
from site_agent.attacks.smashed import SmashedAttackSettings, attack_smashed_data, sheet_of
from site_agent.datasets.gaze.records import GazeSamples, angular_errors_deg
from site_agent.errors import InvalidInputError, TrainingFailedError
from site_agent.federated.in_process import run_rounds
from site_agent.networks.gaze_modules import StagedNetwork
from site_agent.networks.modules import new_network, predict_gaze, to_module
from site_agent.split.in_process import run_split_rounds
from site_agent.split.noise import SmashedNoise, sensitivity_of
from site_agent.split.parts import frozen_traffic, join_parts, size_of, split_network, traffic_of
from site_agent.split.plan import SplitPlan, read_split_plan
from site_agent.studies.eyes import StudySamples, read_samples
from site_agent.studies.protocol_file import StepJob
from site_agent.training.gaze.loop import repeatable, to_tensors
from site_agent.work import Progress

_MOST_VICTIM_EYES = 60
_FEWEST_VICTIMS = 2
_WHOLE = ("fedavg", "secure", "data-centre", "individual")
"""Methods that cut no network, though of equal plans."""
_AMOUNTS = (0.0, 0.9, 0.95, 0.99, 0.999)
"""Shares of the weights that are pruned."""
_SERVERS = 3
"""Of the secure sum and of generic MPC."""
_ADAM_RATE = 0.001


def check(settings: Any, names: Mapping[str, Any]) -> None:
    """Refuse a cut that cannot be, and too few persons for averages over 3 sites."""
    split_plan(settings, "v1", 0)
    persons = len(names["persons"])
    if persons - _count_victims(persons) < 3:
        raise InvalidInputError(f"{persons} persons; expected at least 5")


def split_plan(
    settings: Any, method: str, seed: int, level: float = 0.0, *, by_adam: bool = False,
    cut: str = "", epochs: int = 0,
) -> SplitPlan:  # fmt: skip
    """Return the plan of a method of split training.

    `cut`, `epochs`: In place of the settings'.
    """
    covers = method.removeprefix("dp-")
    variant = method.removesuffix("-by-gaze")
    private = {"dp_epsilon": settings.dp_epsilon} if method != covers else {}
    return read_split_plan(
        {
            "architecture": settings.architecture, "cut": cut or settings.cut,
            "variant": "v1" if private else variant,
            "pairs": "shuffled" if variant == method else "by-gaze",
            "optimiser": "adam" if by_adam else "sgd",
            "rounds": settings.rounds, "noise_level": level,
            "noise_scale": settings.noise_scale,
            "dp_covers": covers if private else "client",
            "training": {
                "epochs": epochs or settings.epochs, "batch_size": settings.batch_size,
                "learning_rate": _ADAM_RATE if by_adam else settings.learning_rate,
                "seed": seed, **private,
            },
        }
    )  # fmt: skip


def score_method(job: StepJob, _progress: Progress) -> dict[str, float]:
    """Train by a method on all persons but one, and test on that one."""
    people = dict(read_samples(job))
    test = people.pop(job.factors.left_out)
    errors = [_error(predicted, test) for predicted in _predictions(job, people, test)]
    return {"error_deg": float(np.mean(errors))}


def score_rounds(job: StepJob, progress: Progress) -> list[dict[str, Any]]:
    """Train by a method, and test on the person left out after each round.

    Factors may be ``level``, the noise on smashed data; ``cut``; ``epochs``; ``pose``: ``hidden``
    sets all head angles to 0. Returns rows of ``round``, ``seconds`` of training, and
    the mean errors of predictions from smashed data with the noise of the training:
    ``error_deg``, and ``train_error_deg`` of the persons in the training; None once it diverges.
    """
    people, factors, settings = dict(read_samples(job)), job.factors, job.settings
    if getattr(factors, "pose", "") == "hidden":
        people = {name: replace(x, head=np.zeros_like(x.head)) for name, x in people.items()}
    test = people.pop(factors.left_out)
    union = GazeSamples.join([*people.values()])
    known = union[:: max(1, len(union) // len(test))]
    method, level = factors.method, getattr(factors, "level", 0.0)
    cut, epochs = getattr(factors, "cut", ""), getattr(factors, "epochs", 0)
    split_method = "v1" if method in _WHOLE else method
    plan = split_plan(settings, split_method, factors.seed, level, cut=cut, epochs=epochs)
    rows: list[dict[str, Any]] = []
    began_s, seconds = time.perf_counter(), 0.0
    try:
        for number, network in _held_rounds(method, people, union, plan, factors.seed):
            seconds += time.perf_counter() - began_s
            errors = [
                _error(_noisy_predictions(network, plan, data, factors.seed), data)
                for data in (test, known)
            ]
            row = {"error_deg": errors[0], "train_error_deg": errors[1], "seconds": seconds}
            rows.append({"round": number, **row})
            progress(number / plan.rounds, f"round {number} of {plan.rounds}")
            began_s = time.perf_counter()
    except TrainingFailedError:
        missing = range(len(rows) + 1, plan.rounds + 1)
        nothing = {"error_deg": None, "train_error_deg": None, "seconds": None}
        rows += [{"round": number, **nothing} for number in missing]
    return rows


def _held_rounds(
    method: str, people: StudySamples, union: GazeSamples, plan: SplitPlan, seed: int
) -> Iterator[tuple[int, StateDict]]:
    """Yield the number and the network of each round."""
    base = new_network(plan.architecture, seed)
    if method in ("fedavg", "secure"):
        for round_ in run_rounds(base, people, plan.averaging, secure=method == "secure"):
            yield round_.number, round_.model.network
        return
    alone = {"data-centre": {"all": union}, "individual": dict([min(people.items())])}
    for held in run_split_rounds(base, alone.get(method, people), plan):
        yield held.number, held.network


def score_pruned(job: StepJob, _progress: Progress) -> list[dict[str, Any]]:
    """Train by V1, prune the layers of a kind in both parts, and test on the person left out."""
    people, factors, settings = dict(read_samples(job)), job.factors, job.settings
    test = people.pop(factors.left_out)
    plan = split_plan(settings, "v1", factors.seed)
    parts = split_network(
        _trained(new_network(settings.architecture, factors.seed), people, plan), plan.found_cut
    )
    rows = []
    for layers in ("convolution", "linear"):
        for amount in _AMOUNTS:
            row: dict[str, Any] = {"layers": layers, "amount": amount}
            pruned = []
            for name, part in (("server", parts.server), ("client", parts.client)):
                pruned.append(prune(part, weights_of_layers(part, layers), amount))
                sizes = entry_sizes(pruned[-1])
                numbers, kept = sum(x.numbers for x in sizes), sum(x.kept for x in sizes)
                row[f"{name}_zeros"] = 1 - kept / numbers
                row[f"{name}_sparse_bytes"] = sum(x.coordinate_bytes for x in sizes)
                row[f"{name}_stored_bytes"] = sum(x.stored_bytes for x in sizes)
            module = to_module(join_parts(pruned[1], pruned[0]))
            error = _error(predict_gaze(module, test.patches, test.head), test)
            rows.append({**row, "error_deg": error})
    return rows


def count_traffic(job: StepJob, _progress: Progress) -> list[dict[str, Any]]:
    """Return the bytes of a round of each method, without headers, and of generic MPC."""
    people, settings = dict(read_samples(job)), job.settings
    people.pop(job.factors.left_out)
    plan = split_plan(settings, "v1", 0)
    counts = {name: len(samples) for name, samples in people.items()}
    epochs = dict.fromkeys(counts, settings.epochs)
    size = size_of(plan.found_cut)
    moved = traffic_of(plan.found_cut, counts, rounds=1, epochs=epochs)
    numbers = size.client_entries + size.server_entries
    # Each site sends one share of all numbers, and seeds for the others; each server sends its sum
    # to the others and the result to all sites.
    shares = len(counts) * 8 * numbers + moved.fedavg // 2
    # A multiplication opens two numbers of 8 bytes to both other servers; training multiplies three
    # times what a forward pass does.
    passes = 3 * settings.epochs * sum(counts.values())
    rows = {
        "data-centre": moved.raw / settings.rounds, "fedavg": moved.fedavg, "v1": moved.split,
        "secure": shares + _SERVERS * (_SERVERS - 1) * 8 * numbers,
        "mpc": passes * size.multiplications * _SERVERS * (_SERVERS - 1) * 2 * 8,
        "mean-smashed": 2 * frozen_traffic(plan.found_cut, counts) * settings.epochs,
    }  # fmt: skip
    return [{"way": way, "bytes": float(count)} for way, count in rows.items()]


def _error(predicted: NDArray[np.float64], test: GazeSamples) -> float:
    return float(angular_errors_deg(predicted, test.gaze).mean())


def _predictions(
    job: StepJob, sites: StudySamples, test: GazeSamples
) -> Iterator[NDArray[np.float64]]:
    """Yield the gaze that each network of a run finds in the patches of the person left out."""
    settings, method, seed = job.settings, job.factors.method, job.factors.seed
    union = GazeSamples.join([*sites.values()])
    if method == "mean-gaze":
        yield np.tile(union.gaze.mean(axis=0), (len(test), 1))
        return
    if method == "head-pose":
        known = np.column_stack([union.head, np.ones(len(union))])
        weights, *_ = np.linalg.lstsq(known, union.gaze, rcond=None)
        yield np.column_stack([test.head, np.ones(len(test))]) @ weights
        return
    base = new_network(settings.architecture, seed)
    if method == "fedavg":
        averaging = split_plan(settings, "v1", seed).averaging
        networks = [[*run_rounds(base, sites, averaging)][-1].model.network]
    elif method in ("data-centre", "individual"):
        # One site trains as the undivided network does.
        groups: list[StudySamples] = [{"all": union}]
        if method == "individual":
            groups = [{name: sites[name]} for name in sorted(sites)[: settings.alone]]
        networks = [_trained(base, group, split_plan(settings, "v1", seed)) for group in groups]
    else:
        networks = [_trained(base, sites, split_plan(settings, method, seed))]
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


def attack_smashed(job: StepJob, progress: Progress) -> list[dict[str, Any]]:
    """Train with each noise, and attack the smashed data of persons outside the training.

    Returns a row for each noise and attacker; without scores of V1 where it cannot be trained.
    """
    settings, seed = job.settings, job.factors.seed
    people = read_samples(job)
    victims = _count_victims(len(people))
    shadows = {name: people[name] for name in [*people][:-victims]}
    test = GazeSamples.join([people[name] for name in [*people][-victims:]])
    base = new_network(settings.architecture, seed)
    tries = SmashedAttackSettings(
        passes=settings.passes, releases=settings.rounds * settings.epochs, seed=seed
    )
    quiet = _trained(base, shadows, split_plan(settings, "v1", seed))
    fixed = to_module(quiet)
    rows = []
    for number, level in enumerate(settings.levels):
        progress(number / len(settings.levels), f"noise {level:g}")
        plan = split_plan(settings, "v1", seed, level)
        network: StateDict | None = quiet
        if level:
            # Under strong noise SGD diverges; Adam's steps do not grow with the noise.
            plans = [
                split_plan(settings, "v1", seed, level, by_adam=by_adam)
                for by_adam in (False, True)
            ]
            network = next(
                filter(None, (_trained_or_none(base, shadows, plan) for plan in plans)), None
            )
        noise, cut = SmashedNoise.of(plan), plan.found_cut
        attacked = attack_smashed_data(
            split_network(network or base, cut).client, cut, GazeSamples.join([*shadows.values()]),
            test[:: max(1, len(test) // _MOST_VICTIM_EYES)], noise, settings=tries,
            estimate=lambda pictures, head: predict_gaze(fixed, pictures, head),
        )  # fmt: skip
        (job.folder / f"noise-{level:g}_seed{seed}.png").write_bytes(sheet_of(attacked))
        ratio, error = attacked.signal_to_noise_db, None
        if network:
            error = _error(_noisy_predictions(network, plan, test, seed), test)
        scores = {
            "level": level, "error_deg": error,
            "signal_to_noise_db": None if math.isinf(ratio) else ratio,
        }  # fmt: skip
        rows += [
            {**scores, "attacker": name, **inversion.facts()}
            for name, inversion in attacked.results.items()
        ]
    return rows


def _count_victims(persons: int) -> int:
    return max(_FEWEST_VICTIMS, persons // 3)


def _noisy_predictions(
    network: StateDict, plan: SplitPlan, test: GazeSamples, seed: int
) -> NDArray[np.float64]:
    """Return the main server's predictions from noisy smashed data."""
    module, cut, data = to_module(network), plan.found_cut, to_tensors(test)
    assert isinstance(module, StagedNetwork)
    part = split_network(network, cut).client
    alter = SmashedNoise.of(plan).alter(
        sensitivity_of(part, cut), torch.Generator().manual_seed(seed)
    )
    with repeatable(), torch.inference_mode():
        smashed = module.run_stages(cut.front_stages(module.stages), data.patches, data.head)
        predicted = module.run_stages(module.stages[cut.front :], alter(smashed), data.head)
    return predicted.numpy().astype(np.float64)
