"""Bases of gaze-lenet that photograph their training data, and pictures read from updates.

All let the convolutions pass pictures on, and set up the first dense layer to sort them.
"""

from collections.abc import Mapping
from typing import Any, Literal

import numpy as np
import torch
from torch import nn
from torch.nn import functional

from aggregators.models import StateDict
from site_agent.datasets.gaze.records import GazeSamples
from site_agent.federated.leak_checks import LayerInputs
from site_agent.federated.tasks import task_of_network
from site_agent.networks.gaze_modules import GAZE_SIZE
from site_agent.networks.modules import from_module, new_network, to_module
from site_agent.training.gaze.loop import to_tensors

Kind = Literal[
    "imprint", "alternating", "hidden", "convolutional", "decoy", "off the span", "filters"
]
KINDS: tuple[Kind, ...] = ("imprint", "alternating", "hidden", "convolutional", "decoy")
PASSING: tuple[Kind, ...] = ("off the span", "filters")
"""Kinds that the audit of bases does not notice."""

_UNITS, _HIDDEN = 500, 20
_DEAD_CHANNELS = slice(40, 50)
_FILTERS, _PLACE = 25, (3, 6)


_LEVEL = 0.995
"""Share of public pictures that do not pass a threshold of ``convolutional`` and ``filters``."""


def build_network_camera(kind: Kind, public: GazeSamples) -> StateDict:
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
        ``off the span``: such weights are orthogonal to the public pictures instead. ``filters``:
        each of 25 units looks at one place of one filter, which then gets the gradients of the few
        pictures beyond the unit's threshold; the other units are as torch draws them.
    """
    module: Any = to_module(new_network("gaze-lenet"))
    draw = np.random.default_rng(0)
    if kind == "filters":
        return _filter_camera(module, public, draw)
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
                module.fc1.bias[unit] = -torch.quantile(features @ row, _LEVEL)
        elif kind in {"decoy", "off the span"}:
            row = _measurement(draw, size)
            dead = size // 50 * _DEAD_CHANNELS.start
            if kind == "decoy":
                row[dead:] = 0
            basis = torch.linalg.qr(features.T).Q
            thresholds = torch.quantile(features @ row, torch.linspace(0.001, 0.999, _UNITS))
            for unit, threshold in enumerate(thresholds):
                sign = 1 if unit < _UNITS // 2 else -1
                module.fc1.weight[unit] = sign * row
                hiding = _measurement(draw, size)
                if kind == "decoy":
                    module.fc1.weight[unit, dead:] = 10 * hiding[dead:]
                else:
                    module.fc1.weight[unit] += 1.5 * (hiding - basis @ (basis.T @ hiding))
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
                module.fc1.weight[unit] = sign * row
                module.fc1.bias[unit] = -sign * thresholds[number]
            module.fc2.weight[:, torch.from_numpy(units)] = 0.02
    return from_module(module, "gaze-lenet")


def _filter_camera(module: Any, public: GazeSamples, draw: np.random.Generator) -> StateDict:
    with torch.no_grad():
        module.conv1.weight.zero_()
        module.conv1.bias.zero_()
        module.conv1.weight[0, 0, 2, 2] = 1
        module.conv1.weight[1, 0, 2, 2] = -1
        place = _PLACE[0] * 12 + _PLACE[1]
        module.fc1.weight[_FILTERS:, : _FILTERS * 72] = 0
        module.fc1.weight[:_FILTERS] = 0
        for unit in range(_FILTERS):
            # Brightness alone would make all filters answer alike.
            kernel = draw.normal(size=(2, 5, 5))
            kernel -= kernel.mean(axis=(1, 2), keepdims=True)
            module.conv2.weight[unit] = 0
            module.conv2.weight[unit, :2] = torch.from_numpy(kernel / 10)
            module.conv2.bias[unit] = 0
            module.fc1.weight[unit, unit * 72 + place] = 1
        answers = features_of(module, public)[:, place : _FILTERS * 72 : 72]
        module.fc1.bias[:_FILTERS] = -torch.quantile(answers, _LEVEL, dim=0)
        module.fc2.weight[:, :_FILTERS] = 0.05
    return from_module(module, "gaze-lenet")


def read_filters(
    base: StateDict, update: dict[str, np.ndarray[Any, Any]], samples: GazeSamples
) -> dict[int, tuple[float, np.ndarray[Any, Any]]]:
    """Return by sample the clearest patch of it that a filter of a ``filters`` camera shows.

    Returns dict of int to (gain in dB over the mean patch, patch of 5 x 5 pooled pixels).
    """
    module: Any = to_module(base)
    with torch.no_grad():
        pooled = functional.max_pool2d(module.conv1(to_tensors(samples).patches)[:, :2], 2)
    # Pooling leaves each filter the best of four neighbouring places.
    row, column = (2 * at for at in _PLACE)
    patches = torch.stack(
        [
            pooled[:, :, row + y : row + y + 5, column + x : column + x + 5]
            for y in (0, 1)
            for x in (0, 1)
        ],
        dim=1,
    ).flatten(2)
    typical = (patches - patches.mean((0, 1))).square().sum(2)
    readings: dict[int, tuple[float, np.ndarray[Any, Any]]] = {}
    for unit in range(_FILTERS):
        size = float(update["conv2.bias"][unit])
        if abs(size) < 1e-12:
            continue
        seen = torch.from_numpy(update["conv2.weight"][unit, :2] / size).flatten()
        gains = 10 * torch.log10(typical / (patches - seen).square().sum(2).clamp(min=1e-12))
        gain, sample = gains.max(dim=1).values.max(dim=0)
        if gain > max(10, readings.get(int(sample), (0.0,))[0]):
            readings[int(sample)] = float(gain), seen.numpy()
    return readings


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


_GROWN, _PIXELS = 8, 40
CODE_ROWS = np.arange(_GROWN * _PIXELS).reshape(_GROWN, _PIXELS).T.ravel()
"""Rows of the decoder in the order of a code camera's thresholds."""


