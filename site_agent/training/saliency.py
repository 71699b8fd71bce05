"""Training of saliency networks: where in a clip a person looks.

A network learns the map of each frame (`site_agent.evaluation.saliency.gaze_targets`) from the
clips of one or several persons. No weights of Kinetics are used here, unlike in the papers, so
that scores are lower than theirs.

Source: Lai et al. 2024 (loss, AdamW, cosine, clipping); the FedCPF paper (coverage scores).
"""

import json
import math
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Literal, Unpack

import numpy as np
import torch
from torch import nn

from site_agent.datasets import egocentric
from site_agent.datasets.gaze.records import sample_marks
from site_agent.datasets.soundness import require_sound
from site_agent.errors import TrainingDataError
from site_agent.evaluation import saliency
from site_agent.networks.architectures import require_kind
from site_agent.networks.glc import GLC_LAYOUTS
from site_agent.networks.modules import (
    clip_inputs,
    from_module,
    new_network,
    predict_maps,
    to_module,
)
from site_agent.training.gaze.loop import TrainingState, checkpoint_path, repeatable, train_epochs
from site_agent.training.network_settings import SaliencySettings
from site_agent.training.steps import StepHooks, take_steps
from site_agent.training_record import DataSummary, TrainingResult, begin_training
from site_agent.work import Progress, no_progress, part_of

_LOWEST_RATE = 1e-6
_CLIP_NORM = 1.0
_READING_SHARE = 0.1


@dataclass(frozen=True)
class SaliencyTensors:
    """Clips as a network takes them.

    `frames` (uint8, shape (n, frames, size, size, 3)). `targets` (float32, shape (n, frames, size /
    4, size / 4)): Each map sums to 1; uniform where the gaze is not tracked.
    """

    frames: torch.Tensor
    targets: torch.Tensor

    def __len__(self) -> int:
        return len(self.frames)

    def inputs(self, index: torch.Tensor) -> tuple[torch.Tensor, ...]:
        """Return the input of a network for some clips."""
        return (clip_inputs(self.frames[index]),)


