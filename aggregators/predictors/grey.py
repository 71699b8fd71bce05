"""Conversion to grey images, as in dlib."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from aggregators.errors import ImageArrayError
from aggregators.models import UInt8


def to_grey(image: NDArray[Any]) -> UInt8:
    """Return a grey image, computed as in dlib: ``(red + green + blue) // 3``.

    Parameters
    ----------
    image : uint8, shape (height, width) or (height, width, 3)
        Grey, or RGB.

    Returns
    -------
    uint8, shape (height, width)
        C-contiguous; the same array if it needs no change.

    Raises
    ------
    ImageArrayError
        Another type or shape.
    """
    if not isinstance(image, np.ndarray) or image.dtype != np.uint8:
        found = f"{image.dtype}" if isinstance(image, np.ndarray) else type(image).__name__
        raise ImageArrayError(f"an image must be an array of uint8, not {found}")
    if image.ndim == 2:
        return np.ascontiguousarray(image)
    if image.ndim == 3 and image.shape[2] == 3:
        total = image[:, :, 0].astype(np.uint16)
        total += image[:, :, 1]
        total += image[:, :, 2]
        total //= 3
        return total.astype(np.uint8)
    raise ImageArrayError(
        f"an image must have the shape (height, width) or (height, width, 3), not {image.shape}"
    )
