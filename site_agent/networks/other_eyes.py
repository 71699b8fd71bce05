"""Networks for full faces, for face with eyes and grid (iTracker), and for near-eye cameras.

They take no head angles; `head` is there because all gaze networks are called alike.
"""

from itertools import pairwise

import torch
from torch import nn
from torch.nn import functional

from site_agent.networks.gaze_modules import GazeResNet18, Stage
from site_agent.networks.views import GRID_CELLS, GRID_CHANNEL


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
