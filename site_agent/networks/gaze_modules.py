"""Networks for gaze: LeNet and ResNet-18, each with the head angles before its last layer.

A network is a sequence of stages, so that it can be run as a whole or, cut between two of them, in
parts (`site_agent.split.parts`).

Cross-encoders learn the appearance of gaze without labels: an encoder
describes an eye patch by a gaze feature and an eye feature; a decoder draws the patch from both.
`site_agent.training.cross_encoder` describes their training, and why the gaze feature then holds
the gaze. `GazeHead` is the gaze network built from a trained encoder. Source: Sun et al. 2021,
"Cross-Encoder for Unsupervised Gaze Representation Learning".

Networks for full faces, for face with eyes and grid (iTracker), and for near-eye cameras.

They take no head angles; `head` is there because all gaze networks are called alike.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, ClassVar

import torch
from torch import nn
from torch.nn import functional

from site_agent.networks.views import GRID_CELLS, GRID_CHANNEL


@dataclass(frozen=True)
class Stage:
    """One step of a network."""

    name: str
    layers: tuple[str, ...]
    """Names of the modules that it uses, such as ``layer1.0``."""
    run: Callable[[Any, torch.Tensor, torch.Tensor], torch.Tensor]
    """Takes the module, the output of the stage before, and the head angles; returns tensors of
    shape (n, ...)."""


class StagedNetwork(nn.Module):
    """A network that runs its stages, or some of them, one after the other."""

    stages: ClassVar[tuple[Stage, ...]]

    def run_stages(
        self, stages: Sequence[Stage], x: torch.Tensor, head: torch.Tensor
    ) -> torch.Tensor:
        """Return the output of the last of these stages."""
        for stage in stages:
            x = stage.run(self, x, head)
        return x

    def forward(self, patches: torch.Tensor, head: torch.Tensor) -> torch.Tensor:
        """Return yaw and pitch.

        `patches`, float32 of shape (n, 1, 36, 60): scaled by `modules.to_inputs`.
        `head`, float32 of shape (n, 2): yaw and pitch of the head in radians.
        """
        return self.run_stages(self.stages, patches, head)

    def pooled(self, patches: torch.Tensor) -> torch.Tensor:
        """Return the last layer's input for patches, shape (n, features)."""
        # The last stage alone looks at head angles.
        return self.run_stages(self.stages[:-1], patches, patches)


def _last(layer: str) -> Callable[[Any, torch.Tensor, torch.Tensor], torch.Tensor]:
    """Return the stage that puts the head angles before the last layer."""

    def run(module: Any, x: torch.Tensor, head: torch.Tensor) -> torch.Tensor:
        gaze: torch.Tensor = getattr(module, layer)(torch.cat([x, head], dim=1))
        return gaze

    return run


class _BasicBlock(nn.Module):
    def __init__(self, inputs: int, outputs: int, stride: int) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(inputs, outputs, 3, stride, padding=1, bias=False)
        self.bn1 = nn.BatchNorm2d(outputs)
        self.conv2 = nn.Conv2d(outputs, outputs, 3, padding=1, bias=False)
        self.bn2 = nn.BatchNorm2d(outputs)
        self.downsample: nn.Module = nn.Identity()
        if stride != 1 or inputs != outputs:
            self.downsample = nn.Sequential(
                nn.Conv2d(inputs, outputs, 1, stride, bias=False), nn.BatchNorm2d(outputs)
            )

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = functional.relu(self.bn1(self.conv1(x)))
        y = self.bn2(self.conv2(y))
        return functional.relu(y + self.downsample(x))


def _stem(module: Any, x: torch.Tensor, _head: torch.Tensor) -> torch.Tensor:
    x = functional.relu(module.bn1(module.conv1(x)))
    return functional.max_pool2d(x, 3, 2, padding=1)


def _block(layer: str, number: int) -> Stage:
    return Stage(
        f"{layer}.{number}",
        (f"{layer}.{number}",),
        lambda module, x, _head: getattr(module, layer)[number](x),
    )


class GazeResNet18(StagedNetwork):
    """Four stages of two basic blocks, on one grey channel, with the usual names of parameters.

    Source: He et al. 2016, "Deep Residual Learning for Image Recognition", table 1.
    """

    stages = (
        Stage("stem", ("conv1", "bn1"), _stem),
        *(_block(f"layer{layer}", number) for layer in range(1, 5) for number in range(2)),
        Stage(
            "mean", (), lambda _module, x, _head: functional.adaptive_avg_pool2d(x, 1).flatten(1)
        ),
        Stage("gaze", ("fc",), _last("fc")),
    )

    def __init__(self) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(1, 64, 7, 2, padding=3, bias=False)
        self.bn1 = nn.BatchNorm2d(64)
        self.layer1 = nn.Sequential(_BasicBlock(64, 64, 1), _BasicBlock(64, 64, 1))
        self.layer2 = nn.Sequential(_BasicBlock(64, 128, 2), _BasicBlock(128, 128, 1))
        self.layer3 = nn.Sequential(_BasicBlock(128, 256, 2), _BasicBlock(256, 256, 1))
        self.layer4 = nn.Sequential(_BasicBlock(256, 512, 2), _BasicBlock(512, 512, 1))
        self.fc = nn.Linear(512 + 2, 2)