def to_tensors(samples: egocentric.ClipSamples) -> SaliencyTensors:
    """Return clips with the maps that a network learns."""
    count, frames, size = samples.frames.shape[:3]
    targets = saliency.gaze_targets(
        samples.gaze.reshape(-1, 2),
        size // 4,
        size // 4,
        samples.kind.reshape(-1) != egocentric.UNTRACKED,
    )
    maps = torch.from_numpy(targets).reshape(count, frames, size // 4, size // 4)
    return SaliencyTensors(torch.from_numpy(np.ascontiguousarray(samples.frames)), maps)


def saliency_loss(
    logits: torch.Tensor, targets: torch.Tensor, loss: Literal["ce", "kl-reverse"] = "ce"
) -> torch.Tensor:
    """Return the mean loss of maps over frames.

    `logits`, `targets` (float32, shape (n, frames, height, width)).
    """
    flat, target_map = logits.flatten(2).float(), targets.flatten(2)
    if loss == "ce":
        return -(target_map * torch.log_softmax(flat, dim=2)).sum(2).mean()
    log_map = torch.log_softmax(flat / 2, dim=2)
    divergence = (log_map.exp() * (log_map - torch.log(target_map + 1e-10))).sum(2).mean()
    # As GLC's code has it: 1 is the divergence of a point from an even map.
    return divergence / math.log(flat.shape[2])


def train_epoch(
    module: nn.Module,
    optimiser: torch.optim.Optimizer,
    data: SaliencyTensors,
    batch_size: int,
    generator: torch.Generator,
    *,
    loss: Literal["ce", "kl-reverse"] = "ce",
    **hooks: Unpack[StepHooks],
) -> float:
    """Train once on all clips, and return the mean loss."""
    order = torch.randperm(len(data), generator=generator)

    def loss_of(batch: torch.Tensor) -> torch.Tensor:
        logits = module(clip_inputs(data.frames[batch]))[:, 0]
        return saliency_loss(logits, data.targets[batch], loss)

    parts = torch.split(order, batch_size)
    return take_steps(module, optimiser, parts, loss_of, clip_norm=_CLIP_NORM, **hooks)


def clip_shape(architecture: str) -> egocentric.ClipShape:
    """Return how videos are cut into clips for a network."""
    require_kind(architecture, "saliency", "architecture")
    layout = GLC_LAYOUTS[architecture]
    return egocentric.ClipShape(layout.frames, layout.size_px, layout.every)


def read_clips(
    dataset: egocentric.EgocentricDataset,
    settings: SaliencySettings,
    progress: Progress = no_progress,
) -> egocentric.ClipSamples:
    """Return the clips of a data set as the settings' architecture takes them."""
    return dataset.read(settings.persons, clip_shape(settings.architecture), progress=progress)


def train_saliency(
    dataset: egocentric.EgocentricDataset,
    output: Path | str,
    settings: SaliencySettings = SaliencySettings(),
    progress: Progress = no_progress,
    *,
    despite_findings: bool = False,
) -> tuple[TrainingResult, saliency.SaliencyEvaluation | None]:
    """Train a saliency network, write it as a safetensors file, and score it on the test clips.

    Called again with the same data and settings, an interrupted training goes on.
    """
    output = Path(output)
    sound = require_sound(
        dataset, persons=settings.persons, despite_findings=despite_findings, progress=progress
    )
    begun = begin_training(output, sound.details)
    samples = read_clips(dataset, settings, part_of(progress, 0.0, _READING_SHARE))
    training, validation = samples.of("train"), samples.of("validation")
    if len(training) < 1:
        raise TrainingDataError(dataset.path, "found no training clips, expected at least 1")
    module = to_module(new_network(settings.architecture, settings.seed))
    optimiser = torch.optim.AdamW(
        module.parameters(), lr=settings.learning_rate, weight_decay=settings.weight_decay
    )
    generator = torch.Generator().manual_seed(settings.seed)
    state = TrainingState(module, optimiser, generator)
    plain: dict[str, Any] = json.loads(json.dumps(asdict(settings)))
    checkpoint, fixed = checkpoint_path(output), validation.kind == egocentric.FIXATION
    tensors = to_tensors(training)

    def train(report: Callable[[float], None]) -> float:
        return train_epoch(
            module, optimiser, tensors, settings.batch_size, generator,
            loss=settings.loss, progress=report,
        )  # fmt: skip

    def score() -> float | None:
        if not fixed.any():
            return None
        maps = predict_maps(module, validation.frames)[fixed]
        # The smaller the better: the negative F1.
        return -saliency.summarise_frames(saliency.score_maps(maps, validation.gaze[fixed])).f1

    with repeatable(torch.get_num_threads()):
        resumed_at = train_epochs(
            state, settings, (checkpoint, [plain, dataset.digest]), train, score,
            progress=part_of(progress, _READING_SHARE, 1.0), lowest_rate=_LOWEST_RATE,
        )  # fmt: skip
        module.load_state_dict(state.best)
        scores = saliency.evaluate_saliency(module, samples) if len(samples.of("test")) else None
    data = DataSummary(
        digest=dataset.digest,
        images=int(training.kind.size),
        persons=len(set(training.person.tolist())),
        image_marks=tuple(sorted(set(sample_marks(training.frames)))),
    )
    details = {
        "architecture": settings.architecture,
        "device": "cpu",
        "epochs": state.epoch,
        "resumed_at_epoch": resumed_at,
        "best_epoch": state.best_epoch,
        "losses": state.losses,
        "test_scores": _plain_scores(scores),
    }
    result = begun.publish_network(from_module(module, settings.architecture), data, plain, details)
    checkpoint.unlink(missing_ok=True)
    return result, scores


def _plain_scores(evaluation: saliency.SaliencyEvaluation | None) -> dict[str, Any]:
    if evaluation is None:
        return {}
    return {
        name: asdict(score) | {"f1_interval": evaluation.intervals.get(name)}
        for name, score in evaluation.scores.items()
    }
