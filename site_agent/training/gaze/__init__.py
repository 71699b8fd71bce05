"""Training of a gaze network on one site's data."""

from collections.abc import Callable, Mapping
from contextlib import nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from aggregators.formats import file_digest
from aggregators.models import StateDict
from site_agent.datasets.gaze import records as gaze
from site_agent.datasets.soundness import require_sound
from site_agent.errors import InvalidInputError, TrainingDataError
from site_agent.networks.architectures import find_architecture, require_kind
from site_agent.networks.files import read_network
from site_agent.networks.modules import from_module, new_network, predict_gaze, to_module
from site_agent.networks.views import View
from site_agent.plain_json import plain
from site_agent.training.gaze import loop
from site_agent.training.gaze.loop import checkpoint_path
from site_agent.training.network_settings import GazeSettings
from site_agent.training.overlap import training_records
from site_agent.training_record import BegunTraining, DataSummary, TrainingResult, begin_training
from site_agent.work import Progress, no_progress, part_of

_USUAL = "gaze-lenet"
_FEWEST_SAMPLES = 2
# Of the whole time, what reading the patches takes; only for the progress bar.
_READING_SHARE = 0.05


@dataclass(frozen=True)
class GazeTrainingData:
    """The data on which a network is trained, read from disk.

    `training` and `validation`: whole sessions. `digests`: digest of all samples of each person.
    """

    training: gaze.GazeSamples
    validation: gaze.GazeSamples
    digests: Mapping[str, str]

    @property
    def digest(self) -> str:
        """The digest of the persons' data, as `gaze_digest` of a data set of them alone."""
        return gaze.join_digests(self.digests)


def read_training_data(
    dataset: gaze.GazeDataset, settings: GazeSettings, progress: Progress = no_progress
) -> GazeTrainingData:
    """Read the samples of the persons that the settings name, and hold sessions out.

    Raises `TrainingDataError`: fewer than 2 samples are left to train on. `InvalidInputError`: a
    person that the data set does not have. `AnnotationFileError`: a file is damaged or missing.
    """
    persons = settings.persons or dataset.persons
    parts = []
    for number, person in enumerate(persons):
        progress(number / len(persons), f"read person {person}")
        parts.append(dataset.read([person]))
    samples = gaze.GazeSamples.join(parts)
    held = gaze.held_out_sessions(samples, settings.validation)
    if (count := len(samples) - int(held.sum())) < _FEWEST_SAMPLES:
        problem = f"has {count} samples to train on, expected at least {_FEWEST_SAMPLES}"
        raise TrainingDataError(dataset.path, problem)
    return GazeTrainingData(samples[~held], samples[held], gaze.person_digests(samples))


def train_gaze(
    dataset: gaze.GazeDataset,
    output: Path | str,
    settings: GazeSettings = GazeSettings(),
    progress: Progress = no_progress,
    *,
    base: Path | str | None = None,
    despite_findings: bool = False,
) -> TrainingResult:
    """Train a gaze network and write it as a safetensors file.

    A file next to the output keeps the state after each epoch. Called again with the same data,
    settings and base, an interrupted training goes on; the result is that of an uninterrupted one.

    `output`: put in place only when it is complete; ``<output>.training.json`` lies next to it.
    `progress`: called with the fraction done and a text; an exception that it raises stops the
    training. `base`: the network to go on from; by default one with random parameters.

    Raises `TrainingDataError`, `AnnotationFileError`: as `read_training_data`.
    `TrainingFailedError`: the loss is not finite, or the output cannot be written.
    `InvalidInputError`: an unknown architecture, a base of another one, or no CUDA device where one
    is asked for.
    """
    output = Path(output)
    dataset = dataset.seen_as(view_of(settings, base))
    sound = require_sound(
        dataset, persons=settings.persons, despite_findings=despite_findings, progress=progress
    )
    begun = begin_training(output, sound.details)
    start = start_network(settings, base)
    device = find_device(settings.device)
    data = read_training_data(dataset, settings, part_of(progress, 0.0, _READING_SHARE))
    recipe = _Recipe(
        settings,
        recorded_settings(settings, base),
        () if base is None else tuple(training_records(Path(base))),
        device,
        data.digest,
        checkpoint_path(output),
    )
    trained, outcome = _train(start, data, recipe, part_of(progress, _READING_SHARE, 1.0))
    result = _publish(begun, trained, data, recipe, outcome)
    recipe.checkpoint.unlink(missing_ok=True)
    return result


def start_network(settings: GazeSettings, base: Path | str | None) -> StateDict:
    """Return the network that a training begins with."""
    if settings.architecture is not None:
        require_kind(settings.architecture, "gaze", "architecture")
    if base is None:
        return new_network(settings.architecture or _USUAL, settings.seed)
    network = read_network(base)
    architecture = network.metadata.get("architecture", "no architecture")
    if settings.architecture not in (None, architecture):
        raise InvalidInputError(f"{base}: found {architecture}, expected {settings.architecture}")
    return network


