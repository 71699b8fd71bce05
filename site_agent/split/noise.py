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
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn
from torch.nn import functional

from aggregators.models import StateDict
from site_agent.errors import InvalidInputError
from site_agent.networks.gaze_modules import StagedNetwork
from site_agent.split.parts import to_part_module
from site_agent.split.plan import Cut, NoiseScale, SplitPlan

Alter = Callable[[torch.Tensor], torch.Tensor]
"""Alters smashed data before they leave, such as by noise."""

PIXELS = 36 * 60


def sensitivity_of(part: StateDict, cut: Cut) -> float:
    """Return by how much smashed data can change, in L1, when one pixel changes by 1.

    ReLU changes no norm, nor does pooling over windows that do not overlap; of neighbouring changes
    it lets through the largest.
    """
    module = to_part_module(part, cut, "client")
    sensitivity = 1.0
    for stage in cut.front_stages(module.stages):
        for name in stage.layers:
            layer = module.get_submodule(name)
            if not isinstance(layer, nn.Conv2d | nn.Linear):
                raise InvalidInputError(
                    f"{cut.architecture} has {type(layer).__name__} in {name}, "
                    "without a bound on its sensitivity; expected a LeNet"
                )
            sensitivity *= layer_sensitivity(layer.weight.detach())
    return sensitivity


def layer_sensitivity(weight: torch.Tensor) -> float:
    """Return the bound of a dense layer, or of a convolution with pooling of 2 x 2 behind it.

    `weight` (tensor, shape (outputs, inputs) or (outputs, inputs, rows, columns)). Of the effects
    within one pool, the largest is let through; a pixel has four places in a pool.
    """
    magnitudes = weight.double().abs()
    if weight.dim() == 2:
        return float(magnitudes.sum(0).max())
    places = [
        functional.max_pool2d(functional.pad(magnitudes.transpose(0, 1), (x, 1, y, 1)), 2)
        for y in (0, 1)
        for x in (0, 1)
    ]
    return float(torch.stack([place.flatten(1).sum(1) for place in places]).max())


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
        self._unit = plan.noise_scale
        self._bounds = [self._norm(layer.weight.detach()) for layer in self._layers]
        self.scale()

    def _norm(self, weight: torch.Tensor) -> float:
        if self._unit == "thesis":
            return float(torch.linalg.matrix_norm(weight.double().flatten(1), 1))
        return layer_sensitivity(weight)

    def scale(self, *_step: Any) -> None:
        """Scale the layers after a step."""
        for layer, bound in zip(self._layers, self._bounds, strict=True):
            grown = self._norm(layer.weight.detach())
            if self._unit == "guaranteed":
                grown /= max(bound, 1e-30)
                if grown <= 1:
                    continue
            with torch.no_grad():
                layer.weight.div_(max(grown, 1e-12))


@dataclass(frozen=True)
class SmashedNoise:
    """Laplace noise on smashed data."""

    level: float = 0.0
    """``l`` of the thesis: scale of the noise in units of the sensitivity; 0: none."""
    unit: NoiseScale = "guaranteed"
    """See the module."""

    @classmethod
    def of(cls, plan: SplitPlan) -> "SmashedNoise":
        """Return the noise of a plan."""
        return cls(plan.noise_level, plan.noise_scale)

    def scale(self, sensitivity: float) -> float:
        """Return the scale of the distribution."""
        return self.level if self.unit == "thesis" else self.level * sensitivity

    def alter(self, sensitivity: float, generator: torch.Generator) -> Alter:
        """Return a function that adds the noise to smashed data."""
        scale = self.scale(sensitivity)

        def add(smashed: torch.Tensor) -> torch.Tensor:
            if scale == 0:
                return smashed
            # Each sign with half the probability, at an exponential distance.
            uniform = torch.rand(smashed.shape, generator=generator) - 0.5
            drawn = -uniform.sign() * torch.log1p(-2 * uniform.abs().clamp(max=0.4999999))
            return smashed + scale * drawn

        return add

    def epsilon(self, releases: int) -> float | None:
        """Return the epsilon for a pixel that changes by one standard deviation of its image.

        None without noise, and at the thesis' scale, which bounds no change.
        """
        return releases / self.level if self.level and self.unit == "guaranteed" else None

    def words(self, releases: int) -> str:
        """Describe the protection by the noise.

        `releases`: Number of times that the smashed data of an image are sent.
        """
        if self.level == 0:
            return "no noise on smashed data"
        if self.unit == "thesis":
            return (
                f"Laplace noise of {self.level:g} on smashed data, at the scale of the thesis: a "
                "pixel counts in up to 25 windows, so that this bounds no change of an image; "
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
