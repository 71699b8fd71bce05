"""One run of a gaze study: train a network on the samples of the study, test it on every person."""

from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from numpy.typing import NDArray

from aggregators.methods.registry import find_method
from aggregators.methods.round_options import LocalTraining
from aggregators.models import NetworkContribution, StateDict
from site_agent.datasets.gaze.records import GazeSamples, angular_errors_deg, join_samples
from site_agent.errors import TrainingFailedError
from site_agent.federated.in_process import run_rounds
from site_agent.federated.plan import FederationPlan, make_plan
from site_agent.networks.modules import new_network, predict_gaze, to_module
from site_agent.studies.eyes import StudyJob, StudySamples
from site_agent.studies.gaze.protocol import Run, held_out_sessions
from site_agent.studies.gaze.settings import FEDERATED, GazeStudySettings
from site_agent.training.gaze.loop import repeatable, sgd, to_tensors, train_epoch
from site_agent.work import Progress

if TYPE_CHECKING:
    from torch import nn


_POINTS = 10
"""Of a learning curve."""
_CURVE_SAMPLES = 200
_ATTACK_STREAM = 0xA77
_NOISE_FACTOR = 10.0
_TRIM = 0.3


def do_run(job: StudyJob, progress: Progress) -> dict[str, Any]:
    """Train and test the network of a run.

    Returns ``errors`` (mean angle in degrees by person; None for a network that gives no finite
    angles), ``constant`` (the same of always predicting the mean gaze of the training samples),
    ``samples`` (numbers tested), ``curve`` (round, error on training and on test samples) and
    ``failed`` (why training ended early, else empty).
    """
    samples = job.read_samples()
    train = samples_to_train_on(samples, job.run, job.settings)
    test = samples_to_test(samples, job.run)
    everything = join_samples(list(train.values()))
    shown = (_some(everything), _some(join_samples(list(test.values()))))
    curve: list[list[float | None]] = []
    failed, module = "", None
    rounds = rounds_of(job.run, job.settings)
    try:
        for number, module in enumerate(_train(job, train, everything), 1):
            progress(number / (rounds + 1), f"round {number} of {rounds}")
            if number * _POINTS // rounds > (number - 1) * _POINTS // rounds:
                curve.append([number, *(_mean_error(module, part) for part in shown)])
    except TrainingFailedError as error:
        failed = str(error)
    mean = everything.gaze.mean(axis=0)
    return {
        "errors": {
            name: None if module is None else _mean_error(module, person_samples)
            for name, person_samples in test.items()
        },
        "constant": {
            name: float(
                angular_errors_deg(
                    np.broadcast_to(mean, person_samples.gaze.shape), person_samples.gaze
                ).mean()
            )
            for name, person_samples in test.items()
        },
        "samples": {name: len(person_samples) for name, person_samples in test.items()},
        "curve": curve,
        "failed": failed,
    }