def build_code_camera(public: GazeSamples) -> StateDict:
    """Make a cross-encoder with a decoder that sorts eyes by a sum of their features.

    A leaky ReLU behind the first 320 rows is the threshold: it draws from nothing else, and
    too brightly everywhere, so that all gradients of a pixel are equal. The rows have decoys on the
    gaze features, which the encoder makes the same for all eyes.
    """
    module: Any = to_module(new_network("cross-encoder-small"))
    decoder, draw = module.decoder, np.random.default_rng(0)
    with torch.no_grad():
        module.encoder.fc.weight[:GAZE_SIZE] = 0
        codes = torch.cat(module.encode(to_tensors(public).patches), dim=1)
        row = torch.zeros(codes.shape[1])
        row[GAZE_SIZE:] = _measurement(draw, codes.shape[1] - GAZE_SIZE)
        levels = torch.linspace(0.001, 0.999, len(CODE_ROWS))
        thresholds = torch.quantile(codes @ row, levels)
        for unit, threshold in zip(CODE_ROWS, thresholds, strict=True):
            hidden = 3 * _measurement(draw, GAZE_SIZE)
            decoder.fc.weight[unit] = row
            decoder.fc.weight[unit, :GAZE_SIZE] = hidden
            decoder.fc.bias[unit] = -threshold - codes[0, :GAZE_SIZE] @ hidden
        for layer in [*decoder.reductions, decoder.last, *decoder.blocks.modules()]:
            if isinstance(layer, nn.Conv2d):
                layer.weight.zero_()
                layer.bias.zero_()
        for channel in range(_GROWN):
            decoder.blocks[0].convolutions[0].weight[channel, channel, 1, 1] = 1
        decoder.reductions[0].weight[:, -_GROWN:] = 0.1
        for reduction in decoder.reductions[1:]:
            reduction.weight.fill_(0.05)
        decoder.last.weight[:, :, 1, 1] = 0.05
        decoder.last.bias.fill_(5)
    return from_module(module, "cross-encoder-small")


def read_neighbours(
    base: StateDict,
    update: Mapping[str, Any],
    samples: Any,
    layer: str = "fc1",
    order: Any = slice(None),
) -> dict[int, tuple[float, Any]]:
    """Return by input of a dense layer the clearest reading, of rows and neighbours' differences.

    `order`: Rows in the order of their thresholds.

    Returns dict of int to (dB nearer than the mean of the inputs, above 10; reading).
    """
    module, data = to_module(base), task_of_network(base).to_tensors(samples)
    seen = LayerInputs(module)
    with torch.no_grad():
        seen.run(module, tuple(data.inputs(torch.arange(len(data)))))
    weight, bias = (
        torch.from_numpy(update[f"{layer}.{name}"]).double() for name in ("weight", "bias")
    )
    inputs = seen.of[layer].double()
    typical = (inputs - inputs.mean(0)).square().sum(1)
    readings: dict[int, tuple[float, Any]] = {}
    for apart in (0, 1, 2, 3):
        differences, sizes = weight, bias
        if apart:
            differences, sizes = weight[apart:] - weight[:-apart], bias[apart:] - bias[:-apart]
        usable = sizes.abs() > 1e-9
        rows = differences[usable] / sizes[usable, None]
        if not len(rows):
            continue
        gains = 10 * torch.log10(typical / torch.cdist(rows, inputs).square().clamp(min=1e-12))
        for row, gain, number in zip(rows, *gains.max(dim=1), strict=True):
            if gain > max(10, readings.get(int(number), (0.0,))[0]):
                readings[int(number)] = float(gain), row.float().numpy()
    return readings


def read_statistics(
    base: StateDict, update: Mapping[str, Any], samples: GazeSamples
) -> dict[int, tuple[float, Any]]:
    """Return by sample the reading of the first running means of a ResNet, as `read_neighbours`."""
    module: Any = to_module(base)
    seen: list[torch.Tensor] = []
    module.bn1.register_forward_pre_hook(lambda _layer, inputs: seen.append(inputs[0].mean((2, 3))))
    data = to_tensors(samples)
    with torch.no_grad():
        module(data.patches, data.head)
    inputs, change = seen[0].double(), torch.from_numpy(update["bn1.running_mean"]).double()
    # Of the means so far, each batch leaves nine tenths: the sum of the weights is unknown.
    typical = (inputs - inputs.mean(0)).square().sum(1)
    scale = (inputs @ change) / change.square().sum().clamp(min=1e-30)
    gains = 10 * torch.log10(typical / (scale[:, None] * change - inputs).square().sum(1))
    return {number: (float(gain), change.numpy()) for number, gain in enumerate(gains) if gain > 10}
