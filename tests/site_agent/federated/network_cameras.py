"""Bases of gaze-lenet that photograph what they are trained on, and what is read from updates.

All let the convolutions pass pictures on, and set up the first dense layer to sort them.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal

import numpy as np
import torch
from torch import nn
from torch.nn import functional

from aggregators.models import StateDict
from site_agent.datasets.gaze import GazeSamples
from site_agent.networks import from_module, new_network, to_module
from site_agent.training.gaze.loop import to_tensors

Kind = Literal["imprint", "alternating", "hidden", "convolutional"]
KINDS: tuple[Kind, ...] = ("imprint", "alternating", "hidden", "convolutional")

_UNITS, _HIDDEN = 500, 20


def build_network_camera(
    kind: Kind, public: GazeSamples, *, seed: int = 0, noise: float = 0.0
) -> StateDict:
    """Make a camera whose thresholds suit public pictures.

    Parameters
    ----------
    kind : str
        ``imprint``: all rows measure the same, with graded thresholds (Fowl et al. 2022).
        ``alternating``: the same with alternating signs. ``hidden``: 20 such rows, close to each
        other, among rows as torch draws them. ``convolutional``: the sorting is left to chance;
        each row has a threshold that few pictures pass (Boenisch et al. 2021).
    noise : float
        Added to equal rows, of their size, to make them look different.
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
        features = features_of(module, public)
        size = features.shape[1]
        if kind == "convolutional":
            for unit in range(_UNITS):
                row = _measurement(draw, size)
                module.fc1.weight[unit] = row
                module.fc1.bias[unit] = -torch.quantile(features @ row, 0.995)
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
    """Return what the first dense layer gets: shape (samples, 3600)."""
    with torch.no_grad():
        x = functional.max_pool2d(module.conv1(to_tensors(samples).patches), 2)
        x = functional.max_pool2d(module.conv2(x), 2)
    return x.flatten(1)


def first_gradient(base: StateDict, samples: GazeSamples) -> dict[str, np.ndarray[Any, Any]]:
    """Return the update of one step on all samples: what a starter could ask for."""
    module: nn.Module = to_module(base)
    data = to_tensors(samples)
    functional.l1_loss(module(data.patches, data.head), data.gaze).backward()  # type: ignore[no-untyped-call]
    return {
        name: -value.grad.numpy()
        for name, value in module.named_parameters()
        if value.grad is not None
    }


def read_pictures(
    base: StateDict, update: Mapping[str, Any], samples: GazeSamples, gain_db: float = 10.0
) -> dict[int, float]:
    """Return which samples an update shows, with by how many dB they are nearer than the mean.

    Every row is read by itself, and, where rows measure the same, every difference of rows whose
    thresholds are at most three apart. Whoever knows the samples chooses the nearest.
    """
    module: Any = to_module(base)
    weight = torch.from_numpy(np.asarray(update["fc1.weight"])).double()
    bias = torch.from_numpy(np.asarray(update["fc1.bias"])).double()
    rows = [weight[unit] / bias[unit] for unit in range(_UNITS) if abs(float(bias[unit])) > 1e-12]
    own = module.fc1.weight.detach().double()
    unit_rows = own / own.norm(dim=1, keepdim=True).clamp(min=1e-12)
    cosines = unit_rows @ unit_rows.T
    thresholds = -module.fc1.bias.detach().double() / own.norm(dim=1).clamp(min=1e-12)
    left = set(range(_UNITS))
    while left:
        first = min(left)
        group = [unit for unit in left if abs(float(cosines[first, unit])) > 0.5]
        left -= {first, *group}
        group.sort(key=lambda u: float(thresholds[u]) * (1 if cosines[first, u] > 0 else -1))
        for apart in (1, 2, 3):
            for one, other in zip(group, group[apart:], strict=False):
                for sign in (1, -1):
                    below = float(bias[one] - sign * bias[other])
                    if abs(below) > 1e-12:
                        rows.append((weight[one] - sign * weight[other]) / below)
    if not rows:
        return {}
    inputs = features_of(module, samples).double()
    typical = (inputs - inputs.mean(0)).square().sum(1)
    found: dict[int, float] = {}
    for some in torch.stack(rows).split(500):
        squares = some.square().sum(1, keepdim=True) - 2 * some @ inputs.T + inputs.square().sum(1)
        gain, which = (10 * torch.log10(typical / squares.clamp(min=1e-12))).max(dim=1)
        for value, sample in zip(gain.tolist(), which.tolist(), strict=True):
            if value > gain_db:
                found[sample] = max(found.get(sample, 0.0), value)
    return found


def _measurement(draw: np.random.Generator, size: int) -> torch.Tensor:
    return torch.from_numpy((draw.normal(size=size) / size**0.5).astype(np.float32))
