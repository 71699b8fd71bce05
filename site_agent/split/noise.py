"""Noise on smashed data (PixelDP), with the sensitivity of the layers before it.

The noise is added after pooling. It gives obfuscation and no privacy of images: if the grey levels
of two images differ by ``d`` in sum, their smashed data are epsilon ``d / l`` apart at each
release, and two images of one eye differ by hundreds. So `SmashedNoise.words` states the epsilon
for one pixel and for a whole image, and `signal_to_noise_db` measures the remaining signal.

The noise has one of two scales. ``guaranteed`` is in units of a bound. ``thesis`` (4.4.1) is in
units of the norm of the kernels as a matrix. `Normaliser` holds that at 1, and the server clips the
gradients of its part, so that networks train at levels up to 2. This norm is *not* a bound: windows
overlap, so that a pixel counts in many of them (see tests).

Source: Lecuyer et al. 2019, "Certified Robustness to Adversarial Examples with Differential
Privacy"; the thesis for its scale.
"""

from collections.abc import Callable
from dataclasses import astuple, dataclass
from typing import Any

import torch
from torch import nn
from torch.nn import functional

from aggregators.models import StateDict
from site_agent.errors import InvalidInputError
from site_agent.networks.gaze_modules import StagedNetwork
from site_agent.split.cuts import Cut
from site_agent.split.parts import to_part_module
from site_agent.split.plan import NoiseKind, NoiseScale, SplitPlan

Alter = Callable[[torch.Tensor], torch.Tensor]
"""Alters smashed data before they leave, such as by noise."""

_PATCH = (36, 60)
PIXELS = 36 * 60


@dataclass(frozen=True)
class Sensitivity:
    """By how much smashed data can change when an image changes by 1."""

    l1_to_l1: float
    l1_to_l2: float
    l2_to_l2: float
    """By norms: that of the change of the image, to that of the change of the smashed data."""

    def then(self, after: "Sensitivity") -> "Sensitivity":
        """Return the bounds of two layers, one after the other."""
        return Sensitivity(
            self.l1_to_l1 * after.l1_to_l1,
            # Either norm may be changed by the first layer or by the second.
            min(self.l1_to_l1 * after.l1_to_l2, self.l1_to_l2 * after.l2_to_l2),
            self.l2_to_l2 * after.l2_to_l2,
        )


