"""``gaze-lenet`` with fewer channels and units, for tests that train it many times.

The results of such tests do not depend on its size, and a step takes less than half of the time. A
module asks for it by ``pytestmark = pytest.mark.usefixtures("small_lenet")``; processes that it
starts call `use_small_lenet`.
"""

from typing import Any, cast

import pytest
from torch import nn

from site_agent.networks import modules
from site_agent.networks.gaze_modules import GazeLeNet


class SmallLeNet(GazeLeNet):
    """Convolutions to 10 and 20 channels, and 300 hidden units: 438,184 parameters."""

    def __init__(self) -> None:
        super().__init__(channels=1)
        self.conv1 = nn.Conv2d(1, 10, 5)
        self.conv2 = nn.Conv2d(10, 20, 5)
        self.fc1 = nn.Linear(20 * 6 * 12, 300)
        self.fc2 = nn.Linear(300 + 2, 2)


def use_small_lenet(patch: pytest.MonkeyPatch) -> None:
    """Build it wherever ``gaze-lenet`` is asked for."""
    patch.setitem(cast("dict[str, Any]", modules.BUILDERS), "gaze-lenet", SmallLeNet)
