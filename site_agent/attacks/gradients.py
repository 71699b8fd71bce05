"""Attacks on an update by the gradients of single samples, and pictures read from its rows.

An update is, to first order, a weighted sum of the gradients of the samples that trained. With a
candidate's picture an attacker can compute its gradient at the base, and ask how much of it is in
the update: alone (alignment) or together with all other candidates (regression, Melis et al. 2019
and "gradient inversion with known candidates"). In an update of one step the regression finds each
member. The row of a dense layer to which one sample contributes *is* that sample's input (Phong et
al. 2018), from which a decoder makes the picture; a base that is a camera does the same for large
batches (Fowl et al. 2022).
"""

from collections.abc import Collection, Mapping
from copy import copy
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch.nn import functional

from site_agent.attacks.leaks import Leak, sum_over_rounds
from site_agent.attacks.separation import Float64
from site_agent.datasets.gaze.records import GazeSamples
from site_agent.federated.leak_checks import dense_layers
from site_agent.networks.modules import from_module, to_inputs, to_module
from site_agent.training.gaze.loop import repeatable, to_tensors

if TYPE_CHECKING:
    from torch import nn

    from aggregators.models import StateDict

_MOST_COORDINATES = 3_000
"""Of each tensor: equations of the regression. The samples are far fewer."""
_RIDGE = 1e-6
GAIN_DB = 10.0
"""How much nearer to a row than to their mean the features of a sample are that count as read."""
_DECODER_STEPS, _MOST_DECODED = 200, 8
_SAME_ROWS, _NEAREST = 0.5, 3


class SampleGradients:
    """Gradients of single samples, at some coordinates of each parameter, for bases as needed."""

    def __init__(self, samples: GazeSamples, seed: int = 0) -> None:
        self._samples, self._seed = samples, seed
        self._known: dict[tuple[int, frozenset[str]], tuple[StateDict, _Table]] = {}
        self._chosen: NDArray[np.bool_] = np.ones(len(samples), dtype=bool)

    def choose(self, index: NDArray[np.bool_]) -> "SampleGradients":
        """Return the gradients of some of all samples, computed only once for both."""
        chosen = copy(self)
        chosen._chosen = index
        return chosen

    def scores(self, leak: Leak) -> dict[str, Float64]:
        """Return how much of each sample's gradient is in the updates of a leak, by attack.

        ``gradient alignment`` is the cosine, ``gradient regression`` the coefficient of the sample
        in the sum of all candidates' gradients that comes nearest to the update; sums over
        rounds, and the highest of all sites: shape (n,). Coordinates that a site has kept back
        (zeros) are left out.
        """
        return sum_over_rounds(
            leak, lambda before, after: self._at(before, after).scores(before, after)
        )

    def _at(self, base: "StateDict", network: "StateDict") -> "_Table":
        moved = frozenset(
            name
            for name, before in base.tensors.items()
            if not np.array_equal(before, network.tensors[name])
        )
        if (id(base), moved) not in self._known:
            table = _compute_table(base, self._samples, moved, self._seed)
            self._known[id(base), moved] = (base, table)
        table = self._known[id(base), moved][1]
        return _Table(table.rows[self._chosen], table.places)


@dataclass(frozen=True, eq=False)
class _Table:
    """Gradients of samples, float32 (n, coordinates), with the places of each parameter."""

    rows: NDArray[np.float32]
    places: Mapping[str, NDArray[np.int64]]

    def scores(self, base: "StateDict", network: "StateDict") -> dict[str, Float64]:
        change = np.concatenate([
            (np.asarray(base.tensors[name]).ravel() - np.asarray(network.tensors[name]).ravel())[at]
            for name, at in self.places.items()
        ])  # fmt: skip
        sent = change != 0
        rows, update = self.rows[:, sent].astype(np.float64), change[sent].astype(np.float64)
        sizes = np.linalg.norm(rows, axis=1) + 1e-30
        inside, products = rows @ update, rows @ rows.T
        ridge = (_RIDGE * np.trace(products) / len(rows) + 1e-30) * np.eye(len(rows))
        return {
            "gradient alignment": inside / sizes / (np.linalg.norm(update) + 1e-30),
            "gradient regression": np.linalg.solve(products + ridge, inside),
        }


