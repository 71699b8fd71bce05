"""Networks for gaze: LeNet and ResNet-18, each with the head angles before its last layer."""

from __future__ import annotations

import torch
from torch import nn
from torch.nn import functional


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


class GazeResNet18(nn.Module):
    """Four stages of two basic blocks, on one grey channel, with the usual names of parameters.

    Source: He et al. 2016, "Deep Residual Learning for Image Recognition", table 1.
    """

    def __init__(self) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(1, 64, 7, 2, padding=3, bias=False)
        self.bn1 = nn.BatchNorm2d(64)
        self.layer1 = nn.Sequential(_BasicBlock(64, 64, 1), _BasicBlock(64, 64, 1))
        self.layer2 = nn.Sequential(_BasicBlock(64, 128, 2), _BasicBlock(128, 128, 1))
        self.layer3 = nn.Sequential(_BasicBlock(128, 256, 2), _BasicBlock(256, 256, 1))
        self.layer4 = nn.Sequential(_BasicBlock(256, 512, 2), _BasicBlock(512, 512, 1))
        self.fc = nn.Linear(512 + 2, 2)

    def forward(self, patches: torch.Tensor, head: torch.Tensor) -> torch.Tensor:
        """Return yaw and pitch; inputs as for `GazeLeNet`."""
        x = functional.relu(self.bn1(self.conv1(patches)))
        x = functional.max_pool2d(x, 3, 2, padding=1)
        x = self.layer4(self.layer3(self.layer2(self.layer1(x))))
        x = functional.adaptive_avg_pool2d(x, 1).flatten(1)
        gaze: torch.Tensor = self.fc(torch.cat([x, head], dim=1))
        return gaze


class GazeLeNet(nn.Module):
    """Convolutions 5 x 5 x 20 and 5 x 5 x `channels`, each with pooling, and 500 hidden units.

    Source: Zhang et al. 2015, "Appearance-Based Gaze Estimation in the Wild".
    """

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(1, 20, 5)
        self.conv2 = nn.Conv2d(20, channels, 5)
        self.fc1 = nn.Linear(channels * 6 * 12, 500)
        self.fc2 = nn.Linear(500 + 2, 2)

    def forward(self, patches: torch.Tensor, head: torch.Tensor) -> torch.Tensor:
        """Return yaw and pitch.

        Parameters
        ----------
        patches : float32, shape (n, 1, 36, 60)
            As `site_agent.networks.files.to_inputs` scales them.
        head : float32, shape (n, 2)
            Yaw and pitch of the head in radians.
        """
        x = functional.max_pool2d(self.conv1(patches), 2)
        x = functional.max_pool2d(self.conv2(x), 2)
        x = functional.relu(self.fc1(x.flatten(1)))
        gaze: torch.Tensor = self.fc2(torch.cat([x, head], dim=1))
        return gaze
