"""Networks for gaze: LeNet and ResNet-18, each with the head angles before its last layer.

A network is a sequence of stages, so that it can be run as a whole or, cut between two of them, in
parts (`site_agent.split.cuts`).
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import torch
from torch import nn
from torch.nn import functional


@dataclass(frozen=True)
class Stage:
    """One step of a network."""

    name: str
    layers: tuple[str, ...]
    """The modules whose parameters it uses, such as ``layer1.0``."""
    run: Callable[[Any, torch.Tensor, torch.Tensor], torch.Tensor]
    """Takes the module, what the stage before returned, and the head angles; returns tensors of
    shape (n, ...)."""


class StagedNetwork(nn.Module):
    """A network that runs its stages, or some of them, one after the other."""

    stages: ClassVar[tuple[Stage, ...]]

    def run_stages(
        self, stages: Sequence[Stage], x: torch.Tensor, head: torch.Tensor
    ) -> torch.Tensor:
        """Return what the last of these stages returns."""
        for stage in stages:
            x = stage.run(self, x, head)
        return x

    def forward(self, patches: torch.Tensor, head: torch.Tensor) -> torch.Tensor:
        """Return yaw and pitch.

        `patches`, float32 of shape (n, 1, 36, 60): as `site_agent.networks.files.to_inputs` scales
        them. `head`, float32 of shape (n, 2): yaw and pitch of the head in radians.
        """
        return self.run_stages(self.stages, patches, head)

    def pooled(self, patches: torch.Tensor) -> torch.Tensor:
        """Return what the last layer sees of patches, shape (n, features)."""
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