def sensitivity_of(part: StateDict, cut: Cut) -> Sensitivity:
    """Return the bounds of a client part's layers before the cut.

    ReLU changes no norm, nor does pooling over windows that do not overlap; of neighbouring changes
    it lets through the largest.
    """
    module = to_part_module(part, cut, "client")
    sensitivity = Sensitivity(1.0, 1.0, 1.0)
    shape: tuple[int, ...] = _PATCH
    for stage in cut.front_stages(module.stages):
        for name in stage.layers:
            layer = module.get_submodule(name)
            if not isinstance(layer, nn.Conv2d | nn.Linear):
                raise InvalidInputError(
                    f"{cut.architecture} has {type(layer).__name__} in {name}, "
                    "without a bound on its sensitivity; expected a LeNet"
                )
            sensitivity = sensitivity.then(_sensitivity_of_layer(layer.weight.detach(), shape))
            shape = tuple((side - 4) // 2 for side in shape)
    return sensitivity


def _sensitivity_of_layer(weight: torch.Tensor, shape: tuple[int, ...]) -> Sensitivity:
    if weight.dim() == 4:
        return convolution_sensitivity(weight, shape, pooled=True)
    return dense_sensitivity(weight)


def _effects(weight: torch.Tensor, *, pooled: bool) -> torch.Tensor:
    """Return by how much one pixel can change each output, by its place and its channel.

    Of the effects within one pool, the largest is let through; a pixel has four places in a pool.
    """
    magnitudes = weight.double().abs().transpose(0, 1)
    if not pooled:
        return magnitudes.flatten(1)[None]
    places = [
        functional.max_pool2d(functional.pad(magnitudes, (x, 1, y, 1)), 2)
        for y in (0, 1)
        for x in (0, 1)
    ]
    return torch.stack([place.flatten(1) for place in places])


def convolution_sensitivity(
    weight: torch.Tensor, shape: tuple[int, ...], *, pooled: bool = False
) -> Sensitivity:
    """Return the bounds of a convolution with stride 1.

    `weight` (tensor, shape (outputs, inputs, rows, columns)). `shape`: Height and width of the
    inputs; windows beyond them count for the bound. `pooled`: The largest of 2 x 2 follows.
    """
    effects = _effects(weight, pooled=pooled)
    padded = [side + kernel - 1 for side, kernel in zip(shape, weight.shape[2:], strict=True)]
    # On the padded picture the convolution is circular, and a product for each frequency.
    spectrum = torch.fft.fft2(weight.double(), s=padded).permute(2, 3, 0, 1)
    return Sensitivity(
        float(effects.sum(2).max()),
        float(effects.square().sum(2).sqrt().max()),
        float(torch.linalg.matrix_norm(spectrum, 2).max()),
    )


def dense_sensitivity(weight: torch.Tensor) -> Sensitivity:
    """Return the bounds of a dense layer with weights of shape (outputs, inputs)."""
    matrix = weight.double()
    return Sensitivity(
        float(matrix.abs().sum(0).max()),
        float(matrix.square().sum(0).sqrt().max()),
        float(torch.linalg.matrix_norm(matrix, 2)),
    )


class Normaliser:
    """Holds the layers before the noise where its scale is right.

    ``thesis``: divides their weights by their norm as matrices. ``guaranteed``: the noise is scaled
    for the bounds at the start of a round, and weights shrink back to these when they grow.
    """

    def __init__(self, module: StagedNetwork, plan: SplitPlan) -> None:
        stages = plan.found_cut.front_stages(module.stages) if plan.noise_level else ()
        self._layers: list[Any] = [
            module.get_submodule(name) for stage in stages for name in stage.layers
        ]
        self._kind, self._unit = plan.noise, plan.noise_scale
        self._bounds = [self._norms(layer.weight.detach()) for layer in self._layers]
        self.scale()

    def _norms(self, weight: torch.Tensor) -> tuple[float, ...]:
        if self._unit == "thesis":
            order = 1 if self._kind == "laplace" else 2
            return (float(torch.linalg.matrix_norm(weight.double().flatten(1), order)),)
        if self._kind == "gaussian":
            return astuple(_sensitivity_of_layer(weight, _PATCH))
        if weight.dim() == 4:
            return (float(_effects(weight, pooled=True).sum(2).max()),)
        return (dense_sensitivity(weight).l1_to_l1,)

    def scale(self, *_step: Any) -> None:
        """Scale the layers after a step."""
        for layer, bounds in zip(self._layers, self._bounds, strict=True):
            norms = self._norms(layer.weight.detach())
            grown = norms[0]
            if self._unit == "guaranteed":
                pairs = zip(norms, bounds, strict=True)
                grown = max(norm / max(bound, 1e-30) for norm, bound in pairs)
                if grown <= 1:
                    continue
            with torch.no_grad():
                layer.weight.div_(max(grown, 1e-12))


@dataclass(frozen=True)
class SmashedNoise:
    """Noise on smashed data."""

    kind: NoiseKind = "laplace"
    """``laplace``, scaled by the L1 sensitivity, or ``gaussian``, by the one from L1 to L2."""
    level: float = 0.0
    """``l`` of the thesis: scale of the noise in units of the sensitivity; 0: none."""
    unit: NoiseScale = "guaranteed"
    """See the module."""

    @classmethod
    def of(cls, plan: SplitPlan) -> "SmashedNoise":
        """Return the noise of a plan."""
        return cls(plan.noise, plan.noise_level, plan.noise_scale)

    def scale(self, sensitivity: Sensitivity) -> float:
        """Return the scale (Laplace) or the standard deviation (Gaussian)."""
        if self.unit == "thesis":
            return self.level
        return self.level * (
            sensitivity.l1_to_l1 if self.kind == "laplace" else sensitivity.l1_to_l2
        )

    def alter(self, sensitivity: Sensitivity, generator: torch.Generator) -> Alter:
        """Return a function that adds the noise to smashed data."""
        scale = self.scale(sensitivity)

        def add(smashed: torch.Tensor) -> torch.Tensor:
            if scale == 0:
                return smashed
            if self.kind == "gaussian":
                drawn = torch.randn(smashed.shape, generator=generator)
            else:
                # Each sign with half the probability, at an exponential distance.
                uniform = torch.rand(smashed.shape, generator=generator) - 0.5
                drawn = -uniform.sign() * torch.log1p(-2 * uniform.abs().clamp(max=0.4999999))
            return smashed + scale * drawn

        return add

    def epsilon(self, releases: int) -> float | None:
        """Return the epsilon for a pixel that changes by one standard deviation of its image.

        None without noise, with Gaussian noise, because it has no chosen delta, and at the thesis'
        scale, which bounds no change.
        """
        bounded = self.level and self.kind == "laplace" and self.unit == "guaranteed"
        return releases / self.level if bounded else None

    def words(self, releases: int) -> str:
        """Describe the protection by the noise.

        `releases`: Number of times that the smashed data of an image are sent.
        """
        if self.level == 0:
            return "no noise on smashed data"
        if self.unit == "thesis":
            return (
                f"{self.kind.capitalize()} noise of {self.level:g} on smashed data, at the scale "
                "of the thesis: a pixel counts in up to 25 windows, so that this bounds no change "
                "of an image; obfuscation, no privacy of images"
            )
        if self.kind == "gaussian":
            return (
                f"Gaussian noise of {self.level:g} times the sensitivity on smashed data: "
                "obfuscation, no privacy of images"
            )
        return (
            f"Laplace noise of {self.level:g} times the sensitivity on smashed data: epsilon "
            f"{self.epsilon(releases):.3g} for a change of one pixel by one standard deviation of "
            f"its image over {releases} releases, and {PIXELS:,} times as much for all "
            "pixels: obfuscation, no privacy of images"
        )


def signal_to_noise_db(smashed: torch.Tensor, noisy: torch.Tensor) -> float:
    """Return the ratio of the variance of smashed data over images to the noise's, in decibels."""
    signal = (smashed - smashed.mean(0)).square().mean()
    noise = (noisy - smashed).square().mean()
    return float(10 * torch.log10(signal / noise.clamp(min=1e-30)))
