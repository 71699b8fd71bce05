"""Training of a cross-encoder on the eye patches of one site, without labels."""

import json
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from typing import Any

import torch

from site_agent.datasets.gaze import records as gaze
from site_agent.datasets.gaze.records import require_both_eyes
from site_agent.datasets.soundness import require_sound
from site_agent.errors import TrainingDataError
from site_agent.networks.architectures import is_crossed, require_kind
from site_agent.networks.modules import from_module, new_network, to_module
from site_agent.training.cross_encoder.loop import to_tensors, train_epoch
from site_agent.training.gaze.loop import (
    TrainingState,
    checkpoint_path,
    make_optimiser,
    repeatable,
    train_epochs,
)
from site_agent.training.network_settings import CrossEncoderSettings
from site_agent.training_record import DataSummary, TrainingResult, begin_training
from site_agent.work import Progress, no_progress, part_of

_FEWEST_SAMPLES = 4
_READING_SHARE = 0.05


def read_frames(
    dataset: gaze.GazeDataset, settings: CrossEncoderSettings, progress: Progress = no_progress
) -> gaze.GazeSamples:
    """Read the frames with both eyes of the persons that the settings name.

    Raises `TrainingDataError`: there are fewer than two frames. `InvalidInputError`: a person has
    none, or the data set has no such person. `AnnotationFileError`: a file is damaged or missing.
    """
    progress(0.0, "read patches")
    samples = require_both_eyes(dataset.read(settings.persons or None), dataset.path)
    if len(samples) < _FEWEST_SAMPLES:
        problem = f"has {len(samples) // 2} frames with both eyes, expected at least 2"
        raise TrainingDataError(dataset.path, problem)
    return samples


def train_cross_encoder(
    dataset: gaze.GazeDataset,
    output: Path | str,
    settings: CrossEncoderSettings = CrossEncoderSettings(),
    progress: Progress = no_progress,
    *,
    despite_findings: bool = False,
) -> TrainingResult:
    """Train a cross-encoder, and write it as a safetensors file.

    Call again with the same data and settings to resume an interrupted training.

    Raises `TrainingDataError`, `InvalidInputError`, `AnnotationFileError`: as `read_frames`; or the
    architecture is of another kind. `TrainingFailedError`: the loss is not finite, or the output
    cannot be written.
    """
    require_kind(settings.architecture, "representation", "architecture")
    output = Path(output)
    sound = require_sound(
        dataset, persons=settings.persons, despite_findings=despite_findings, progress=progress
    )
    begun = begin_training(output, sound.details)
    samples = read_frames(dataset, settings, part_of(progress, 0.0, _READING_SHARE))
    digests = gaze.person_digests(samples)
    module = to_module(new_network(settings.architecture, settings.seed))
    optimiser = make_optimiser("adamw", module, settings.learning_rate, 0.0, settings.weight_decay)
    generator = torch.Generator().manual_seed(settings.seed)
    state = TrainingState(module, optimiser, generator)
    plain: dict[str, Any] = json.loads(json.dumps(asdict(settings)))
    checkpoint = checkpoint_path(output)

    def train(report: Callable[[float], None]) -> float:
        return train_epoch(
            module, optimiser, tensors, settings.batch_size, generator,
            crossed=is_crossed(settings.architecture), progress=report,
        )  # fmt: skip

    with repeatable(torch.get_num_threads()):
        tensors = to_tensors(samples)
        resumed_at = train_epochs(
            state, settings, (checkpoint, [plain, digests]), train,
            progress=part_of(progress, _READING_SHARE, 1.0),
        )  # fmt: skip
    data = DataSummary(
        digest=gaze.join_digests(digests),
        images=len(samples),
        persons=len(digests),
        image_marks=tuple(sorted(set(gaze.sample_marks(samples.patches)))),
    )
    details = {
        "architecture": settings.architecture,
        "person_digests": sorted(digests.values()),
        "device": "cpu",
        "epochs": state.epoch,
        "resumed_at_epoch": resumed_at,
        "losses": state.losses,
    }
    result = begun.publish_network(from_module(module, settings.architecture), data, plain, details)
    checkpoint.unlink(missing_ok=True)
    return result