def view_of(settings: GazeSettings, base: Path | str | None) -> View:
    """Return the view of the network that a training begins with; raises as `find_architecture`."""
    name = settings.architecture or _USUAL
    if base is not None:
        name = read_network(base).metadata.get("architecture", name)
    return find_architecture(name).view


def find_device(device: str) -> str:
    """Return cpu or cuda."""
    if device == "cpu" or (device == "auto" and not torch.cuda.is_available()):
        return "cpu"
    if not torch.cuda.is_available():
        raise InvalidInputError("device is cuda, and torch finds no CUDA device")
    return "cuda"


def recorded_settings(settings: GazeSettings, base: Path | str | None) -> dict[str, Any]:
    """Return the settings as the metadata file has them, with the base's digest."""
    return {**plain(settings), "base_digest": None if base is None else file_digest(base)}


@dataclass(frozen=True)
class _Recipe:
    """The inputs of a training besides data and network: settings, device and checkpoint.

    `base_records` are the training records of the network that it goes on from.
    """

    settings: GazeSettings
    recorded: Mapping[str, Any]
    base_records: tuple[tuple[str, dict[str, Any]], ...]
    device: str
    data_digest: str
    checkpoint: Path

    @property
    def threads(self) -> int:
        return self.settings.threads or torch.get_num_threads()

    @property
    def mixed_precision(self) -> bool:
        return self.device == "cuda" and torch.cuda.is_bf16_supported(including_emulation=False)


def _train(
    start: StateDict, data: GazeTrainingData, recipe: _Recipe, progress: Progress
) -> tuple[StateDict, dict[str, Any]]:
    """Return the trained network, and further results."""
    settings, device = recipe.settings, recipe.device
    module = to_module(start).to(device)
    generator = torch.Generator().manual_seed(settings.seed)
    optimiser = loop.make_optimiser(
        settings.optimiser, module, settings.learning_rate, settings.momentum, settings.weight_decay
    )
    state = loop.TrainingState(module, optimiser, generator)
    parts = [recipe.recorded, recipe.data_digest, device, recipe.threads]
    validation = data.validation
    target = find_architecture(start.metadata["architecture"]).view.target

    def train(report: Callable[[float], None]) -> float:
        return loop.train_epoch(
            module, optimiser, tensors, settings.batch_size, generator,
            shift_px=0 if target.moves else settings.shift_px, light=settings.light,
            mixed_precision=recipe.mixed_precision, progress=report,
        )  # fmt: skip

    def score() -> float | None:
        if not len(validation):
            return None
        angles = predict_gaze(module, validation.patches, validation.head, device)
        return float(gaze.target_errors(target, angles, validation.gaze).mean())

    # Some operations have no deterministic form on CUDA.
    with loop.repeatable(recipe.threads) if device == "cpu" else nullcontext():
        tensors = loop.to_tensors(data.training, device)
        resumed_at = loop.train_epochs(
            state, settings, (recipe.checkpoint, parts), train, score,
            progress=progress, patience=settings.patience,
        )  # fmt: skip
    module.load_state_dict(state.best)
    outcome = {
        "architecture": start.metadata["architecture"],
        "device": device,
        "threads": recipe.threads,
        "mixed_precision": recipe.mixed_precision,
        "epochs": state.epoch,
        "resumed_at_epoch": resumed_at,
        "best_epoch": state.best_epoch,
        "losses": state.losses,
        target.named("validation_errors_deg"): state.errors_deg,
    }
    return from_module(module, start.metadata["architecture"]), outcome


def _publish(
    begun: BegunTraining,
    trained: StateDict,
    data: GazeTrainingData,
    recipe: _Recipe,
    outcome: Mapping[str, Any],
) -> TrainingResult:
    validation = data.validation
    named = zip(validation.person.tolist(), validation.session.tolist(), strict=True)
    target = find_architecture(outcome["architecture"]).view.target
    errors = outcome[target.named("validation_errors_deg")]
    marks, digests = set(gaze.sample_marks(data.training.patches)), set(data.digests.values())
    # The new network keeps the knowledge of the base.
    for _, before in recipe.base_records:
        marks.update(before["data"]["image_marks"])
        digests.update(before["details"].get("person_digests", ()))
    warnings: tuple[str, ...] = ()
    if recipe.settings.validation and not len(validation):
        warnings = ("no person has two sessions: nothing was held out, and all epochs were run",)
    summary = DataSummary(
        digest=data.digest,
        images=len(data.training),
        persons=len(data.digests),
        image_marks=tuple(sorted(marks)),
    )
    details = {
        "person_digests": sorted(digests),
        "validation_sessions": sorted({f"{person}/{name}" for person, name in named}),
        "validation_images": len(validation),
        target.named("validation_error_deg"): min(errors) if errors else None,
        **outcome,
    }
    return begun.publish_network(trained, summary, recipe.recorded, details, warnings=warnings)
