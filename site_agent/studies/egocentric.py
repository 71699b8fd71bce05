"""The runs of the study of personalised rounds: eight methods on clips, and the same on eyes.

Each person is a site. In a *world* of drawn persons the heterogeneity says how much their choices
of things to look at differ: 0 for equal persons, 1 for unrelated ones; ``eyes`` has gaze networks
of drawn persons in place of clips, and in ``turned`` the labels of person k of n are turned
by k / n of a circle times the heterogeneity. Every method is given the learning rate that is best
for it on validation clips of other persons and another start, of equally many candidates, and is
tested on clips (or sessions) that nobody trained with. Each seed draws other persons, so that an
interval over persons and seeds covers both. The sweeps change one option of FedCPF at a time.
In drawn worlds all methods begin with a network that clips of other persons have trained, so that
the rounds show the gain from knowing the person, not how long a network learns to see.

Source: the FedCPF paper, tables of methods and curves over rho and acc.
"""

import math
from collections.abc import Mapping, Sequence
from copy import deepcopy
from dataclasses import replace
from functools import lru_cache
from pathlib import Path
from typing import Any, cast

import numpy as np
import torch

from aggregators.formats import read_model, write_model
from aggregators.methods.registry import find_method
from aggregators.models import StateDict
from aggregators.whole_file import whole_file
from site_agent.datasets.egocentric import ClipSamples, EgocentricDataset, arrange, open_egocentric
from site_agent.datasets.gaze.records import GazeSamples, held_out_sessions
from site_agent.datasets.soundness import require_sound
from site_agent.datasets.synthetic.egocentric_clips import draw_samples
from site_agent.datasets.synthetic.eye_patches.dataset import RenderSettings, drawn_dataset
from site_agent.datasets.synthetic.eye_patches.persons import Skews
from site_agent.datasets.synthetic.settings import ClipSettings
from site_agent.errors import InvalidInputError, TrainingFailedError
from site_agent.federated.in_process import run_rounds
from site_agent.federated.personal import assemble, overlap_of
from site_agent.federated.plan import make_plan
from site_agent.federated.tasks import SaliencyTask, task_of
from site_agent.networks.modules import from_module, new_network, to_module
from site_agent.studies.protocol_file import StepJob
from site_agent.training import saliency
from site_agent.training.gaze.loop import repeatable
from site_agent.training.saliency import clip_shape
from site_agent.work import Progress

SEVERAL = True
"""Data sets that one study compares, each a world."""
DATA = "data"
_CAMERA, _EYES, _TURNED = "egocentric", "eyes", "turned"
_EYE_WORLDS = (_EYES, _TURNED)
_MASKED = ("fedselect", "cpf-random", "fedcpf")
"""Methods that choose the personal numbers one by one."""
_TUNING_SEED = 1000
_WORLDS, _FIRST = ".study/worlds", "first.safetensors"


Clips = Mapping[str, EgocentricDataset]
"""By world: `DATA`, or of several data sets each layout."""


def open_data(paths: Sequence[Path], *, despite_findings: bool = False) -> Clips:
    """Open the clips that a user named."""
    datasets: dict[str, EgocentricDataset] = {}
    for path in paths:
        dataset = open_egocentric(path)
        require_sound(dataset, despite_findings=despite_findings)
        name = DATA if len(paths) == 1 else dataset.layout
        if name in datasets:
            raise InvalidInputError(f"{path}: has the layout of {datasets[name].path}; give one")
        datasets[name] = dataset
    return datasets


def list_names(datasets: Clips | None, settings: Any) -> dict[str, list[Any]]:
    """Return the worlds, the most heterogeneous clips last, and those that are drawn."""
    clips = list(datasets or ())
    amounts = [] if datasets else sorted(settings.heterogeneities)
    drawn, eyes = [], []
    for kind in settings.worlds:
        if kind not in _EYE_WORLDS:
            drawn += [f"h={h:g}" if kind == _CAMERA else f"{kind} h={h:g}" for h in amounts]
        elif not datasets and settings.eye_people:
            eyes += [f"{kind} h={h:g}" for h in amounts] if kind == _TURNED else [kind]
    last = (clips + drawn)[-1:]
    of_camera = any(world.startswith("h=") for world in drawn)
    return {
        "clip_worlds": clips + drawn,
        "last_world": last,
        "eye_worlds": eyes,
        "drawn_worlds": drawn + eyes,
        "first_seeds": [_FIRST_SEED] * bool(of_camera and settings.first_people),
        "tuning_worlds": [world for world in [*drawn[-1:], *eyes]
                          if len(settings.eye_rates if world in eyes else settings.rates) > 1],
        "tuning_seeds": [_TUNING_SEED],
    }  # fmt: skip