class GazeLeNet(StagedNetwork):
    """Convolutions 5 x 5 x 20 and 5 x 5 x `channels`, each with pooling, and 500 hidden units.

    Source: Zhang et al. 2015, "Appearance-Based Gaze Estimation in the Wild".
    """

    stages = (
        Stage("pool1", ("conv1",), lambda m, x, _head: functional.max_pool2d(m.conv1(x), 2)),
        Stage("pool2", ("conv2",), lambda m, x, _head: functional.max_pool2d(m.conv2(x), 2)),
        Stage("fc1", ("fc1",), lambda m, x, _head: functional.relu(m.fc1(x.flatten(1)))),
        Stage("gaze", ("fc2",), _last("fc2")),
    )

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(1, 20, 5)
        self.conv2 = nn.Conv2d(20, channels, 5)
        self.fc1 = nn.Linear(channels * 6 * 12, 500)
        self.fc2 = nn.Linear(500 + 2, 2)


GAZE_VECTORS = 4
GAZE_SIZE = 3 * GAZE_VECTORS
"""Numbers of a gaze feature: four vectors of three, each of length 1."""
EYE_SIZE = 32
HEAD_SIZE = 2
_SIZES = ((5, 8), (9, 15), (18, 30), (18, 30))
"""Height and width at each block of the decoder; each pixel of the last becomes 2 x 2."""


class SmallEncoder(nn.Module):
    """Three convolutions that each halve the picture, and a dense layer that sees places."""

    def __init__(self) -> None:
        super().__init__()
        widths = (1, 16, 32, 64)
        self.convolutions = nn.ModuleList(
            nn.Conv2d(width_in, made, 5, 2, padding=2, bias=False)
            for width_in, made in pairwise(widths)
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
    """Convolutions that each see the input and the outputs of all before."""

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
        grown = [width + layers * growth for width in widths]
        self.blocks = nn.ModuleList(_DenseBlock(width, growth, layers) for width in widths)
        self.reductions = nn.ModuleList(
            nn.Conv2d(width_in, made, 1) for width_in, made in zip(grown, widths[1:], strict=False)
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


class FaceResNet18(GazeResNet18):
    """ResNet-18 on a face in colour, of any size."""

    stages = (
        *GazeResNet18.stages[:-1],
        Stage("gaze", ("fc",), lambda module, x, _head: module.fc(x)),
    )

    def __init__(self) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(3, 64, 7, 2, padding=3, bias=False)
        self.fc = nn.Linear(512, 2)


class _Pathway(nn.Module):
    """The convolutions of iTracker, on one picture in colour of 224 x 224 pixels."""

    def __init__(self) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(3, 96, 11, 4)
        self.conv2 = nn.Conv2d(96, 256, 5, padding=2, groups=2)
        self.conv3 = nn.Conv2d(256, 384, 3, padding=1)
        self.conv4 = nn.Conv2d(384, 64, 1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for convolution in (self.conv1, self.conv2):
            x = functional.max_pool2d(functional.relu(convolution(x)), 3, 2)
            x = functional.local_response_norm(x, 5, alpha=1e-4, beta=0.75, k=1.0)
        x = functional.relu(self.conv4(functional.relu(self.conv3(x))))
        return x.flatten(1)


_FEATURES = 64 * 12 * 12


class ITracker(nn.Module):
    """Both eyes with shared convolutions, the face, and the face's place in the frame.

    Source: Krafka et al. 2016, "Eye Tracking for Everyone", figure 5.
    """

    def __init__(self) -> None:
        super().__init__()
        self.eye, self.face = _Pathway(), _Pathway()
        self.eyes_fc1 = nn.Linear(2 * _FEATURES, 128)
        self.face_fc1, self.face_fc2 = nn.Linear(_FEATURES, 128), nn.Linear(128, 64)
        self.grid_fc1, self.grid_fc2 = nn.Linear(GRID_CELLS**2, 256), nn.Linear(256, 128)
        self.fc1, self.fc2 = nn.Linear(128 + 64 + 128, 128), nn.Linear(128, 2)

    def forward(self, pictures: torch.Tensor, _head: torch.Tensor) -> torch.Tensor:
        """Return the point of gaze; `pictures`, float32 of shape (n, 10, 224, 224)."""
        relu, size = functional.relu, pictures.shape[-1]
        middles = (torch.arange(GRID_CELLS, device=pictures.device) + 0.5) * size / GRID_CELLS
        pixels = middles.long()
        # Scaling has moved the mean to 0: cells of the face are above, all others below.
        grid = (pictures[:, GRID_CHANNEL][:, pixels][:, :, pixels] > 0).to(pictures.dtype)
        left, right = self.eye(pictures[:, 3:6]), self.eye(pictures[:, 6:GRID_CHANNEL])
        eyes = relu(self.eyes_fc1(torch.cat([left, right], dim=1)))
        face = relu(self.face_fc2(relu(self.face_fc1(self.face(pictures[:, :3])))))
        place = relu(self.grid_fc2(relu(self.grid_fc1(grid.flatten(1)))))
        point: torch.Tensor = self.fc2(relu(self.fc1(torch.cat([eyes, face, place], dim=1))))
        return point


class NearEye(nn.Module):
    """Six convolutions of stride 2 without padding, from 127 x 127 pixels to one.

    The source has dropout, too; its draws would differ from machine to machine. Source: Kim
    et al. 2019, "NVGaze", section 5.
    """

    def __init__(self) -> None:
        super().__init__()
        channels = (1, 16, 24, 36, 54, 81, 122)
        self.convolutions = nn.ModuleList(
            nn.Conv2d(inputs, outputs, 3, 2) for inputs, outputs in pairwise(channels)
        )
        self.fc = nn.Linear(channels[-1], 2)

    def forward(self, pictures: torch.Tensor, _head: torch.Tensor) -> torch.Tensor:
        """Return gaze or pupil; `pictures`, float32 of shape (n, 1, 127, 127)."""
        x = pictures
        for number, convolution in enumerate(self.convolutions):
            x = functional.relu(convolution(x))
            if number < 4:
                x = functional.instance_norm(x, eps=1e-6)
        gaze: torch.Tensor = self.fc(x.flatten(1))
        return gaze
