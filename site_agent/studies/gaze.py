"""The runs of the studies of gaze networks: training alone, in one place, federated, under attack.

``specific`` holds out whole sessions of each person, ``independent`` whole persons; the network of
one person alone (``individual``) gives both, by its own held-out sessions and by the other persons.
``noisy`` and ``attacked`` have a fixed number of persons as sites, all in every round, and test on
the others.

Source: Elfares et al. 2022, "Federated Learning for Appearance-based Gaze Estimation in the Wild".
"""

import hashlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import chain
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from numpy.typing import NDArray

from aggregators.methods.registry import METHODS, find_method
from aggregators.methods.round_options import LocalTraining
from aggregators.models import NetworkContribution, StateDict
from site_agent.datasets.gaze.records import GazeDataset, GazeSamples, angular_errors_deg
from site_agent.errors import InvalidInputError, TrainingFailedError
from site_agent.federated.in_process import run_rounds
from site_agent.federated.plan import FederationPlan, make_plan
from site_agent.networks.modules import new_network, predict_gaze, to_module
from site_agent.studies import eyes
from site_agent.studies.eyes import StudySamples, open_data, prepare
from site_agent.studies.protocol_file import StepJob
from site_agent.training.gaze.loop import repeatable, sgd, to_tensors, train_epoch
from site_agent.wording import count_words
from site_agent.work import Progress

if TYPE_CHECKING:
    from torch import nn

__all__ = ["check", "list_names", "open_data", "prepare", "score_run"]

_FEDERATED = ("fedavg", "adaptive")
_POINTS = 10
"""Of a learning curve."""
_CURVE_SAMPLES = 200
_ATTACK_STREAM = 0xA77
_NOISE_FACTOR = 10.0
_TRIM = 0.3
_HELD_OUT_SHARE = 0.2
"""Share of the sessions of a person that are held out."""
_TUNING_STEP = 3
_FOLD_STREAM, _SESSION_STREAM, _SITE_STREAM, _NOISY_STREAM = 0xF01D, 0x5E55, 0x517E, 0x0153


def list_names(dataset: GazeDataset | None, settings: Any) -> dict[str, Sequence[Any]]:
    """Return the persons, numbers for the folds, and the persons to tune with."""
    persons = eyes.list_names(dataset, settings)["persons"]
    folds = folds_of(persons, settings.folds, settings.first_seed)
    trained = [name for name in persons if name not in folds[0]]
    return {
        "persons": persons,
        "fold_numbers": range(1, len(folds) + 1),
        "tuned_persons": trained[::_TUNING_STEP],
    }


def check(settings: Any, names: Mapping[str, Sequence[Any]]) -> None:
    """Refuse unknown rules, too many hostile sites, and too few persons for robustness tests."""
    known = [name for name, method in METHODS.items() if method.kind == "network"]
    if unknown := [name for name in settings.rules if name not in known]:
        raise InvalidInputError(f"rules: {', '.join(unknown)}; expected some of {', '.join(known)}")
    count = settings.robust_sites
    if settings.hostile_sites > count:
        raise InvalidInputError(
            f"hostile_sites is {settings.hostile_sites}, expected at most robust_sites, {count}"
        )
    if {"noise", "hostile"} & set(settings.protocols) and len(names["persons"]) <= count:
        raise InvalidInputError(
            f"{len(names['persons'])} persons; expected more than {count} for noise and hostile "
            "(robust_sites), since the others are the test"
        )


@dataclass(frozen=True)
class _Run:
    """One network that is trained and tested."""

    step: str
    method: str
    seed: int
    train: tuple[str, ...]
    test: tuple[str, ...]
    """Persons. Where a person is in both, whole sessions of hers are held out."""
    training: SimpleNamespace
    rounds: int
    """An epoch in one place counts as one."""
    noisy: tuple[str, ...] = ()
    hostile: tuple[str, ...] = ()
    """Those of `train` with noisy training images, or with hostile updates."""
    attack: str = "none"