def check(settings: Any, names: Mapping[str, Any]) -> None:
    """Refuse settings with nothing to compare."""
    for name in ("methods", "rates", "eye_rates"):
        if not getattr(settings, name):
            raise InvalidInputError(f"{name}: expected one value at least")
    for method in settings.methods:
        find_method(method.split()[0])
    if not names["clip_worlds"] and not names["eye_worlds"]:
        raise InvalidInputError("heterogeneities: expected one value at least")


def prepare(
    datasets: Clips | None, settings: Any, folder: Path, progress: Progress
) -> dict[str, Any]:
    """Write the clips of the data for the workers; return the facts about them."""
    if not datasets:
        return {"data": None}
    (folder.parent / _WORLDS).mkdir(exist_ok=True)
    shape, digests = clip_shape(settings.architecture), {}
    shape = replace(shape, every=settings.every or shape.every)
    for name, dataset in datasets.items():
        arranged = arrange(dataset, [Path(path) for path in settings.lists], settings.site_count)
        samples = arranged.read(shape=shape, progress=progress)
        write_samples(samples, folder.parent / _WORLDS / f"{name}.npz")
        digests[name] = arranged.digest
    return {"data": digests}


def draw(job: StepJob, progress: Progress) -> dict[str, Any]:
    """Draw the persons of a world and their clips."""
    world, seed = _world_of(job), _seed_of(job)
    samples = draw_world(world, seed, job.settings, progress)
    write_samples(samples, job.folder / f"{world}-seed{seed}.npz")
    return {}


def tune(job: StepJob, progress: Progress) -> dict[str, Any]:
    """Return the mean score of a method with a candidate for the learning rate, by validation."""
    try:
        rows = _hold_rounds(job, job.factors.rate, progress)
    except TrainingFailedError:
        return {"rate": job.factors.rate, "mean": None}
    scores = [row["validation"] for row in rows if row.get("validation") is not None]
    return {"rate": job.factors.rate, "mean": float(np.mean(scores))}


def score_method(job: StepJob, progress: Progress) -> list[dict[str, Any]]:
    """Hold the rounds of a method with the learning rate that `tune` found best.

    Returns a row for each person: ``rate``, ``begun`` (the score before the first round), ``score``
    and ``validation`` (after the last), ``recall`` and ``precision`` (of clips), ``share`` (her
    personal numbers) and ``overlap`` (mean overlap of two persons' personal numbers); and a row for
    each point of the curve: ``pass`` and ``curve`` (mean test score).
    """
    world, settings = job.factors.world, job.settings
    rates = settings.eye_rates if _shows_eyes(world) else settings.rates
    rate = rates[0]
    if tuned := [row for row in job.inputs.values() if row.get("mean") is not None]:
        # Errors are the better the smaller, F1 the larger.
        sign = -1 if _shows_eyes(world) else 1
        _, rate = max((sign * row["mean"], row["rate"]) for row in tuned)
    elif len(rates) > 1:
        raise TrainingFailedError(f"{job.factors.method}: all trainings in {world} failed")
    return _hold_rounds(job, rate, progress)


def _shows_eyes(world: str) -> bool:
    return world.split(maxsplit=1)[0] in _EYE_WORLDS


def _world_of(job: StepJob) -> str:
    """Return the world of a run: of one that tunes, that of other persons."""
    factors = job.step.factors
    return str(factors.get("tuning_world") or factors["world"])


def _seed_of(job: StepJob) -> int:
    factors = job.step.factors
    return int(factors.get("tuning_seed") or factors["seed"])