def _compute_table(
    base: "StateDict", samples: GazeSamples, moved: Collection[str], seed: int
) -> _Table:
    """Compute the gradients of the parameters that an update has moved, or of all if none moved."""
    module, data = to_module(base).eval(), to_tensors(samples)
    every = dict(module.named_parameters())
    parameters = {name: parameter for name, parameter in every.items() if name in moved} or every
    for name, parameter in every.items():
        parameter.requires_grad_(name in parameters)
    draw = np.random.default_rng(seed)
    places = {
        name: np.sort(
            draw.choice(parameter.numel(), min(parameter.numel(), _MOST_COORDINATES), False)
        )
        for name, parameter in parameters.items()
    }
    at = [torch.from_numpy(index) for index in places.values()]
    rows = np.empty((len(samples), sum(map(len, at))), dtype=np.float32)
    with repeatable():
        for number in range(len(samples)):
            one = slice(number, number + 1)
            loss = functional.l1_loss(module(data.patches[one], data.head[one]), data.gaze[one])
            gradients = torch.autograd.grad(loss, list(parameters.values()))
            parts = [gradient.flatten()[some] for gradient, some in zip(gradients, at, strict=True)]
            rows[number] = torch.cat(parts).numpy()
    return _Table(rows, places)


# Pictures: the inputs of the first dense layer that rows of an update show, and their decoder.


@dataclass(frozen=True, eq=False)
class _DenseLayer:
    """A dense layer of a network and the stages before it."""

    name: str
    module: "nn.Module"

    def features(self, patches: "torch.Tensor") -> "torch.Tensor":
        """Return the layer's inputs, shape (n, inputs); differentiable."""
        seen: list[torch.Tensor] = []
        layer = self.module.get_submodule(self.name)
        hook = layer.register_forward_pre_hook(lambda _layer, inputs: seen.append(inputs[0]))
        try:
            self.module(patches, torch.zeros(len(patches), 2))
        finally:
            hook.remove()
        return seen[0]


def first_dense_layer(base: "StateDict") -> _DenseLayer | None:
    """Return the first dense layer of a network that has 8 units or more; None without one."""
    module = to_module(base).eval().requires_grad_(False)
    layers = dense_layers(module)
    return _DenseLayer(layers[0][0], module) if layers else None


def read_inputs(
    base: "StateDict", update: Mapping[str, Any], samples: GazeSamples, *, camera: bool = True
) -> dict[int, tuple[float, NDArray[np.float32]]]:
    """Return which samples' features an update shows.

    Every row is read by itself. With `camera`, so are the differences of rows that measure the same
    at the base with thresholds at most three apart, and of rows with nearly the same update. The
    nearest reading of each sample is chosen by the true samples, so that an attacker without them
    gets less.

    `update`: Differences by entry of the network.

    Returns
    -------
    dict of int to (float, float32)
        By sample: by how many dB the reading is nearer than the mean of the features, and the
        reading, shape (inputs,).
    """
    layer = first_dense_layer(base)
    if layer is None or len(samples) < 2:
        return {}
    weight = torch.from_numpy(np.asarray(update[f"{layer.name}.weight"])).double()
    bias = torch.from_numpy(np.asarray(update[f"{layer.name}.bias"])).double()
    kept = bias.abs() > 1e-12
    rows = [(weight[kept] / bias[kept, None])]
    if camera:
        rows.append(_differences_of_rows(layer, weight, bias))
    with torch.no_grad():
        inputs = layer.features(to_tensors(samples).patches).double()
    typical = (inputs - inputs.mean(0)).square().sum(1)
    readings: dict[int, tuple[float, NDArray[np.float32]]] = {}
    for some in torch.split(torch.cat(rows), 500):
        squares = some.square().sum(1, keepdim=True) - 2 * some @ inputs.T + inputs.square().sum(1)
        gain, which = (10 * torch.log10(typical / squares.clamp(min=1e-12))).max(dim=1)
        for row, value, sample in zip(some, gain.tolist(), which.tolist(), strict=True):
            if value > max(GAIN_DB, readings.get(sample, (0.0,))[0]):
                readings[sample] = (value, row.float().numpy())
    return readings


def _differences_of_rows(
    layer: _DenseLayer, weight: "torch.Tensor", bias: "torch.Tensor"
) -> "torch.Tensor":
    dense: Any = layer.module.get_submodule(layer.name)
    rows_at_base = dense.weight.detach().double()
    sizes = rows_at_base.norm(dim=1).clamp(min=1e-12)
    cosines = ((rows_at_base / sizes[:, None]) @ (rows_at_base / sizes[:, None]).T).numpy()
    thresholds = (-dense.bias.detach().double() / sizes).numpy()
    pairs = _nearest_in_update(weight, bias)
    left = np.arange(len(rows_at_base))
    while len(left):
        first = left[0]
        alike = np.abs(cosines[first, left]) > _SAME_ROWS
        group, left = left[alike], left[~alike]
        group = group[np.argsort(thresholds[group] * np.sign(cosines[first, group]))]
        for apart in (1, 2, 3):
            neighbours = zip(group.tolist(), group[apart:].tolist(), strict=False)
            pairs |= {(min(pair), max(pair)) for pair in neighbours}
    rows = []
    for one, other in sorted(pairs):
        for sign in (1, -1):
            below = float(bias[one] - sign * bias[other])
            if abs(below) > 1e-12:
                rows.append((weight[one] - sign * weight[other]) / below)
    return torch.stack(rows) if rows else torch.empty(0, weight.shape[1], dtype=torch.float64)


