"""Cross-encoders: networks that learn what gaze looks like without being told where anybody looks.

An encoder describes an eye patch by a gaze feature and an eye feature; a decoder draws the patch
from both. `site_agent.training.cross_encoder` says how they are trained, and why the gaze feature
then holds the gaze. `GazeHead` is the gaze network that is made of a trained encoder.

Source: Sun et al. 2021, "Cross-Encoder for Unsupervised Gaze Representation Learning".
"""

from itertools import pairwise

import torch
from torch import nn
from torch.nn import functional

from site_agent.networks.gaze_modules import GazeResNet18

GAZE_VECTORS = 4
GAZE_SIZE = 3 * GAZE_VECTORS
"""Numbers of a gaze feature: four vectors of three, each of length 1."""
EYE_SIZE = 32
HEAD_SIZE = 2
_SIZES = ((5, 8), (9, 15), (18, 30), (18, 30))
"""Height and width at each block of the decoder; each pixel of the last becomes 2 x 2."""


class SmallEncoder(nn.Module):
    """Three convolutions, each of which halves the picture, and a dense layer that sees places."""

    def __init__(self) -> None:
        super().__init__()
        widths = (1, 16, 32, 64)
        self.convolutions = nn.ModuleList(
            nn.Conv2d(given, made, 5, 2, padding=2, bias=False) for given, made in pairwise(widths)
        )
        # Means over groups of channels, not over the batch: sites have few samples, and averaged
        # statistics of batches would fit none of them.
        self.norms = nn.ModuleList(nn.GroupNorm(8, width) for width in widths[1:])
        height, width = _SIZES[0]
        self.fc = nn.Linear(widths[-1] * height * width, GAZE_SIZE + EYE_SIZE)

    def forward(self, patches: torch.Tensor) -> torch.Tensor:
        """Return features, shape (n, 44), of patches (n, 1, 36, 60)."""
        x = patches
        for convolution, norm in zip(self.convolutions, self.norms, strict=True):
            x = functional.relu(norm(convolution(x)))
        features: torch.Tensor = self.fc(x.flatten(1))
        return features


class ResNetEncoder(GazeResNet18):
    """ResNet-18 on one grey channel, with features in place of the gaze."""

    def __init__(self) -> None:
        super().__init__()
        self.fc = nn.Linear(512, GAZE_SIZE + EYE_SIZE)

    def forward(  # type: ignore[override]
        self, patches: torch.Tensor
    ) -> torch.Tensor:
        """Return features, shape (n, 44), of patches (n, 1, 36, 60)."""
        features: torch.Tensor = self.fc(self.pooled(patches))
        return features


class _DenseBlock(nn.Module):
    """Convolutions, each of which sees the input and what all before it made."""

    def __init__(self, width: int, growth: int, layers: int) -> None:
        super().__init__()
        self.convolutions = nn.ModuleList(
            nn.Conv2d(width + number * growth, growth, 3, padding=1) for number in range(layers)
        )

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for convolution in self.convolutions:
            x = torch.cat([x, functional.leaky_relu(convolution(x), 0.1)], dim=1)
        return x


class Decoder(nn.Module):
    """A dense layer, and four dense blocks of growing size.

    `widths`: Channels with which each block begins; a convolution of one pixel reduces to them.
    `growth`, `layers`: Channels that each convolution of a block adds, and convolutions in a block.
    """

    def __init__(self, widths: tuple[int, int, int, int], growth: int, layers: int) -> None:
        super().__init__()
        height, width = _SIZES[0]
        self.fc = nn.Linear(GAZE_SIZE + EYE_SIZE, widths[0] * height * width)
        grown = [each + layers * growth for each in widths]
        self.blocks = nn.ModuleList(_DenseBlock(each, growth, layers) for each in widths)
        self.reductions = nn.ModuleList(
            nn.Conv2d(given, made, 1) for given, made in zip(grown, widths[1:], strict=False)
        )
        self.last = nn.Conv2d(grown[-1], 4, 3, padding=1)

    def forward(self, features: torch.Tensor) -> torch.Tensor:
        """Return patches, shape (n, 1, 36, 60), of features (n, 44)."""
        height, width = _SIZES[0]
        x = self.blocks[0](self.fc(features).reshape(len(features), -1, height, width))
        for reduction, block, size in zip(
            self.reductions, self.blocks[1:], _SIZES[1:], strict=True
        ):
            x = block(functional.interpolate(reduction(x), size=size))
        return functional.pixel_shuffle(self.last(x), 2)


class CrossEncoder(nn.Module):
    """An encoder and a decoder."""

    def __init__(self, encoder: nn.Module, decoder: nn.Module) -> None:
        super().__init__()
        self.encoder = encoder
        self.decoder = decoder

    def encode(self, patches: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """Return gaze features, shape (n, 12), and eye features, shape (n, 32).

        `patches` (float32, shape (n, 1, 36, 60)): With mean 0 and standard deviation 1 each.
        """
        return split_features(self.encoder(patches))

    def decode(self, gaze: torch.Tensor, eye: torch.Tensor) -> torch.Tensor:
        """Return patches, shape (n, 1, 36, 60), drawn from features."""
        patches: torch.Tensor = self.decoder(torch.cat([gaze, eye], dim=1))
        return patches

    def forward(self, patches: torch.Tensor) -> torch.Tensor:
        """Return each patch as it is drawn from its own features."""
        return self.decode(*self.encode(patches))


class GazeHead(nn.Module):
    """An encoder, and a linear layer that reads the gaze from its gaze feature and the head."""

    def __init__(self, encoder: nn.Module) -> None:
        super().__init__()
        self.encoder = encoder
        self.head = nn.Linear(GAZE_SIZE + HEAD_SIZE, 2)

    def forward(self, patches: torch.Tensor, head: torch.Tensor) -> torch.Tensor:
        """Return yaw and pitch; inputs as for `GazeLeNet`."""
        feature, _ = split_features(self.encoder(patches))
        gaze: torch.Tensor = self.head(torch.cat([feature, head], dim=1))
        return gaze


def split_features(features: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Return gaze features, their vectors scaled to length 1, and eye features."""
    gaze = functional.normalize(features[:, :GAZE_SIZE].reshape(-1, GAZE_VECTORS, 3), dim=2)
    return gaze.flatten(1), features[:, GAZE_SIZE:]