def rounds_of(run: Run, settings: GazeStudySettings) -> int:
    """Return how many rounds a run takes; an epoch in one place counts as one."""
    passes = settings.individual_passes if run.protocol == "individual" else settings.passes
    return max(1, passes // run.training.epochs)


def is_secure(run: Run, settings: GazeStudySettings) -> bool:
    """Return whether the rounds of a run see only secure sums."""
    return settings.secure and run.method in FEDERATED


def _train(
    job: StudyJob, sites: Mapping[str, GazeSamples], everything: GazeSamples
) -> "Iterator[nn.Module]":
    """Yield the network after each round."""
    if job.run.method in ("individual", "data-centre"):
        return _train_in_one_place(job, everything)
    return _train_in_rounds(job, sites)


def _train_in_one_place(job: StudyJob, samples: GazeSamples) -> "Iterator[nn.Module]":
    run, local = job.run, _local_training(job)
    module = to_module(new_network(job.settings.architecture, run.seed))
    optimiser = sgd(module, local.learning_rate, local.momentum, local.weight_decay)
    generator = torch.Generator().manual_seed(run.seed)
    data = to_tensors(samples)
    with repeatable():
        for number in range(1, rounds_of(job.run, job.settings) + 1):
            for group in optimiser.param_groups:
                group["lr"] = local.learning_rate_in(number)
            for _ in range(local.epochs):
                loss = train_epoch(module, optimiser, data, local.batch_size, generator)
            if not np.isfinite(loss):
                raise TrainingFailedError(f"the loss is {loss} in epoch {number}")
            yield module


def _train_in_rounds(job: StudyJob, sites: Mapping[str, GazeSamples]) -> "Iterator[nn.Module]":
    run = job.run

    def corrupt(site: str, number: int, made: NetworkContribution) -> NetworkContribution:
        if site not in run.hostile:
            return made
        random = np.random.default_rng([_ATTACK_STREAM, run.seed, number, run.train.index(site)])
        return attack_contribution(made, run.attack, random)

    base = new_network(job.settings.architecture, run.seed)
    secure = is_secure(run, job.settings)
    for held in run_rounds(base, sites, federation_plan(job), corrupt=corrupt, secure=secure):
        yield to_module(held.model.network)


def federation_plan(job: StudyJob) -> FederationPlan:
    """Return the plan of a federated run."""
    run, training = job.run, job.run.training
    options: dict[str, Any] = _local_training(job).shared()
    method = run.method
    if method == "adaptive":
        method = "fedadam"
        options |= {
            "eta": training.eta, "tau": training.tau, "beta1": training.beta,
            "beta2": training.beta, "root": "sqrt(v+tau^2)", "mean": "sites",
        }  # fmt: skip
    else:
        fields = find_method(method).options_type.model_fields
        expected = {"trim": _TRIM, "hostile": job.settings.hostile_sites}
        options |= {name: value for name, value in expected.items() if name in fields}
    cohort = 1.0 if run.protocol in ("noise", "hostile") else job.settings.cohort
    return make_plan(method, options, rounds=rounds_of(job.run, job.settings), cohort=cohort)


def attack_contribution(
    contribution: NetworkContribution, attack: str, random: np.random.Generator
) -> NetworkContribution:
    """Return a hostile update in place of an honest one.

    ``noise`` is Gaussian, of ten times the standard deviation of each tensor of the honest
    update; ``sign-flip`` its negative; ``x50`` fifty times it.
    """
    tensors = {}
    for name, stored in contribution.network.tensors.items():
        value = stored.astype(np.float64)
        if attack == "noise":
            deviation = _NOISE_FACTOR * float(value.std())
            changed = random.normal(0, deviation, value.shape)
        else:
            changed = value * (-1.0 if attack == "sign-flip" else 50.0)
        tensors[name] = changed.astype(stored.dtype)
    return replace(contribution, network=StateDict(tensors, dict(contribution.network.infos)))


def _local_training(job: StudyJob) -> LocalTraining:
    training = job.run.training
    return LocalTraining(
        epochs=training.epochs,
        batch_size=training.batch_size,
        learning_rate=training.learning_rate,
        learning_rate_decay=job.settings.learning_rate_decay,
        seed=job.run.seed,
    )


def _mean_error(module: "nn.Module", samples: GazeSamples) -> float | None:
    predicted = predict_gaze(module, samples.patches, samples.head)
    if not np.isfinite(predicted).all():
        return None
    return round(float(angular_errors_deg(predicted, samples.gaze).mean()), 6)


def _some(samples: GazeSamples) -> GazeSamples:
    step = max(1, len(samples) // _CURVE_SAMPLES)
    return samples[::step]


_GREY_LEVELS = 255
_NOISE_STREAM = 0x2015E


def samples_to_train_on(
    samples: StudySamples, run: Run, settings: GazeStudySettings
) -> dict[str, GazeSamples]:
    """Return the training samples of each person: no held-out sessions, noisy if she is."""
    sites = {}
    for name in run.train:
        mine = samples[name]
        if name in run.test:
            mine = mine[~_held_out(name, mine, run.seed)]
        if name in run.noisy:
            mine = add_noise(mine, settings.noise_sd, settings.noise_unit, run.seed)
        sites[name] = mine
    return sites


def samples_to_test(samples: StudySamples, run: Run) -> dict[str, GazeSamples]:
    """Return each person's test samples: held-out sessions, or all if she did not train."""
    tested = {}
    for name in run.test:
        mine = samples[name]
        tested[name] = mine[_held_out(name, mine, run.seed)] if name in run.train else mine
    return tested


def add_noise(samples: GazeSamples, noise_sd: float, unit: str, seed: int) -> GazeSamples:
    """Return samples with Gaussian noise on their pictures, cut off at black and white.

    `noise_sd`: standard deviation, in `unit`. `unit`, {'image-sd', 'range'}: each picture's own
    standard deviation, or the range from black to white.
    """
    random = np.random.default_rng([_NOISE_STREAM, seed, len(samples)])
    noise = random.normal(0, noise_sd, samples.patches.shape)
    noise *= _GREY_LEVELS if unit == "range" else samples.patches.std(axis=(1, 2), keepdims=True)
    noisy = np.clip(np.round(samples.patches + noise), 0, _GREY_LEVELS).astype(np.uint8)
    return GazeSamples(**{**vars(samples), "patches": noisy})


def _held_out(person: str, samples: GazeSamples, seed: int) -> NDArray[np.bool_]:
    sessions = np.unique(samples.session).tolist()
    return np.isin(samples.session, held_out_sessions(person, sessions, seed))