def _nearest_in_update(weight: "torch.Tensor", bias: "torch.Tensor") -> set[tuple[int, int]]:
    """Return pairs of rows with nearly the same update.

    Weights on inputs that are always 0 make rows of a camera look unrelated; their updates, by the
    same samples but few, cannot be.
    """
    rows = torch.cat([weight, bias[:, None]], dim=1)
    alive = torch.nonzero(rows.norm(dim=1) > 1e-12).flatten()
    rows = rows[alive] / rows[alive].norm(dim=1, keepdim=True)
    cosines = (rows @ rows.T).abs().fill_diagonal_(-1)
    nearest = cosines.topk(min(_NEAREST, max(0, len(alive) - 1)), dim=1).indices
    return {
        (min(one, other), max(one, other))
        for one, others in zip(alive.tolist(), alive[nearest].tolist(), strict=True)
        for other in others
    }


def decode_inputs(
    base: "StateDict", features: NDArray[np.float32], start: NDArray[np.uint8]
) -> NDArray[np.float32]:
    """Search for pictures with the given features at the base.

    `features` (float32, shape (n, inputs)). `start` (uint8, shape (36, 60)): The mean of public
    pictures, or of any eyes.

    Returns float32, shape (n, 36, 60): Scaled as networks take them: mean 0, deviation 1.
    """
    layer = first_dense_layer(base)
    assert layer is not None
    target = torch.from_numpy(features)
    scale = target.square().mean(dim=1, keepdim=True).clamp(min=1e-12)
    with repeatable():
        pictures = to_inputs(start[None]).repeat(len(target), 1, 1, 1).requires_grad_()
        optimiser = torch.optim.Adam([pictures], lr=0.05)
        for step in range(_DECODER_STEPS):
            optimiser.param_groups[0]["lr"] = 0.05 * (1 - step / _DECODER_STEPS) + 1e-3
            optimiser.zero_grad()
            apart = ((layer.features(pictures) - target).square() / scale).mean(dim=1).sum()
            rough = sum(
                (pictures.diff(dim=axis).square().mean() for axis in (2, 3)), torch.zeros(())
            )
            (apart + 1e-3 * len(target) * rough).backward()  # type: ignore[no-untyped-call]
            optimiser.step()
    return pictures.detach().numpy()[:, 0]


def decode_pictures(
    base: "StateDict",
    readings: Mapping[int, tuple[float, NDArray[np.float32]]],
    samples: GazeSamples,
) -> dict[int, float]:
    """Return the PSNR in dB of the pictures that the 8 clearest readings give, by sample.

    Light and contrast, which networks do not see, are those of the true picture.
    """
    chosen = sorted(readings, key=lambda sample: -readings[sample][0])[:_MOST_DECODED]
    if not chosen:
        return {}
    mean = samples.patches.mean(axis=0).astype(np.uint8)
    made = decode_inputs(base, np.stack([readings[sample][1] for sample in chosen]), mean)
    ratios = {}
    for sample, picture in zip(chosen, made, strict=True):
        truth = samples.patches[sample].astype(np.float64)
        grey = (picture - picture.mean()) / max(float(picture.std()), 1e-9)
        grey = np.clip(np.round(grey * truth.std() + truth.mean()), 0, 255)
        error = max(float(np.mean(np.square(grey - truth))), 1e-9)
        ratios[sample] = float(10 * np.log10(255**2 / error))
    return ratios


def build_imprint(base: "StateDict", public: GazeSamples, seed: int = 0) -> "StateDict | None":
    """Make a camera of a base: all rows of its first dense layer measure the same (Fowl et al.).

    The thresholds suit public pictures, and the next layer takes all rows alike. It is the
    positive control of reading pictures. None for networks without a dense layer of 8 units.
    """
    layer = first_dense_layer(base)
    if layer is None:
        return None
    module: Any = layer.module
    dense = module.get_submodule(layer.name)
    with torch.no_grad():
        features = layer.features(to_tensors(public).patches)
        draw = np.random.default_rng(seed).normal(size=features.shape[1])
        row = torch.from_numpy((draw / features.shape[1] ** 0.5).astype(np.float32))
        levels = torch.linspace(0.001, 0.999, dense.out_features)
        dense.weight[:] = row
        dense.bias[:] = -torch.quantile(features @ row, levels)
        for name, other in module.named_modules():
            if isinstance(other, torch.nn.Linear) and name != layer.name:
                other.weight[:, : dense.out_features] = 0.02
    return from_module(module, base.metadata["architecture"])