def _hold_rounds(job: StepJob, rate: float, progress: Progress) -> list[dict[str, Any]]:
    settings, chosen, world, seed = job.settings, job.step.factors, _world_of(job), _seed_of(job)
    of_eyes = _shows_eyes(world)
    method, *choices = chosen["method"].split()
    of_data = job.study / _WORLDS / f"{world}.npz"
    drawn = job.study / _WORLDS / f"{world}-seed{seed}.npz"
    samples = load_samples(of_data if of_data.exists() else drawn)
    first = _first_network(job, world)
    task = task_of(first.metadata["architecture"])
    options: dict[str, Any] = {
        "learning_rate": rate, "seed": seed,
        **dict(option.split("=", 1) for option in choices),
        **{option: chosen[option] for option in ("rho", "acc") if option in chosen},
    }  # fmt: skip
    if not of_eyes:
        options |= {"optimiser": "adamw", "batch_size": 8, "epochs": settings.epochs}
        options["learning_rate_decay"] = _RATE_DECAY
    rounds = settings.eye_rounds if of_eyes else settings.rounds
    plan = make_plan(method, options, rounds=rounds)
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
    overlap = None
    if pairs and method in _MASKED:
        overlap = float(np.mean([overlap_of(*pair) for pair in pairs]))
    rows: list[dict[str, Any]] = [
        {
            "person": person, "rate": rate, "begun": begun[person], "score": scores[person],
            "validation": validation[person], **details.get(person, {}),
            "share": held.parts[person].share if person in held.parts else None,
            "overlap": overlap,
        }
        for person in scores
    ]  # fmt: skip
    return rows + [{"pass": number, "curve": score_there} for number, score_there in curve]


_FIRST_SEED, _FIRST_RATE, _FIRST_BATCH = 2000, 0.003, 16
_OWN_FASTER = 10
_RATE_DECAY = 0.5
"""Of clips: few samples at a constant rate make networks waver from round to round."""

_POINTS = 2
"""Of a curve over rounds, about."""


def _first_network(job: StepJob, world: str) -> StateDict:
    """Return the common first network: a new one, or one that knows how people look."""
    seed = _seed_of(job)
    if _shows_eyes(world):
        return new_network("gaze-lenet", seed)
    if not world.startswith("h=") or not job.settings.first_people:
        return new_network(job.settings.architecture, seed)
    return cast("StateDict", read_model(job.study / _WORLDS / _FIRST))


def train_first(job: StepJob, progress: Progress) -> dict[str, Any]:
    """Train the first network of drawn worlds, on many persons outside of them.

    It takes the place of the networks of general videos with which the papers begin. Each person
    has a last layer of her own, so that its inputs must show everything that persons like or
    dislike, which the map of their average gaze does not. The mean of these layers is kept.
    """
    settings = job.settings
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
    write_model(from_module(module, settings.architecture), job.folder / _FIRST)
    return {}


Samples = Mapping[str, Mapping[str, Any]]
"""By person and by ``train``, ``validation`` and ``test``."""


def draw_world(
    world: str, seed: int, settings: Any, progress: Progress
) -> ClipSamples | GazeSamples:
    """Draw the persons of a world and their clips; a seed draws the same persons."""
    kind, _, amount = world.partition("h=")
    if _shows_eyes(world):
        # Persons of a turned world differ in their labels alone, not in how much they know.
        skews = Skews(amount=1.0) if amount else Skews()
        drawn = RenderSettings(
            persons=settings.eye_people, frames_per_person=settings.eye_frames, seed=seed,
            skews=skews,
        )  # fmt: skip
        people = [eyes for _, eyes in drawn_dataset(drawn).read_each(progress)]
        if amount:
            circle = 2 * math.pi * float(amount) / len(people)
            people = [_turn_gaze(eyes, number * circle) for number, eyes in enumerate(people)]
        return GazeSamples.join(people)
    clips = _clips(settings, float(amount), seed, scene=kind.strip() or "camera")
    return draw_samples(clips, clip_shape(settings.architecture), progress)


def _turn_gaze(samples: GazeSamples, angle: float) -> GazeSamples:
    """Turn the labels of a person about the middle of her gaze, so that only she agrees."""
    turn = np.array([[math.cos(angle), -math.sin(angle)], [math.sin(angle), math.cos(angle)]])
    middle = samples.gaze.mean(axis=0)
    return replace(samples, gaze=(samples.gaze - middle) @ turn.T + middle)


def _clips(settings: Any, heterogeneity: float, seed: int, scene: Any = "camera") -> ClipSettings:
    return ClipSettings(
        persons=settings.people, videos=settings.videos, seconds=settings.seconds,
        heterogeneity=heterogeneity, held_out=settings.held_out, seed=seed, scene=scene,
    )  # fmt: skip


def write_samples(samples: ClipSamples | GazeSamples, path: Path) -> None:
    """Write samples for `load_samples`."""
    with whole_file(path) as file:
        np.savez(file, **vars(samples))


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
