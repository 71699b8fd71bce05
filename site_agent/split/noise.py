"""Noise on smashed data (PixelDP), with the sensitivity of the layers before it.

The noise is added after pooling. It gives obfuscation and no privacy of images: if the grey levels
of two images differ by ``d`` in sum, their smashed data are epsilon ``d / l`` apart at each
release, and two images of one eye differ by hundreds. So `SmashedNoise.words` states the epsilon
for one pixel and for a whole image, and `signal_to_noise_db` measures the remaining signal.

Source: Lecuyer et al. 2019, "Certified Robustness to Adversarial Examples with Differential
Privacy". The spectral norm of the kernels as a matrix is *not* a bound: windows overlap, so that a
pixel counts in many of them (see tests).
"""

from dataclasses import dataclass

import torch
from torch import nn

from aggregators.models import StateDict
from site_agent.errors import InvalidInputError
from site_agent.split.cuts import Cut
from site_agent.split.parts import to_part_module
from site_agent.split.plan import NoiseKind
from site_agent.split.training import Alter

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

    ReLU and pooling over windows that do not overlap change no norm.
    """
    module = to_part_module(part, cut, "client")
    sensitivity = Sensitivity(1.0, 1.0, 1.0)
    shape: tuple[int, ...] = _PATCH
    for stage in cut.front_stages(module.stages):
        for name in stage.layers:
            layer = module.get_submodule(name)
            if isinstance(layer, nn.Conv2d):
                sensitivity = sensitivity.then(
                    convolution_sensitivity(layer.weight.detach(), shape)
                )
                shape = tuple((side - 4) // 2 for side in shape)
            elif isinstance(layer, nn.Linear):
                sensitivity = sensitivity.then(dense_sensitivity(layer.weight.detach()))
            else:
                raise InvalidInputError(
                    f"{cut.architecture} has {type(layer).__name__} in {name}, "
                    "without a bound on its sensitivity; expected a LeNet"
                )
    return sensitivity


def convolution_sensitivity(weight: torch.Tensor, shape: tuple[int, ...]) -> Sensitivity:
    """Return the bounds of a convolution with stride 1.

    `weight` (tensor, shape (outputs, inputs, rows, columns)). `shape`: Height and width of the
    inputs; windows beyond them count for the bound.
    """
    by_input = weight.double().transpose(0, 1).flatten(1)
    padded = [side + kernel - 1 for side, kernel in zip(shape, weight.shape[2:], strict=True)]
    # On the padded picture the convolution is circular, and a product for each frequency.
    spectrum = torch.fft.fft2(weight.double(), s=padded).permute(2, 3, 0, 1)
    return Sensitivity(
        float(by_input.abs().sum(1).max()),
        float(by_input.square().sum(1).sqrt().max()),
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


@dataclass(frozen=True)
class SmashedNoise:
    """Noise on smashed data."""

    kind: NoiseKind = "laplace"
    """``laplace``, scaled by the L1 sensitivity, or ``gaussian``, by the one from L1 to L2."""
    level: float = 0.0
    """``l`` of the thesis: scale of the noise in units of the sensitivity; 0: none."""

    def scale(self, sensitivity: Sensitivity) -> float:
        """Return the scale (Laplace) or the standard deviation (Gaussian)."""
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

        None without noise, and with Gaussian noise, because it has no chosen delta.
        """
        return releases / self.level if self.level and self.kind == "laplace" else None

    def words(self, releases: int) -> str:
        """Describe the protection by the noise.

        `releases`: Number of times that the smashed data of an image are sent.
        """
        if self.level == 0:
            return "no noise on smashed data"
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