def plan_run(job: StepJob, persons: Sequence[str]) -> _Run:
    """Return the persons of a run, and how it trains."""
    settings, chosen = job.settings, job.step.factors
    is_tuned = job.step.name.startswith("tuned_")
    step, seed = job.step.name.removeprefix("tuned_"), chosen["seed"]
    method = chosen.get("method", "individual" if step == "individual" else "fedavg")
    training = SimpleNamespace(**vars(getattr(settings.training, method.replace("-", "_"))))
    # Of candidates for the settings of training.
    for name in set(chosen) & set(vars(training)):
        setattr(training, name, chosen[name])
    passes = settings.individual_passes if step == "individual" else settings.passes
    rounds = max(1, passes // training.epochs)
    names = tuple(persons)
    run = _Run(step, method, seed, names, names, training, rounds)
    if is_tuned or step == "independent":
        test = folds_of(persons, settings.folds, seed)[chosen.get("fold", 1) - 1]
        run = replace(run, test=test, train=tuple(name for name in persons if name not in test))
    if step == "individual":
        return replace(run, train=(chosen["alone"],))
    if step not in ("noisy", "attacked"):
        return run
    order = _shuffle(persons, _SITE_STREAM, seed)
    sites = tuple(sorted(order[: settings.robust_sites]))
    run = replace(run, train=sites, test=tuple(sorted(order[settings.robust_sites :])))
    order = _shuffle(sites, _NOISY_STREAM, seed)
    if step == "noisy":
        return replace(run, noisy=tuple(sorted(order[: round(chosen["share"] * len(sites))])))
    attack = chosen["attack"]
    hostile = () if attack == "none" else tuple(sorted(order[: settings.hostile_sites]))
    return replace(run, method=chosen["rule"], hostile=hostile, attack=attack)


def score_run(job: StepJob, progress: Progress) -> list[dict[str, Any]]:
    """Train and test the network of a run.

    Returns a row for each person tested: ``error_deg`` (mean angle; None for a network that gives
    no finite angles), ``constant_deg`` (the same of always predicting the mean gaze of the training
    samples), ``passes``, ``failed`` (why training ended early, else empty) and the settings of
    training; and a row for each point of the learning curve: ``pass`` and the errors and losses on
    training and on test samples.
    """
    samples = eyes.read_samples(job)
    run = plan_run(job, [*samples])
    train = samples_to_train_on(samples, run, job.settings)
    test = samples_to_test(samples, run)
    everything = GazeSamples.join(list(train.values()))
    shown = (_some(everything), _some(GazeSamples.join(list(test.values()))))
    curve = []
    failed, module = "", None
    try:
        for number, module in enumerate(_train(run, job.settings, train, everything), 1):
            progress(number / (run.rounds + 1), f"round {number} of {run.rounds}")
            if number * _POINTS // run.rounds > (number - 1) * _POINTS // run.rounds:
                errors = [_score(module, part) for part in shown]
                curve.append((run.training.epochs * number, *chain(*errors)))
    except TrainingFailedError as error:
        failed = str(error)
    mean = everything.gaze.mean(axis=0)
    facts = {"passes": curve[-1][0] if curve else 0, "failed": failed, **vars(run.training)}
    rows: list[dict[str, Any]] = [
        {
            "person": name,
            "error_deg": None if module is None else _score(module, mine)[0],
            "constant_deg": float(
                angular_errors_deg(np.broadcast_to(mean, mine.gaze.shape), mine.gaze).mean()
            ),
            **facts,
        }
        for name, mine in test.items()
    ]
    names = ("pass", "curve_train_deg", "curve_train_loss", "curve_test_deg", "curve_test_loss")
    return rows + [{**dict(zip(names, point, strict=True)), "failed": failed} for point in curve]


def _train(
    run: _Run, settings: Any, sites: StudySamples, everything: GazeSamples
) -> "Iterator[nn.Module]":
    """Yield the network after each round."""
    if run.method in ("individual", "data-centre"):
        return _train_in_one_place(run, settings, everything)
    return _train_in_rounds(run, settings, sites)


def _train_in_one_place(run: _Run, settings: Any, samples: GazeSamples) -> "Iterator[nn.Module]":
    local = _local_training(run, settings)
    module = to_module(new_network(settings.architecture, run.seed))
    optimiser = sgd(module, local.learning_rate, local.momentum, local.weight_decay)
    generator = torch.Generator().manual_seed(run.seed)
    data = to_tensors(samples)
    with repeatable():
        for number in range(1, run.rounds + 1):
            for group in optimiser.param_groups:
                group["lr"] = local.learning_rate_in(number)
            for _ in range(local.epochs):
                loss = train_epoch(module, optimiser, data, local.batch_size, generator)
            if not np.isfinite(loss):
                raise TrainingFailedError(f"the loss is {loss} in epoch {number}")
            yield module


def _train_in_rounds(run: _Run, settings: Any, sites: StudySamples) -> "Iterator[nn.Module]":
    def corrupt(site: str, number: int, made: NetworkContribution) -> NetworkContribution:
        if site not in run.hostile:
            return made
        random = np.random.default_rng([_ATTACK_STREAM, run.seed, number, run.train.index(site)])
        return attack_contribution(made, run.attack, random)

    base = new_network(settings.architecture, run.seed)
    secure, plan = settings.secure and run.method in _FEDERATED, federation_plan(run, settings)
    for held in run_rounds(base, sites, plan, corrupt=corrupt, secure=secure):
        yield to_module(held.model.network)


def federation_plan(run: _Run, settings: Any) -> FederationPlan:
    """Return the plan of a federated run."""
    training, method = run.training, run.method
    options: dict[str, Any] = _local_training(run, settings).shared()
    if method == "adaptive":
        method = "fedadam"
        options |= {
            "eta": training.eta, "tau": training.tau, "beta1": training.beta,
            "beta2": training.beta, "root": "sqrt(v+tau^2)", "mean": "sites",
        }  # fmt: skip
    else:
        fields = find_method(method).options_type.model_fields
        expected = {"trim": _TRIM, "hostile": settings.hostile_sites}
        options |= {name: value for name, value in expected.items() if name in fields}
    cohort = 1.0 if run.step in ("noisy", "attacked") else settings.cohort
    return make_plan(method, options, rounds=run.rounds, cohort=cohort)


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


def _local_training(run: _Run, settings: Any) -> LocalTraining:
    training = run.training
    return LocalTraining(
        epochs=training.epochs,
        batch_size=training.batch_size,
        learning_rate=training.learning_rate,
        learning_rate_decay=settings.learning_rate_decay,
        seed=run.seed,
    )


def _score(module: "nn.Module", samples: GazeSamples) -> tuple[float | None, float | None]:
    """Return the mean angle in degrees and the loss, if the network gives finite angles."""
    predicted = predict_gaze(module, samples.patches, samples.head)
    if not np.isfinite(predicted).all():
        return None, None
    error = angular_errors_deg(predicted, samples.gaze).mean()
    return round(float(error), 6), round(float(np.abs(predicted - samples.gaze).mean()), 6)


def _some(samples: GazeSamples) -> GazeSamples:
    step = max(1, len(samples) // _CURVE_SAMPLES)
    return samples[::step]


_GREY_LEVELS = 255
_NOISE_STREAM = 0x2015E


def samples_to_train_on(samples: StudySamples, run: _Run, settings: Any) -> dict[str, GazeSamples]:
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


def samples_to_test(samples: StudySamples, run: _Run) -> dict[str, GazeSamples]:
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


def folds_of(persons: Sequence[str], folds: int, seed: int) -> tuple[tuple[str, ...], ...]:
    """Cut persons into folds of about equal size, at random; 0: one fold for each person."""
    count = folds or len(persons)
    if len(persons) < 3 or not 2 <= count <= len(persons):
        raise InvalidInputError(
            f"folds is {folds} and the data have {count_words(len(persons), 'person')}; expected "
            "at least 3 persons, and 2 folds or more, at most one for each person (0: exactly that)"
        )
    order = _shuffle(persons, _FOLD_STREAM, seed)
    return tuple(tuple(sorted(order[number::count])) for number in range(count))


def held_out_sessions(person: str, sessions: Sequence[str], seed: int) -> tuple[str, ...]:
    """Draw the sessions of a person that are held out: a fifth of them, at least one."""
    if len(sessions) < 2:
        raise InvalidInputError(f"person {person} has one session; expected at least 2")
    count = max(1, round(_HELD_OUT_SHARE * len(sessions)))
    number = int.from_bytes(hashlib.sha256(person.encode()).digest()[:4], "big")
    random = np.random.default_rng([_SESSION_STREAM, seed, number])
    return tuple(sorted(str(name) for name in random.choice(sorted(sessions), count, False)))


def _shuffle(names: Sequence[str], stream: int, seed: int) -> list[str]:
    order = np.random.default_rng([stream, seed]).permutation(len(names))
    return [names[place] for place in order]
