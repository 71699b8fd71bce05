"""Pictures of anamorphic video, whose pixels are wider or narrower than high, as they look.

An eye aspect ratio is one of lengths: pixels that are a third wider than high make every eye seem
a third more open than it is.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

if TYPE_CHECKING:
    from av.video.stream import VideoStream

UInt8 = NDArray[np.uint8]

_SMALLEST_CHANGE = 0.01
"""Scaled videos often declare pixels that are not quite square, as their sides are rounded."""
_MOST_STRETCHED = 4.0


def pixel_aspect(stream: VideoStream) -> float:
    """Return width over height of a video's pixels; 1 where they are square or nothing is said."""
    declared = stream.sample_aspect_ratio
    aspect = float(declared) if declared else 1.0
    # Beyond that it is damage: 32 to 11 is the most that H.264 has a name for.
    if not 1.0 / _MOST_STRETCHED <= aspect <= _MOST_STRETCHED:
        return 1.0
    return aspect if abs(aspect - 1.0) >= _SMALLEST_CHANGE else 1.0


def with_square_pixels(pixels: UInt8, aspect: float) -> UInt8:
    """Return a picture stretched along its shorter pixel side, so that no detail is lost.

    Parameters
    ----------
    pixels : uint8, shape (height, width) or (height, width, 3)
    aspect : float
        Width over height of a pixel.
    """
    if aspect == 1.0:
        return pixels
    import cv2

    height, width = pixels.shape[:2]
    size = (round(width * max(aspect, 1.0)), round(height / min(aspect, 1.0)))
    return np.asarray(cv2.resize(pixels, size, interpolation=cv2.INTER_LINEAR), dtype=np.uint8)
