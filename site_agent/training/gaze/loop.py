"""The loop that all trainings of gaze networks share: SGD over shuffled batches."""

import math
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal, Protocol, Unpack, cast

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn
from torch.nn import functional

from aggregators.whole_file import whole_file
from site_agent.datasets.gaze.records import GazeSamples
from site_agent.errors import TrainingFailedError
from site_agent.networks.modules import to_inputs
from site_agent.networks.views import GRID_CHANNEL
from site_agent.training.steps import StepHooks, take_steps
from site_agent.work import Progress
from site_agent.work.steps import digest_of

# How much the contrast curve changes, of what the gradient does.
_CURVE_SHARE = 0.25


@dataclass(frozen=True)
class GazeTensors:
    """Samples as a network takes them.

    `patches`, float32 of shape (n, channels, height, width); large ones are `ScaledOnUse`. `head`
    and `gaze`, float32 of shape (n, 2).
    """

    patches: torch.Tensor
    head: torch.Tensor
    gaze: torch.Tensor

    def __len__(self) -> int:
        return len(self.patches)

    def inputs(self, index: torch.Tensor) -> tuple[torch.Tensor, ...]:
        """Return the input of a network for some samples."""
        return (self.patches[index], self.head[index])


class ScaledOnUse:
    """Pictures that are scaled for each step: a site's faces as float32 need four times the memory.

    It is indexed as the tensor that it stands for.
    """

    def __init__(self, pictures: NDArray[np.uint8], device: str) -> None:
        self._pictures, self.device = pictures, torch.device(device)

    def __len__(self) -> int:
        return len(self._pictures)

    def __getitem__(self, index: Any) -> torch.Tensor:
        rows = index.cpu().numpy() if isinstance(index, torch.Tensor) else index
        return to_inputs(self._pictures[rows]).to(self.device)


def to_tensors(samples: GazeSamples, device: str = "cpu") -> GazeTensors:
    """Return samples as tensors on a device."""
    if samples.patches.ndim > 3:
        pictures = cast("torch.Tensor", ScaledOnUse(samples.patches, device))
    else:
        pictures = to_inputs(samples.patches).to(device)
    return GazeTensors(
        pictures,
        torch.from_numpy(samples.head.astype(np.float32)).to(device),
        torch.from_numpy(samples.gaze.astype(np.float32)).to(device),
    )


def sgd(
    module: nn.Module, learning_rate: float, momentum: float, weight_decay: float
) -> torch.optim.SGD:
    """Return SGD, with Nesterov's momentum unless it is 0."""
    return torch.optim.SGD(
        module.parameters(),
        lr=learning_rate,
        momentum=momentum,
        weight_decay=weight_decay,
        nesterov=momentum > 0,
    )


def make_optimiser(
    name: Literal["adam", "adamw", "sgd"],
    module: nn.Module,
    learning_rate: float,
    momentum: float,
    weight_decay: float,
) -> torch.optim.Optimizer:
    """Return Adam, AdamW, or `sgd`; only the latter has the momentum."""
    if name == "sgd":
        return sgd(module, learning_rate, momentum, weight_decay)
    kind = torch.optim.AdamW if name == "adamw" else torch.optim.Adam
    return kind(module.parameters(), lr=learning_rate, weight_decay=weight_decay)


def train_epoch(
    module: nn.Module,
    optimiser: torch.optim.Optimizer,
    data: GazeTensors,
    batch_size: int,
    generator: torch.Generator,
    *,
    shift_px: int = 0,
    light: float = 0.0,
    mixed_precision: bool = False,
    **hooks: Unpack[StepHooks],
) -> float:
    """Train once on all samples, and return the mean loss.

    The loss is the mean absolute difference of both numbers, of yaw and pitch in radians.

    Parameters
    ----------
    generator : torch.Generator
        On the CPU; it orders the samples, and shifts and relights them.
    shift_px : int
        Each patch is shifted by at most this many pixels in both directions, as if the corners of
        the eyes were found not quite exactly.
    light : float
        Each patch gets a gradient of brightness and another contrast curve, at random with this
        standard deviation, in units of the patch's own; 0: none.
    mixed_precision : bool
        Compute the network in bfloat16.
    """
    device = data.patches.device
    order = torch.randperm(len(data), generator=generator).to(device)

    def loss_of(batch: torch.Tensor) -> torch.Tensor:
        patches = random_view(data.patches[batch], shift_px, light, generator)
        with torch.autocast(device.type, torch.bfloat16, enabled=mixed_precision):
            output = module(patches, data.head[batch])
        return functional.l1_loss(output.float(), data.gaze[batch])

    return take_steps(module, optimiser, [*batches(order, batch_size)], loss_of, **hooks)


