"""Training and scoring of saliency networks: where in a clip a person looks.

A network learns the map of each frame (`site_agent.evaluation.saliency.gaze_targets`) from the
clips of one or several clients. Every score stands beside those of maps that know no picture: the
uniform one, a centre, and the mean of the client's own training targets. No weights of Kinetics
are used here, unlike in the papers, so that scores are lower than theirs.

Source: Lai et al. 2024 (loss, AdamW, cosine, clipping); the FedCPF paper (coverage scores).
"""

from __future__ import annotations

import hashlib
import json
import math
import resource
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
from numpy.typing import NDArray

from aggregators.formats import file_digest, write_model
from site_agent.datasets.egocentric import (
    FIXATION,
    UNTRACKED,
    ClipSamples,
    EgocentricDataset,
    Split,
)
from site_agent.errors import InvalidInputError, TrainingDataError, TrainingFailedError
from site_agent.evaluation.bootstrap import Interval, bootstrap_intervals
from site_agent.evaluation.saliency import (
    FrameScores,
    SaliencyScores,
    choose_pixel_threshold,
    gaze_targets,
    reference_maps,
    score_maps,
    summarise_frames,
)
from site_agent.runs.progress import Progress, no_progress, part_of
from site_agent.training.settings import require_number, require_whole
from site_agent.training_record import (
    DataSummary,
    TrainingRecord,
    TrainingResult,
    program_versions,
    publish,
    temporary_beside,
    utc_now,
)

if TYPE_CHECKING:
    import torch
    from torch import nn

_LOWEST_RATE = 1e-6
_CLIP_NORM = 1.0
_BATCH = 16
_MAP_PX = 64
"""Side of the maps that are scored; a network's own are resized to it."""

_READING_SHARE = 0.1


@dataclass(frozen=True)
class SaliencySettings:
    """How a saliency network is trained; the learning rate falls along half a cosine.

    Attributes
    ----------
    architecture : str
        glc-tiny, glc-small, glc-8 or glc-paper.
    clients : tuple of str
        The clients to train on; empty: all.
    epochs : int
        Passes over the training clips; the network with the best validation F1 is kept.
    learning_rate : float
        Of the first epoch, for AdamW.
    weight_decay : float
        Of AdamW.
    batch_size : int
        Clips in a step.
    loss : str
        ce, the cross-entropy, or kl-reverse, with a softmax of temperature 2.
    every : int
        Take every so many frames of a video.
    seed : int
        Of the first parameters and of the order of clips.
    """

    architecture: str = "glc-tiny"
    clients: tuple[str, ...] = ()
    epochs: int = 20
    learning_rate: float = 0.001
    weight_decay: float = 0.05
    batch_size: int = 8
    loss: Literal["ce", "kl-reverse"] = "ce"
    every: int = 4
    seed: int = 0

    def __post_init__(self) -> None:
        require_whole("epochs", self.epochs, 1, 100_000)
        require_whole("batch_size", self.batch_size, 1, 65_536)
        require_whole("every", self.every, 1, 1000)
        require_whole("seed", self.seed, 0, 2**63 - 1)
        require_number("learning_rate", self.learning_rate, above=0, most=10)


@dataclass(frozen=True)
class SaliencyTensors:
    """Clips as a network takes them.

    Attributes
    ----------
    frames : uint8, shape (n, frames, size, size, 3)
    targets : float32, shape (n, frames, size / 4, size / 4)
        Each map sums to 1; uniform where the gaze is not tracked.
    """

    frames: torch.Tensor
    targets: torch.Tensor

    def __len__(self) -> int:
        return len(self.frames)


