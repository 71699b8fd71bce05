"""One run of a study: the rounds of a method in a world, and the samples of worlds."""

import math
from collections.abc import Mapping
from copy import deepcopy
from dataclasses import dataclass, replace
from functools import lru_cache
from pathlib import Path
from typing import Any, cast

import numpy as np
import torch

from aggregators.formats import read_model, write_model
from aggregators.models import StateDict
from site_agent.datasets.egocentric import ClipSamples
from site_agent.datasets.gaze.records import GazeSamples, held_out_sessions, join_samples
from site_agent.datasets.synthetic.egocentric_clips import draw_samples
from site_agent.datasets.synthetic.eye_patches.dataset import RenderSettings, render_person
from site_agent.datasets.synthetic.settings import ClipSettings
from site_agent.federated.personal import assemble, overlap_of
from site_agent.federated.plan import make_plan
from site_agent.federated.tasks import SaliencyTask, task_of
from site_agent.networks.modules import from_module, new_network, to_module
from site_agent.studies.egocentric import EYES, MASKED, EgocentricStudySettings, Run
from site_agent.training import saliency
from site_agent.training.gaze.loop import repeatable
from site_agent.training.saliency import clip_shape
from site_agent.work import Progress


@dataclass(frozen=True)
class RunJob:
    """A run with all that it takes.

    `samples` is a file of `write_samples`, `first` one of `train_first`, or None.
    """

    run: Run
    samples: Path
    first: Path | None
    settings: EgocentricStudySettings


