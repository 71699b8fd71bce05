"""The runs of the study of cross-encoders: train an encoder, fit heads to shots, test them.

Each seed leaves other persons out. The rest are sites, one each, that train an encoder without
labels; a head is fitted to few labelled shots of a left-out person, and tested on other sessions
of hers. The baselines see the same shots.

The unit of the results is a left-out person: the mean over her draws of shots. Differences are
paired, person by person, as all methods have the same shots and the same test. Intervals are
Student's, as in studies of gaze networks: resampling six persons would give too narrow ones.
"""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
import torch

from site_agent.datasets.gaze import records as gaze
from site_agent.errors import InvalidInputError, TrainingFailedError
from site_agent.evaluation.gaze import draw_shots, few_shot_error
from site_agent.federated.in_process import run_rounds
from site_agent.federated.plan import make_plan
from site_agent.networks.architectures import require_kind
from site_agent.networks.gaze_modules import CrossEncoder
from site_agent.networks.modules import new_network, predict_gaze, to_module
from site_agent.studies import eyes
from site_agent.studies.eyes import StudySamples, list_names, open_data
from site_agent.studies.protocol_file import StepJob
from site_agent.training.cross_encoder import gaze_head, loop
from site_agent.training.cross_encoder.baselines import train_on_views, two_layer_error
from site_agent.training.gaze.loop import make_optimiser, repeatable, to_tensors, train_epoch
from site_agent.work import Progress

if TYPE_CHECKING:
    from torch import nn

__all__ = ["check", "list_names", "open_data", "prepare", "score_method"]

_FEDERATED = "cross-encoder"
_VIEWS: Mapping[str, Literal["simclr", "byol"]] = {"simclr": "simclr", "byol": "byol"}
_TRAINING_SHARE = 0.9
"""The share of a run's progress that training takes."""
_SUPERVISED_RATE, _SUPERVISED_BATCH = 0.001, 16
_SHIFT_PX, _LIGHT = 1, 0.4


def check(settings: Any, names: Mapping[str, Sequence[str]]) -> None:
    """Refuse settings with nothing to compare, and too few persons to train with."""
    require_kind(settings.architecture, "representation", "architecture")
    if _FEDERATED not in settings.methods:
        raise InvalidInputError(f"methods: expected {_FEDERATED} among them")
    if not settings.shots:
        raise InvalidInputError(f"shots: {settings.shots}; expected numbers from 1")
    least = settings.left_out + 2
    if len(names["persons"]) < least:
        raise InvalidInputError(
            f"{len(names['persons'])} persons; expected at least {least}: "
            f"{settings.left_out} are left out, and 2 or more are sites"
        )


def prepare(
    dataset: gaze.GazeDataset | None, settings: Any, folder: Path, progress: Progress
) -> dict[str, Any]:
    """Write the samples of both eyes of all persons for the workers; return the facts about them.

    Raises `InvalidInputError`: the sessions of a person left out cannot be divided.
    """
    persons = (dataset or eyes.drawn_eyes(settings, both_eyes=True)).read_each(progress)
    samples = {name: gaze.require_both_eyes(mine, "the data") for name, mine in persons}
    least = min(settings.shots)
    for place in range(settings.seeds):
        for name in _left_out(sorted(samples), settings, settings.first_seed + place):
            held = gaze.held_out_sessions(samples[name], settings.test_share)
            if not held.any() or (~held).sum() < least:
                raise InvalidInputError(
                    f"person {name} is left out, and has {np.unique(samples[name].session).size} "
                    f"sessions with {len(held)} samples; expected at least 2 sessions, and {least} "
                    "samples outside the sessions that are tested"
                )
    return eyes.keep_samples(samples, folder)


def _left_out(persons: Sequence[str], settings: Any, seed: int) -> list[str]:
    first = (seed - settings.first_seed) * settings.left_out
    places = {(first + offset) % len(persons) for offset in range(settings.left_out)}
    return [persons[place] for place in sorted(places)]


def score_method(job: StepJob, progress: Progress) -> list[dict[str, Any]]:
    """Return the mean angle of the heads of a method, by person, number of shots and draw.

    Without the numbers that a person has too few samples for.
    """
    samples = eyes.read_samples(job)
    test = _left_out([*samples], job.settings, job.factors.seed)
    sites = _sites(job, {name: samples[name] for name in samples if name not in test})
    describe = None
    if job.factors.method != "supervised":
        describe = _features(job, sites, progress)
    rows = []
    for number, name in enumerate(test):
        share = number / len(test)
        if describe is not None:
            share = _TRAINING_SHARE + share * (1 - _TRAINING_SHARE)
        progress(share, f"heads of {name}")
        rows += [{"person": name, **row} for row in _person_errors(job, samples[name], describe)]
        if describe is not None:
            rows += _errors_of_another(job, sites, name, samples[name], describe)
    return rows


def _errors_of_another(
    job: StepJob,
    sites: StudySamples,
    name: str,
    test: gaze.GazeSamples,
    describe: gaze_head.Features,
) -> list[dict[str, Any]]:
    """Test heads of two layers, from shots of the first site, on a person left out."""
    giver, settings = sites[min(sites)], job.settings
    features, tests = describe(giver), describe(test)
    rows = []
    for draw in range(settings.draws):
        shots = draw_shots(len(giver), settings.other_shots, draw)
        error = two_layer_error(
            features[shots], giver.gaze[shots], tests, test.gaze,
            steps=settings.other_steps, seed=draw,
        )  # fmt: skip
        row = {"shots": settings.other_shots, "draw": draw, "error_deg": round(error, 6)}
        rows.append({"head": "other", "person": name, **row})
    return rows