def to_tensors(samples: ClipSamples) -> SaliencyTensors:
    """Return clips with the maps that a network learns."""
    import torch

    count, frames, size = samples.frames.shape[:3]
    targets = gaze_targets(
        samples.gaze.reshape(-1, 2), size // 4, size // 4, samples.kind.reshape(-1) != UNTRACKED
    )
    maps = torch.from_numpy(targets).reshape(count, frames, size // 4, size // 4)
    return SaliencyTensors(torch.from_numpy(np.ascontiguousarray(samples.frames)), maps)


def to_inputs(frames: torch.Tensor) -> torch.Tensor:
    """Return pictures, uint8 (n, frames, size, size, 3), as float32 (n, 3, frames, size, size)."""
    return (frames.float() / 255 - 0.45).div_(0.225).permute(0, 4, 1, 2, 3)


def saliency_loss(
    logits: torch.Tensor, targets: torch.Tensor, loss: Literal["ce", "kl-reverse"] = "ce"
) -> torch.Tensor:
    """Return the mean loss of maps over frames.

    Parameters
    ----------
    logits, targets : float32, shape (n, frames, height, width)
    """
    import torch

    flat, wanted = logits.flatten(2).float(), targets.flatten(2)
    if loss == "ce":
        return -(wanted * torch.log_softmax(flat, dim=2)).sum(2).mean()
    found = torch.log_softmax(flat / 2, dim=2)
    return (found.exp() * (found - torch.log(wanted + 1e-6))).sum(2).mean()


def train_epoch(
    module: nn.Module,
    optimiser: torch.optim.Optimizer,
    data: SaliencyTensors,
    batch_size: int,
    generator: torch.Generator,
    *,
    loss: Literal["ce", "kl-reverse"] = "ce",
    progress: Callable[[float], None] = lambda _share: None,
) -> float:
    """Train once on all clips, and return the mean loss."""
    import torch

    module.train()
    order = torch.randperm(len(data), generator=generator)
    total, done = 0.0, 0
    for batch in torch.split(order, batch_size):
        optimiser.zero_grad(set_to_none=True)
        logits = module(to_inputs(data.frames[batch]))[:, 0]
        value = saliency_loss(logits, data.targets[batch], loss)
        value.backward()  # type: ignore[no-untyped-call]
        _clip_gradient(module)
        optimiser.step()
        total += float(value.detach()) * len(batch)
        done += len(batch)
        progress(done / len(data))
    return total / max(1, len(data))


def _clip_gradient(module: nn.Module) -> None:
    """Shorten the gradient of all parameters together to a norm of 1."""
    from torch.nn.utils import clip_grad_norm_

    clip_grad_norm_(module.parameters(), _CLIP_NORM)


def predict_maps(module: nn.Module, frames: NDArray[np.uint8]) -> NDArray[np.float32]:
    """Return a map of each frame that sums to 1, float32 of shape (n, frames, 64, 64)."""
    import torch
    from torch.nn import functional

    module.eval()
    parts = []
    with torch.inference_mode():
        for first in range(0, len(frames), _BATCH):
            given = torch.from_numpy(np.ascontiguousarray(frames[first : first + _BATCH]))
            logits = module(to_inputs(given))[:, 0]
            size = (_MAP_PX, _MAP_PX)
            larger = functional.interpolate(logits, size=size, mode="bilinear")
            maps = torch.softmax(larger.flatten(2), dim=2).reshape(larger.shape)
            parts.append(maps.numpy())
    return np.concatenate(parts)


@dataclass(frozen=True)
class SaliencyEvaluation:
    """Scores of a network's maps, and of those that stand beside them.

    Attributes
    ----------
    scores : mapping of str to SaliencyScores
        ``network``; ``client-mean``, ``centre``, ``uniform``; and ``oracle``, a Gaussian at the
        true gaze, where that is known.
    intervals : mapping of str to Interval
        95 % interval of F1, from resampling videos.
    """

    scores: Mapping[str, SaliencyScores]
    intervals: Mapping[str, Interval]


def evaluate_saliency(
    module: nn.Module, samples: ClipSamples, *, split: Split = "test", seed: int = 0
) -> SaliencyEvaluation:
    """Score a network on the fixations of a split, beside maps that know no picture.

    Parameters
    ----------
    samples : ClipSamples
        All splits: a client's mean map is made of its training clips, the threshold of pixel F1
        of validation clips.
    """
    test, validation = samples.of(split), samples.of("validation")
    chosen = test.kind == FIXATION
    if not chosen.any():
        raise InvalidInputError(f"there are no fixations in the {split} clips to score maps on")
    gaze = test.gaze[chosen]
    threshold = 2.0
    if (fixed := validation.kind == FIXATION).any():
        maps = predict_maps(module, validation.frames)[fixed]
        threshold = choose_pixel_threshold(maps, validation.gaze[fixed])
    candidates = {"network": predict_maps(module, test.frames)[chosen]}
    candidates |= _references(samples, test, chosen)
    if np.isfinite(test.truth[chosen]).all():
        candidates["oracle"] = gaze_targets(test.truth[chosen], _MAP_PX, _MAP_PX)
    videos = np.repeat(test.video[:, None], test.kind.shape[1], axis=1)[chosen]
    names, unit = np.unique(videos, return_inverse=True)
    scores, intervals = {}, {}
    for name, maps in candidates.items():
        frames = score_maps(maps, gaze, pixel_threshold=threshold)
        scores[name] = summarise_frames(frames, threshold)
        statistics = _F1(frames, unit, len(names))
        intervals[name] = bootstrap_intervals(statistics, len(names), resamples=1000, seed=seed)[
            "f1"
        ]
    return SaliencyEvaluation(scores, intervals)


class _F1:
    """F1 of resampled videos."""

    def __init__(self, frames: FrameScores, unit: NDArray[np.intp], count: int) -> None:
        self._sums = [np.bincount(unit, values, count) for values in (frames.hit, frames.overlap)]
        self._counts = np.bincount(unit, minlength=count)

    def __call__(self, times: NDArray[np.int64]) -> dict[str, float]:
        total = (times * self._counts).sum()
        recall, precision = (float((times * each).sum() / total) for each in self._sums)
        both = recall + precision
        return {"f1": 2 * recall * precision / both if both else 0.0}


def _references(
    samples: ClipSamples, test: ClipSamples, chosen: NDArray[np.bool_]
) -> dict[str, NDArray[np.float32]]:
    """Return the maps that know no picture, for each chosen frame."""
    training = samples.of("train")
    persons = np.repeat(test.person[:, None], test.kind.shape[1], axis=1)[chosen]
    found: dict[str, NDArray[np.float32]] = {}
    for person in np.unique(persons):
        own = training[training.person == person]
        maps = reference_maps(own.gaze[own.kind == FIXATION], _MAP_PX, _MAP_PX)
        for name, each in maps.items():
            stack = found.setdefault(
                name, np.empty((len(persons), _MAP_PX, _MAP_PX), dtype=np.float32)
            )
            stack[persons == person] = each
    return {name: found[name] for name in ("client-mean", "centre", "uniform")}


def read_clips(
    dataset: EgocentricDataset, settings: SaliencySettings, progress: Progress = no_progress
) -> ClipSamples:
    """Return the clips of a data set as the settings' architecture takes them."""
    from site_agent.networks.architectures import require_kind
    from site_agent.networks.glc import GLC_LAYOUTS

    require_kind(settings.architecture, "saliency", "architecture")
    layout = GLC_LAYOUTS[settings.architecture]
    return dataset.read(
        settings.clients,
        frames=layout.frames,
        every=settings.every,
        size_px=layout.size_px,
        progress=progress,
    )


def train_saliency(
    dataset: EgocentricDataset,
    output: Path | str,
    settings: SaliencySettings | None = None,
    progress: Progress = no_progress,
) -> tuple[TrainingResult, SaliencyEvaluation | None]:
    """Train a saliency network, write it as a safetensors file, and score it on the test clips.

    Called again with the same data and settings, an interrupted training goes on.

    Raises
    ------
    TrainingDataError
        There are no training clips.
    TrainingFailedError
        The loss is not finite, or the output cannot be written.
    """
    import torch

    from site_agent.networks import from_module, new_network, to_module
    from site_agent.training.gaze.loop import TrainingState, repeatable

    settings = settings or SaliencySettings()
    output = Path(output)
    temporary, started_utc, started_s = temporary_beside(output), utc_now(), time.monotonic()
    samples = read_clips(dataset, settings, part_of(progress, 0.0, _READING_SHARE))
    training, validation = samples.of("train"), samples.of("validation")
    if len(training) < 1:
        raise TrainingDataError(dataset.path, [(0, "found no training clips, expected at least 1")])
    module = to_module(new_network(settings.architecture, settings.seed))
    optimiser = torch.optim.AdamW(
        module.parameters(), lr=settings.learning_rate, weight_decay=settings.weight_decay
    )
    generator = torch.Generator().manual_seed(settings.seed)
    state = TrainingState(module, optimiser, generator)
    plain: dict[str, Any] = json.loads(json.dumps(asdict(settings)))
    key = hashlib.sha256(json.dumps([plain, dataset.digest], sort_keys=True).encode()).hexdigest()
    checkpoint = output.with_name(f".{output.name}.checkpoint")
    resumed_at = state.epoch if state.load(checkpoint, key) else 0
    tensors = to_tensors(training)
    report = part_of(progress, _READING_SHARE, 1.0)
    with repeatable(torch.get_num_threads()):
        while state.epoch < settings.epochs:
            _one_epoch(state, tensors, validation, settings, report)
            state.save(checkpoint, key)
        module.load_state_dict(state.best)
        scores = evaluate_saliency(module, samples) if len(samples.of("test")) else None
    try:
        write_model(from_module(module, settings.architecture), temporary)
        record = TrainingRecord(
            kind="network",
            model_file=output.name,
            model_digest=file_digest(temporary),
            model_bytes=temporary.stat().st_size,
            data=DataSummary(
                digest=dataset.digest,
                images=int(training.kind.size),
                persons=len(set(training.person.tolist())),
            ),
            settings=plain,
            details={
                "architecture": settings.architecture,
                "device": "cpu",
                "epochs": state.epoch,
                "resumed_at_epoch": resumed_at,
                "best_epoch": state.best_epoch,
                "losses": state.losses,
                "test_scores": _plain_scores(scores),
            },
            training_scores={},
            versions=program_versions(torch=str(torch.__version__)),
            started_utc=started_utc,
            duration_s=round(time.monotonic() - started_s, 3),
            peak_memory_bytes=resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024,
        )
        result = publish(temporary, output, record)
    finally:
        temporary.unlink(missing_ok=True)
    checkpoint.unlink(missing_ok=True)
    return result, scores


def _one_epoch(
    state: Any,
    tensors: SaliencyTensors,
    validation: ClipSamples,
    settings: SaliencySettings,
    report: Progress,
) -> None:
    done = state.epoch / settings.epochs
    span = settings.learning_rate - _LOWEST_RATE
    for group in state.optimiser.param_groups:
        group["lr"] = _LOWEST_RATE + span * (1 + math.cos(math.pi * done)) / 2
    words = f"epoch {state.epoch + 1} of {settings.epochs}"
    loss = train_epoch(
        state.module, state.optimiser, tensors, settings.batch_size, state.generator,
        loss=settings.loss,
        progress=lambda share: report(done + share / settings.epochs, words),
    )  # fmt: skip
    state.epoch += 1
    if not np.isfinite(loss):
        raise TrainingFailedError(
            f"the loss is {loss} in epoch {state.epoch}: lower the learning rate "
            f"({settings.learning_rate:g})"
        )
    state.losses.append(loss)
    fixed = validation.kind == FIXATION
    if fixed.any():
        maps = predict_maps(state.module, validation.frames)[fixed]
        scores = summarise_frames(score_maps(maps, validation.gaze[fixed]))
        state.errors_deg.append(-scores.f1)
    # The smaller the better: the negative F1.
    if not fixed.any() or state.errors_deg[-1] < min(state.errors_deg[:-1], default=math.inf):
        state.keep_network()


def _plain_scores(found: SaliencyEvaluation | None) -> dict[str, Any]:
    if found is None:
        return {}
    return {
        name: asdict(each) | {"f1_interval": list(found.intervals[name])}
        for name, each in found.scores.items()
    }


def score_rows(found: SaliencyEvaluation) -> Sequence[Sequence[str]]:
    """Return the rows of a table of scores, the network first."""
    return [
        [
            name, f"{each.f1:.3f}", "{:.3f}-{:.3f}".format(*found.intervals[name]),
            f"{each.recall:.3f}", f"{each.precision:.3f}", f"{each.aae_deg:.1f}", f"{each.auc:.3f}",
        ]
        for name, each in found.scores.items()
    ]  # fmt: skip
