"""One run of a study of cross-encoders: train an encoder, fit heads to shots, test them."""

from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from site_agent.datasets.gaze import records as gaze
from site_agent.errors import TrainingFailedError
from site_agent.evaluation.gaze import draw_shots, few_shot_error
from site_agent.federated.in_process import run_rounds
from site_agent.federated.plan import make_plan
from site_agent.networks.modules import new_network, predict_gaze, to_module
from site_agent.studies.cross_encoder import FEDERATED
from site_agent.studies.eyes import StudyJob, StudySamples, spread_over_sessions
from site_agent.training.cross_encoder import gaze_head, loop
from site_agent.training.gaze.loop import make_optimiser, repeatable, to_tensors, train_epoch
from site_agent.work import Progress

if TYPE_CHECKING:
    from torch import nn

_TRAINING_SHARE = 0.9
"""Of a run, for the progress."""
_SUPERVISED_RATE, _SUPERVISED_BATCH = 0.001, 16
_SHIFT_PX, _LIGHT = 1, 0.4


def do_run(job: StudyJob, progress: Progress) -> dict[str, Any]:
    """Return the errors of the heads of a run.

    ``errors`` has the mean angle in degrees by person, number of shots and draw; without the
    numbers that a person has too few samples for.
    """
    samples = job.read_samples()
    describe = None if job.run.method == "supervised" else _features(job, samples, progress)
    errors: dict[str, dict[str, list[float]]] = {}
    for number, name in enumerate(job.run.test):
        share = number / len(job.run.test)
        if describe is not None:
            share = _TRAINING_SHARE + share * (1 - _TRAINING_SHARE)
        progress(share, f"heads of {name}")
        errors[name] = _person_errors(job, samples[name], describe)
    return {"errors": errors}


def _person_errors(
    job: StudyJob, samples: gaze.GazeSamples, describe: gaze_head.Features | None
) -> dict[str, list[float]]:
    settings = job.settings
    held = gaze.held_out_sessions(samples, settings.test_share)
    offered, test = np.flatnonzero(~held), np.flatnonzero(held)
    features = None if describe is None else describe(samples)
    errors: dict[str, list[float]] = {}
    for count in settings.shots:
        for draw in range(settings.draws) if count <= len(offered) else ():
            # The same shots for each method.
            shots = offered[draw_shots(len(offered), count, draw)]
            if features is None:
                error = _supervised_error(job, samples[shots], samples[test], draw)
            else:
                error = few_shot_error(
                    features[shots], samples.gaze[shots], features[test], samples.gaze[test]
                )
            errors.setdefault(str(count), []).append(round(error, 6))
    return errors


def _features(job: StudyJob, samples: StudySamples, progress: Progress) -> gaze_head.Features:
    """Return how a method describes patches; all but the mean gaze know the head pose, too."""
    method, settings = job.run.method, job.settings
    if method == "mean-gaze":
        return gaze_head.no_features
    if method == "head-pose":
        return gaze_head.head_features
    if method == "pca":
        return gaze_head.component_features(gaze.join_samples(list(_sites(job, samples).values())))
    if method == "random":
        module = to_module(new_network(settings.architecture, job.run.seed))
    elif method == "centralised":
        module = _train_in_one_place(job, samples, progress)
    else:
        module = _train_in_rounds(job, samples, progress)
    return gaze_head.encoder_features(module)


def _sites(job: StudyJob, samples: StudySamples) -> StudySamples:
    """Return the samples of each site; the left and the right eye of a frame are neighbours."""
    sites = {}
    for name in job.run.train:
        left, right = samples[name][0::2], samples[name][1::2]
        parts = [spread_over_sessions(eyes, job.settings.site_frames) for eyes in (left, right)]
        sites[name] = gaze.both_eyes(gaze.join_samples(parts))
    return sites


def _train_in_rounds(job: StudyJob, samples: StudySamples, progress: Progress) -> "nn.Module":
    """Return the encoder of rounds in which each person is a site."""
    settings, run = job.settings, job.run
    name = settings.architecture
    if run.method != FEDERATED:
        name = name.replace(FEDERATED, run.method)
    options = {
        "learning_rate": settings.learning_rate, "seed": run.seed,
        "batch_size": settings.batch_size, "epochs": settings.epochs,
    }  # fmt: skip
    plan = make_plan(settings.federation, options, rounds=settings.rounds)
    network = new_network(name, run.seed)
    for held in run_rounds(network, _sites(job, samples), plan):
        progress(
            _TRAINING_SHARE * held.number / plan.rounds, f"round {held.number} of {plan.rounds}"
        )
        network = held.model.network
    return to_module(network)


def _train_in_one_place(job: StudyJob, samples: StudySamples, progress: Progress) -> "nn.Module":
    settings, run = job.settings, job.run
    module = to_module(new_network(settings.architecture, run.seed))
    optimiser = make_optimiser("adamw", module, settings.central_learning_rate, 0.0, 0.0)
    generator = torch.Generator().manual_seed(run.seed)
    data = loop.to_tensors(gaze.join_samples(list(_sites(job, samples).values())))
    epochs = settings.rounds * settings.epochs
    with repeatable():
        for number in range(1, epochs + 1):
            progress(_TRAINING_SHARE * number / epochs, f"epoch {number} of {epochs}")
            loss = loop.train_epoch(module, optimiser, data, settings.central_batch_size, generator)
            if not np.isfinite(loss):
                raise TrainingFailedError(f"the loss is {loss} in epoch {number}")
    return module.eval()


def _supervised_error(
    job: StudyJob, shots: gaze.GazeSamples, test: gaze.GazeSamples, draw: int
) -> float:
    """Return the error of a network of the same layers that learns from the shots alone."""
    module = to_module(new_network(f"{job.settings.architecture}-gaze", job.run.seed))
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