def do_run(job: RunJob, progress: Progress) -> dict[str, Any]:
    """Hold the rounds of a run.

    Returns ``begun`` (by person, before the first round), ``scores`` and ``validation`` (after the
    last), ``details`` (recall and precision by person; of clips only), ``curve`` (passes over the
    samples, mean test score), ``share`` (personal share of each person) and ``overlap`` (mean
    overlap of two persons' personal numbers; None without such).
    """
    from site_agent.federated.in_process import run_rounds

    run, settings = job.run, job.settings
    of_eyes = run.world == EYES
    samples, first = load_samples(job.samples), first_network(job)
    task = task_of(first.metadata["architecture"])
    options: dict[str, Any] = {"learning_rate": run.rate, "seed": run.seed, **dict(run.options)}
    if not of_eyes:
        options |= {"optimiser": "adamw", "batch_size": 8, "epochs": settings.epochs}
        options["learning_rate_decay"] = _RATE_DECAY
    rounds = settings.eye_rounds if of_eyes else settings.rounds
    if run.method == "fedselect":
        # By default every third round, which in a short study would be after the last.
        options["every"] = min(3, max(1, rounds // 3))
    plan = make_plan(run.method, options, rounds=rounds)
    sites = {person: parts["train"] for person, parts in samples.items()}

    def score(modules: Mapping[str, Any]) -> tuple[dict[str, float], dict[str, Any]]:
        scores, details = {}, {}
        for person, module in modules.items():
            test = samples[person]["test"]
            if isinstance(task, SaliencyTask):
                summary = task.summarise_persons(module, test)[person]
                scores[person] = summary.f1
                details[person] = {"recall": summary.recall, "precision": summary.precision}
            else:
                scores[person] = task.score_persons(module, test)[person]
        return scores, details

    with repeatable():
        begun, _ = score(dict.fromkeys(samples, to_module(first)))
    scores: dict[str, float] = {}
    details: dict[str, Any] = {}
    curve, modules, held = [], {}, None
    for held in run_rounds(first, sites, plan):
        progress(held.number / (rounds + 1), f"round {held.number} of {rounds}")
        if held.number < rounds and held.number % max(1, rounds // _POINTS):
            continue
        with repeatable():
            modules = {
                person: to_module(assemble(held.model.network, held.parts.get(person)))
                for person in samples
            }
            scores, details = score(modules)
        curve.append([held.number * plan.training.epochs, float(np.mean(list(scores.values())))])
    assert held is not None, "there is at least one round"
    with repeatable():
        validation = {
            person: task.score_persons(module, samples[person]["validation"]).get(person)
            for person, module in modules.items()
        }
    masks = [part.chosen for part in held.parts.values()]
    pairs = [(a, b) for number, a in enumerate(masks) for b in masks[:number]]
    has_masks = bool(pairs) and run.method in MASKED
    return {
        "begun": begun,
        "scores": scores,
        "validation": {name: value for name, value in validation.items() if value is not None},
        "details": details,
        "curve": curve,
        "share": {name: part.share for name, part in held.parts.items()},
        "overlap": float(np.mean([overlap_of(*pair) for pair in pairs])) if has_masks else None,
    }


_FIRST_SEED, _FIRST_RATE, _FIRST_BATCH = 2000, 0.003, 16
_OWN_FASTER = 10
_RATE_DECAY = 0.5
"""Of clips: few samples at a constant rate make networks waver from round to round."""

_POINTS = 2
"""Of a curve over rounds, about."""


def first_network(job: RunJob) -> StateDict:
    """Return the common first network: a new one, or one that knows how people look."""
    if job.run.world == EYES:
        return new_network("gaze-lenet", job.run.seed)
    if job.first is None:
        return new_network(job.settings.architecture, job.run.seed)
    return cast("StateDict", read_model(job.first))


def train_first(settings: EgocentricStudySettings, path: Path, progress: Progress) -> None:
    """Train the first network of drawn worlds, on many persons outside of them.

    It takes the place of the networks of general videos with which the papers begin. Each person
    has a last layer of her own, so that its inputs must show everything that persons like or
    dislike, which the map of their average gaze does not. The mean of these layers is kept.
    """
    drawn = replace(_clips(settings, 1.0, _FIRST_SEED), persons=settings.first_people, held_out=0.0)
    shape = saliency.clip_shape(settings.architecture)
    clips = draw_samples(drawn, shape, lambda _share, text: progress(None, f"drawing {text}"))
    module: Any = to_module(new_network(settings.architecture))
    own_layers = {name: deepcopy(module.classifier) for name in np.unique(clips.person).tolist()}
    # Their layers learn faster: each sees her own clips only.
    groups = [(1, module)] + [(_OWN_FASTER, layer) for layer in own_layers.values()]
    optimiser = torch.optim.AdamW(
        [{"params": [*part.parameters()], "faster": faster} for faster, part in groups],
        weight_decay=0.05,
    )
    random = np.random.default_rng(0)
    generator = torch.Generator().manual_seed(0)
    passes = settings.first_epochs
    with repeatable():
        for number in range(passes):
            for group in optimiser.param_groups:
                group["lr"] = group["faster"] * _FIRST_RATE * (1 - number / passes)
            steps = []
            for name in own_layers:
                order = random.permutation(np.flatnonzero(clips.person == name))
                parts = np.array_split(order, math.ceil(len(order) / _FIRST_BATCH))
                steps += [(name, part) for part in parts]
            for step in random.permutation(len(steps)):
                name, part = steps[step]
                module.classifier = own_layers[name]
                data = saliency.to_tensors(clips[part])
                saliency.train_epoch(module, optimiser, data, _FIRST_BATCH, generator)
                progress(None, f"training the first network, pass {number + 1} of {passes}")
    with torch.no_grad():
        for name, mean in module.classifier.named_parameters():
            parameters = [layer.get_parameter(name) for layer in own_layers.values()]
            mean.copy_(torch.stack(parameters).mean(0))
    write_model(from_module(module, settings.architecture), path)


Samples = Mapping[str, Mapping[str, Any]]
"""By person and by ``train``, ``validation`` and ``test``."""


def draw_world(
    world: str, seed: int, settings: EgocentricStudySettings, progress: Progress
) -> ClipSamples | GazeSamples:
    """Draw the persons of a world and their clips; a seed draws the same persons."""
    if world == EYES:
        drawn = RenderSettings(
            persons=settings.eye_people, frames_per_person=settings.eye_frames, seed=seed
        )
        return join_samples([render_person(drawn, number) for number in drawn.numbers])
    clips = _clips(settings, float(world.removeprefix("h=")), seed)
    return draw_samples(clips, clip_shape(settings.architecture), progress)


def _clips(settings: EgocentricStudySettings, heterogeneity: float, seed: int) -> ClipSettings:
    return ClipSettings(
        persons=settings.people, videos=settings.videos, seconds=settings.seconds,
        heterogeneity=heterogeneity, held_out=settings.held_out, seed=seed,
    )  # fmt: skip


def write_samples(samples: ClipSamples | GazeSamples, path: Path) -> None:
    """Write samples for `load_samples`."""
    partial = path.with_suffix(".partial")
    with partial.open("wb") as stream:
        np.savez(stream, **vars(samples))
    partial.replace(path)


@lru_cache(maxsize=2)
def load_samples(path: Path) -> Samples:
    """Return the file of `write_samples`, divided into training, validation and test."""
    with np.load(path) as content:
        columns = {name: content[name] for name in content.files}
    samples: dict[str, dict[str, Any]] = {}
    if "video" in columns:
        clips = ClipSamples(**columns)
        for person in sorted(set(clips.person.tolist())):
            mine = clips[clips.person == person]
            samples[person] = {part: mine.of(part) for part in ("train", "validation", "test")}
        return samples
    eyes = GazeSamples(**columns)
    for person in sorted(set(eyes.person.tolist())):
        own_eyes = eyes[eyes.person == person]
        out = held_out_sessions(own_eyes)
        rest = own_eyes[~out]
        last = rest.session == sorted(set(rest.session.tolist()))[-1]
        samples[person] = {
            "train": rest[~last] if (~last).any() else rest, "validation": rest[last],
            "test": own_eyes[out],
        }  # fmt: skip
    return samples
