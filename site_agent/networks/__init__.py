"""Networks: their architectures, their files, and running them. The door to torch.

Gaze networks take grey eye patches and head angles, and return yaw and pitch in radians, as
`site_agent.datasets.gaze.GazeSamples` has them. Saliency networks take clips, and return a map of
each frame. Representation networks describe eye patches by features, learned without labels.
"""

from site_agent.networks.architectures import find_architecture
from site_agent.networks.files import (
    encode_gaze,
    from_module,
    last_layer,
    new_network,
    personal_head,
    predict_gaze,
    predict_maps,
    read_network,
    to_module,
)

__all__ = [
    "encode_gaze",
    "find_architecture",
    "from_module",
    "last_layer",
    "new_network",
    "personal_head",
    "predict_gaze",
    "predict_maps",
    "read_network",
    "to_module",
]