@contextmanager
def repeatable(threads: int = 1) -> Iterator[None]:
    """Make results of torch in the block depend only on inputs and the number of threads."""
    before_threads = torch.get_num_threads()
    before = torch.get_deterministic_debug_mode()
    filled = torch.utils.deterministic.fill_uninitialized_memory  # type: ignore[attr-defined]
    torch.set_num_threads(threads)
    # `use_deterministic_algorithms` would load torch's compiler as well.
    torch.set_deterministic_debug_mode("error")
    # It takes time, and no operation of ours reads what it has not written.
    torch.utils.deterministic.fill_uninitialized_memory = False  # type: ignore[attr-defined]
    try:
        yield
    finally:
        torch.utils.deterministic.fill_uninitialized_memory = filled  # type: ignore[attr-defined]
        torch.set_deterministic_debug_mode(before)
        torch.set_num_threads(before_threads)


def batches(order: torch.Tensor, size: int) -> Iterator[torch.Tensor]:
    """Yield the numbers of the samples of each step, shape (size,) or less.

    A last batch of one sample joins the batch before, because BatchNorm needs two.
    """
    parts = list(torch.split(order, size))
    if len(parts) > 1 and len(parts[-1]) == 1:
        parts[-2:] = [torch.cat(parts[-2:])]
    yield from parts


def random_view(
    patches: torch.Tensor, shift_px: int, light: float, generator: torch.Generator
) -> torch.Tensor:
    """Shift and relight patches; see `train_epoch`."""
    if shift_px:
        patches = _shifted(patches, shift_px, generator)
    return _relit(patches, light, generator) if light else patches


def _shifted(patches: torch.Tensor, most: int, generator: torch.Generator) -> torch.Tensor:
    """Shift each patch by its own number of pixels; edges are repeated."""
    count, _, height, width = patches.shape
    by = torch.randint(0, 2 * most + 1, (2, count, 1), generator=generator).to(patches.device)
    rows = torch.arange(height, device=patches.device) + by[0]
    columns = torch.arange(width, device=patches.device) + by[1]
    larger = functional.pad(patches, (most, most, most, most), mode="replicate").transpose(0, 1)
    image_index = torch.arange(count, device=patches.device)[:, None, None]
    return larger[:, image_index, rows[:, :, None], columns[:, None, :]].transpose(0, 1)


def _relit(patches: torch.Tensor, deviation: float, generator: torch.Generator) -> torch.Tensor:
    """Light each patch from another side, and change its middle tones; a face grid has no light."""
    count, _, height, width = patches.shape
    drawn = deviation * torch.randn((3, count, 1, 1, 1), generator=generator)
    across, down, curve = drawn.to(patches.device)
    x = torch.linspace(-1, 1, width, device=patches.device)
    y = torch.linspace(-1, 1, height, device=patches.device)[:, None]
    lit = patches[:, :GRID_CHANNEL]
    curved = _CURVE_SHARE * curve * (lit.square() - 1)
    relit: torch.Tensor = lit + across * x + down * y + curved
    return torch.cat([relit, patches[:, GRID_CHANNEL:]], dim=1)


class EpochSettings(Protocol):
    """The settings that all trainings in epochs have."""

    @property
    def epochs(self) -> int: ...

    @property
    def learning_rate(self) -> float: ...


