"""Gaze networks: their architectures, their files, and running them. The door to torch.

Every network takes grey eye patches and head angles, and returns yaw and pitch in radians, as
`site_agent.datasets.gaze.GazeSamples` has them.
"""

from __future__ import annotations

from site_agent.networks.architectures import GAZE_ARCHITECTURES, Architecture, find_architecture
from site_agent.networks.files import (
    from_module,
    new_network,
    predict_gaze,
    read_network,
    to_module,
)

__all__ = [
    "GAZE_ARCHITECTURES",
    "Architecture",
    "find_architecture",
    "from_module",
    "new_network",
    "predict_gaze",
    "read_network",
    "to_module",
]
