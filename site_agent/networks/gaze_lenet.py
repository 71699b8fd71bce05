"""LeNet for gaze: two convolutions, and the head angles joined before the last layer.

Source: Zhang et al. 2015, "Appearance-Based Gaze Estimation in the Wild".
"""

from __future__ import annotations

import torch
from torch import nn
from torch.nn import functional


class GazeLeNet(nn.Module):
    """Convolutions 5 x 5 x 20 and 5 x 5 x `channels`, each with pooling, and 500 hidden units."""

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
            As `site_agent.networks.prediction.to_inputs` scales them.
        head : float32, shape (n, 2)
            Yaw and pitch of the head in radians.
        """
        x = functional.max_pool2d(self.conv1(patches), 2)
        x = functional.max_pool2d(self.conv2(x), 2)
        x = functional.relu(self.fc1(x.flatten(1)))
        gaze: torch.Tensor = self.fc2(torch.cat([x, head], dim=1))
        return gaze