@dataclass
class TrainingState:
    """The state of a training, which changes from epoch to epoch."""

    module: nn.Module
    optimiser: torch.optim.Optimizer
    generator: torch.Generator
    epoch: int = 0
    """Number of finished epochs."""
    best: dict[str, torch.Tensor] = field(default_factory=dict)
    """Parameters and buffers of the network that is kept: that of the smallest validation error, or
    the last one without validation."""
    best_epoch: int = 0
    errors_deg: list[float] = field(default_factory=list)
    """Validation error after each epoch; empty without validation."""
    losses: list[float] = field(default_factory=list)

    def keep_network(self) -> None:
        """Keep the network as it is now."""
        self.best = {name: value.clone() for name, value in self.module.state_dict().items()}
        self.best_epoch = self.epoch

    def save(self, path: Path, key: str) -> None:
        """Write the state of the training that `key` names."""
        content: dict[str, Any] = {
            "key": key,
            "module": self.module.state_dict(),
            "optimiser": self.optimiser.state_dict(),
            "generator": self.generator.get_state(),
            **{name: getattr(self, name) for name in _PLAIN},
        }
        with whole_file(path) as file:
            torch.save(content, file)

    def load(self, path: Path, key: str) -> bool:
        """Go on from a file, if it is of the training that `key` names."""
        if not path.is_file():
            return False
        content = torch.load(path, map_location="cpu", weights_only=True)
        if content["key"] != key:
            return False
        self.module.load_state_dict(content["module"])
        self.optimiser.load_state_dict(content["optimiser"])
        self.generator.set_state(content["generator"])
        for name in _PLAIN:
            setattr(self, name, content[name])
        return True


_PLAIN = ("epoch", "best", "best_epoch", "errors_deg", "losses")


def checkpoint_path(output: Path) -> Path:
    """Where an unfinished training keeps its state."""
    return output.with_name(f".{output.name}.checkpoint")


def train_epochs(
    state: TrainingState,
    settings: EpochSettings,
    checkpoint: tuple[Path, Sequence[Any]],
    train: Callable[[Callable[[float], None]], float],
    score: Callable[[], float | None] = lambda: None,
    *,
    progress: Progress,
    lowest_rate: float = 0.0,
    patience: int | None = None,
) -> int:
    """Train epoch after epoch; the learning rate falls along half a cosine.

    Returns the epoch after which it went on, 0 where it began.

    Parameters
    ----------
    checkpoint : path and plain data
        Where the state is kept, and all that the result depends on: an interrupted training goes
        on where these are the same.
    train : callable
        Trains once on all data, reports its progress, and returns the mean loss.
    score : callable
        Returns the validation error; the network with the smallest is kept. None: the last one is.
    patience : int, optional
        Epochs without a smaller error after which the training ends.

    Raises `TrainingFailedError`: the loss is not finite.
    """
    path, parts = checkpoint
    key = digest_of(parts)
    resumed_at = state.epoch if state.load(path, key) else 0
    epochs, rate = settings.epochs, settings.learning_rate
    while state.epoch < epochs:
        if patience and state.errors_deg and state.epoch - state.best_epoch >= patience:
            break
        completed = state.epoch / epochs
        for group in state.optimiser.param_groups:
            share = (1 + math.cos(math.pi * completed)) / 2
            group["lr"] = lowest_rate + (rate - lowest_rate) * share
        text = f"epoch {state.epoch + 1} of {epochs}"
        if patience and state.errors_deg:
            text += f", validation error {min(state.errors_deg):.2f}"
        loss = train(lambda share: progress(completed + share / epochs, text))  # noqa: B023 - at once
        state.epoch += 1
        if not math.isfinite(loss):
            raise TrainingFailedError(
                f"the loss is {loss} in epoch {state.epoch}: lower the learning rate ({rate:g})"
            )
        state.losses.append(loss)
        error = score()
        if error is not None:
            state.errors_deg.append(error)
        if error is None or error < min(state.errors_deg[:-1], default=math.inf):
            state.keep_network()
        state.save(path, key)
    return resumed_at
