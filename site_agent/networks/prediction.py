"""Running a gaze network."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

if TYPE_CHECKING:
    import torch
    from torch import nn

_LEAST_CONTRAST = 4.0
"""Grey levels: patches of less standard deviation are not amplified further."""
_BATCH = 512


def to_inputs(patches: NDArray[np.uint8]) -> torch.Tensor:
    """Return patches as networks take them: each with mean 0 and standard deviation 1.

    Scaling each patch removes most of what differs between lights and cameras.

    Parameters
    ----------
    patches : uint8, shape (n, 36, 60)

    Returns
    -------
    float32 tensor, shape (n, 1, 36, 60)
    """
    import torch

    scaled = torch.from_numpy(np.ascontiguousarray(patches)).to(torch.float32).unsqueeze(1)
    scaled -= scaled.mean(dim=(2, 3), keepdim=True)
    deviation = scaled.square().mean(dim=(2, 3), keepdim=True).sqrt()
    return scaled / deviation.clamp(min=_LEAST_CONTRAST)


def predict_gaze(
    module: nn.Module, patches: NDArray[np.uint8], head: NDArray[Any], device: str = "cpu"
) -> NDArray[np.float64]:
    """Return the gaze in each patch.

    Parameters
    ----------
    module : torch module
        As `to_module` returns it; left in evaluation mode on `device`.
    patches : uint8, shape (n, 36, 60)
        Left eyes, or right eyes mirrored.
    head : float, shape (n, 2)
        Yaw and pitch of the head in radians.

    Returns
    -------
    float64, shape (n, 2)
        Yaw and pitch in radians.
    """
    import torch

    module.to(device).eval()
    found = np.empty((len(patches), 2))
    with torch.inference_mode():
        for first in range(0, len(patches), _BATCH):
            part = slice(first, first + _BATCH)
            angles = torch.from_numpy(np.asarray(head[part], dtype=np.float32)).to(device)
            gaze = module(to_inputs(patches[part]).to(device), angles)
            found[part] = gaze.cpu().numpy()
    return found