def _person_errors(
    job: StepJob, samples: gaze.GazeSamples, describe: gaze_head.Features | None
) -> list[dict[str, Any]]:
    settings = job.settings
    held = gaze.held_out_sessions(samples, settings.test_share)
    offered, test = np.flatnonzero(~held), np.flatnonzero(held)
    features = None if describe is None else describe(samples)
    rows = []
    for count in settings.shots:
        for draw in range(settings.draws) if count <= len(offered) else ():
            # The same shots for each method.
            shots = offered[draw_shots(len(offered), count, draw)]
            if features is None:
                error = _supervised_error(job, samples[shots], samples[test], draw)
            else:
                error = few_shot_error(
                    features[shots], samples.gaze[shots], features[test], samples.gaze[test],
                    samples.session[shots],
                )  # fmt: skip
            row = {"shots": count, "draw": draw, "error_deg": round(error, 6)}
            rows.append({"head": "own", **row})
    return rows


def _features(job: StepJob, sites: StudySamples, progress: Progress) -> gaze_head.Features:
    """Return how a method describes patches; all but the mean gaze know the head pose, too."""
    method, settings = job.factors.method, job.settings
    if method == "mean-gaze":
        return gaze_head.no_features
    if method == "head-pose":
        return gaze_head.head_features
    if method == "pca":
        return gaze_head.component_features(gaze.GazeSamples.join(list(sites.values())))
    if method == "random":
        module = to_module(new_network(settings.architecture, job.factors.seed))
    elif method in _VIEWS:
        network = to_module(new_network(settings.architecture, job.factors.seed))
        assert isinstance(network, CrossEncoder)
        module = train_on_views(
            network, _VIEWS[method], loop.to_tensors(gaze.GazeSamples.join(list(sites.values()))),
            epochs=settings.rounds * settings.epochs, batch_size=settings.view_batch_size,
            learning_rate=settings.central_learning_rate, seed=job.factors.seed,
        )  # fmt: skip
    elif method == "centralised":
        module = _train_in_one_place(job, sites, progress)
    else:
        module = _train_in_rounds(job, sites, progress)
    return gaze_head.encoder_features(module)


def _sites(job: StepJob, samples: StudySamples) -> StudySamples:
    """Return the samples of each site; the left and the right eye of a frame are neighbours."""
    sites = {}
    for name, mine in samples.items():
        parts = [
            eyes.spread_over_sessions(side, job.settings.site_frames)
            for side in (mine[0::2], mine[1::2])
        ]
        sites[name] = gaze.both_eyes(gaze.GazeSamples.join(parts))
    return sites


def _train_in_rounds(job: StepJob, sites: StudySamples, progress: Progress) -> "nn.Module":
    """Return the encoder of rounds in which each person is a site."""
    settings, factors = job.settings, job.factors
    name = settings.architecture
    if factors.method != _FEDERATED:
        name = name.replace(_FEDERATED, factors.method)
    options = {
        "learning_rate": settings.learning_rate, "seed": factors.seed,
        "batch_size": settings.batch_size, "epochs": settings.epochs,
    }  # fmt: skip
    plan = make_plan(settings.federation, options, rounds=settings.rounds)
    network = new_network(name, factors.seed)
    for held in run_rounds(network, sites, plan):
        progress(
            _TRAINING_SHARE * held.number / plan.rounds, f"round {held.number} of {plan.rounds}"
        )
        network = held.model.network
    return to_module(network)


def _train_in_one_place(job: StepJob, sites: StudySamples, progress: Progress) -> "nn.Module":
    settings, factors = job.settings, job.factors
    module = to_module(new_network(settings.architecture, factors.seed))
    optimiser = make_optimiser("adamw", module, settings.central_learning_rate, 0.0, 0.0)
    generator = torch.Generator().manual_seed(factors.seed)
    data = loop.to_tensors(gaze.GazeSamples.join(list(sites.values())))
    epochs = settings.rounds * settings.epochs
    with repeatable():
        for number in range(1, epochs + 1):
            progress(_TRAINING_SHARE * number / epochs, f"epoch {number} of {epochs}")
            loss = loop.train_epoch(module, optimiser, data, settings.central_batch_size, generator)
            if not np.isfinite(loss):
                raise TrainingFailedError(f"the loss is {loss} in epoch {number}")
    return module.eval()


def _supervised_error(
    job: StepJob, shots: gaze.GazeSamples, test: gaze.GazeSamples, draw: int
) -> float:
    """Return the error of a network of the same layers that learns from the shots alone."""
    module = to_module(new_network(f"{job.settings.architecture}-gaze", job.factors.seed))
    optimiser = make_optimiser("adamw", module, _SUPERVISED_RATE, 0.0, 0.0)
    generator = torch.Generator().manual_seed(draw)
    data = to_tensors(shots)
    with repeatable():
        for _ in range(-(-job.settings.supervised_steps // -(-len(data) // _SUPERVISED_BATCH))):
            train_epoch(
                module, optimiser, data, _SUPERVISED_BATCH, generator,
                shift_px=_SHIFT_PX, light=_LIGHT,
            )  # fmt: skip
    predicted = predict_gaze(module, test.patches, test.head)
    return float(gaze.angular_errors_deg(predicted, test.gaze).mean())
