"""Bases of gaze-lenet that photograph their training data, and pictures read from updates.

All let the convolutions pass pictures on, and set up the first dense layer to sort them.
"""

from __future__ import annotations

from typing import Any, Literal

import numpy as np
import torch
from torch import nn
from torch.nn import functional

from aggregators.models import StateDict
from site_agent.datasets.gaze.records import GazeSamples
from site_agent.networks.modules import from_module, new_network, to_module
from site_agent.training.gaze.loop import to_tensors

Kind = Literal["imprint", "alternating", "hidden", "convolutional", "decoy"]
KINDS: tuple[Kind, ...] = ("imprint", "alternating", "hidden", "convolutional", "decoy")

_UNITS, _HIDDEN = 500, 20
_DEAD_CHANNELS = slice(40, 50)


def build_network_camera(
    kind: Kind, public: GazeSamples, *, seed: int = 0, noise: float = 0.0, level: float = 0.995
) -> StateDict:
    """Make a camera with thresholds that suit public pictures.

    Parameters
    ----------
    kind : str
        ``imprint``: all rows measure the same, with graded thresholds (Fowl et al. 2022).
        ``alternating``: the same with alternating signs. ``hidden``: 20 such rows, close to each
        other, among rows as torch draws them. ``convolutional``: the sorting is left to chance;
        each row has a threshold that few pictures pass (Boenisch et al. 2021). ``decoy``: as
        ``imprint``, with weights on inputs that are always zero, which hide that all rows measure
        the same; rows below the median measure with the other sign, so that none rests on few.
    noise : float
        Added to equal rows, of their size, to make them look different.
    level : float
        Of ``convolutional``: the share of public pictures that do not pass a threshold.
    """
    module: Any = to_module(new_network("gaze-lenet", seed))
    draw = np.random.default_rng(seed)
    with torch.no_grad():
        for layer in (module.conv1, module.conv2):
            layer.weight.zero_()
            layer.bias.zero_()
        module.conv1.weight[:, 0, 2, 2] = 1
        for channel in range(50):
            row, column = divmod(channel // 2, 5)
            module.conv2.weight[channel, 0, row, column] = 1 - 2 * (channel % 2)
        if kind == "decoy":
            module.conv2.weight[_DEAD_CHANNELS] = 0
        features = features_of(module, public)
        size = features.shape[1]
        if kind == "convolutional":
            for unit in range(_UNITS):
                row = _measurement(draw, size)
                module.fc1.weight[unit] = row
                module.fc1.bias[unit] = -torch.quantile(features @ row, level)
        elif kind == "decoy":
            row = _measurement(draw, size)
            dead = size // 50 * _DEAD_CHANNELS.start
            row[dead:] = 0
            thresholds = torch.quantile(features @ row, torch.linspace(0.001, 0.999, _UNITS))
            for unit, threshold in enumerate(thresholds):
                sign = 1 if unit < _UNITS // 2 else -1
                module.fc1.weight[unit] = sign * row
                module.fc1.weight[unit, dead:] = 10 * _measurement(draw, size)[dead:]
                module.fc1.bias[unit] = -sign * threshold
            # Blocks of either sign cancel, so that the outputs stay small.
            blocks = torch.where(torch.arange(_UNITS) // 10 % 2 == 0, 0.05, -0.05)
            module.fc2.weight[:, :_UNITS] = blocks
            module.fc2.bias[:] = 5
        else:
            few = kind == "hidden"
            units = draw.choice(_UNITS, _HIDDEN, replace=False) if few else np.arange(_UNITS)
            spread = (0.5, 0.5 + _HIDDEN / _UNITS) if few else (0.001, 0.999)
            row = _measurement(draw, size)
            levels = torch.linspace(*spread, len(units))
            thresholds = torch.quantile(features @ row, levels)
            for number, unit in enumerate(units):
                sign = -1 if kind == "alternating" and number % 2 else 1
                other = noise * _measurement(draw, size)
                module.fc1.weight[unit] = sign * (row + other)
                module.fc1.bias[unit] = -sign * thresholds[number]
            module.fc2.weight[:, torch.from_numpy(units)] = 0.02
    return from_module(module, "gaze-lenet")


def features_of(module: Any, samples: GazeSamples) -> torch.Tensor:
    """Return the input of the first dense layer: shape (samples, 3600)."""
    with torch.no_grad():
        x = functional.max_pool2d(module.conv1(to_tensors(samples).patches), 2)
        x = functional.max_pool2d(module.conv2(x), 2)
    return x.flatten(1)


def first_gradient(base: StateDict, samples: GazeSamples) -> dict[str, np.ndarray[Any, Any]]:
    """Return the update of one step on all samples, as a starter could request it."""
    module: nn.Module = to_module(base)
    data = to_tensors(samples)
    functional.l1_loss(module(data.patches, data.head), data.gaze).backward()  # type: ignore[no-untyped-call]
    return {
        name: -value.grad.numpy()
        for name, value in module.named_parameters()
        if value.grad is not None
    }


def _measurement(draw: np.random.Generator, size: int) -> torch.Tensor:
    return torch.from_numpy((draw.normal(size=size) / size**0.5).astype(np.float32))


def read_neighbours(
    base: StateDict, update: dict[str, np.ndarray[Any, Any]], samples: GazeSamples
) -> dict[int, float]:
    """Return by sample how many dB nearer than their mean the differences of rows come to it.

    The rows of a ``decoy`` camera, in the order of their thresholds; readings above 10 dB.
    """
    weight, bias = (torch.from_numpy(update[f"fc1.{name}"]).double() for name in ("weight", "bias"))
    inputs = features_of(to_module(base), samples).double()
    typical = (inputs - inputs.mean(0)).square().sum(1)
    readings: dict[int, float] = {}
    for apart in (1, 2, 3):
        differences, sizes = weight[apart:] - weight[:-apart], bias[apart:] - bias[:-apart]
        usable = sizes.abs() > 1e-9
        rows = differences[usable] / sizes[usable, None]
        if not len(rows):
            continue
        gains = 10 * torch.log10(typical / torch.cdist(rows, inputs).square().clamp(min=1e-12))
        for gain, sample in zip(*gains.max(dim=1), strict=True):
            if gain > 10:
                readings[int(sample)] = max(float(gain), readings.get(int(sample), 0.0))
    return readings
