"""Grey pictures straight from a decoder's brightness plane.

Nearly all video stores brightness (Y) apart from colour. Taking that plane as it is costs a tenth
of a general conversion, which at 1280x720 takes longer than decoding the frame.
"""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from site_agent.pictures.images import FULL_BITS, to_8_bits

if TYPE_CHECKING:
    from av.video.frame import VideoFrame

UInt8 = NDArray[np.uint8]

BRIGHTNESS_FIRST = frozenset(
    {"yuv410p", "yuv411p", "yuv420p", "yuv422p", "yuv440p", "yuv444p"}
    | {"yuva420p", "yuva422p", "yuva444p", "nv12", "nv16", "nv21", "nv24"}
)
"""Pixel formats of 8 bits whose first plane is the brightness."""
FULL_RANGE = frozenset({"gray", "yuvj411p", "yuvj420p", "yuvj422p", "yuvj440p", "yuvj444p"})
"""The same, 0..255 by definition."""
_FULL_RANGE_FLAG = 2  # AVCOL_RANGE_JPEG


def grey_picture(picture: VideoFrame) -> UInt8:
    """Return a frame's brightness, 0 black and 255 white: uint8 (height, width), its own memory.

    Most video counts black as 16 and white as 235 ("limited range"); it is stretched as FFmpeg
    does, so that one model serves videos and photographs.
    """
    name = picture.format.name
    if name in FULL_RANGE:
        return _first_plane(picture).copy()
    if name in BRIGHTNESS_FIRST:
        if int(picture.color_range) == _FULL_RANGE_FLAG:
            return _first_plane(picture).copy()
        return _stretched(_first_plane(picture))
    return np.ascontiguousarray(picture.to_ndarray(format="gray"), dtype=np.uint8)


def is_deep(picture: VideoFrame) -> bool:
    """Return whether a frame has 16 bits a pixel, grey or RGB."""
    layout = picture.format
    return layout.components[0].bits == FULL_BITS and (layout.is_rgb or len(layout.components) == 1)


def deep_picture(picture: VideoFrame, bits: int, *, grey: bool) -> UInt8:
    """Return a frame of 16 bits of which `bits` are used; brighter values become white.

    Returns
    -------
    uint8, shape (height, width) if `grey`, else (height, width, 3)
        Grey or RGB.
    """
    import cv2

    layout = "rgb48le" if picture.format.is_rgb else "gray16le"
    pixels = to_8_bits(picture.to_ndarray(format=layout).astype(np.uint16, copy=False), bits)
    if pixels.ndim == 2:
        return pixels if grey else np.dstack([pixels] * 3)
    return np.asarray(cv2.cvtColor(pixels, cv2.COLOR_RGB2GRAY), np.uint8) if grey else pixels


def _first_plane(picture: VideoFrame) -> UInt8:
    """Return a view of the first plane without the padding at the end of its lines."""
    plane = picture.planes[0]
    lines = np.frombuffer(plane, dtype=np.uint8).reshape(-1, plane.line_size)  # type: ignore[call-overload]
    return np.asarray(lines[: picture.height, : picture.width], dtype=np.uint8)


def _stretched(brightness: UInt8) -> UInt8:
    import cv2

    return np.asarray(cv2.LUT(brightness, _limited_to_full()), dtype=np.uint8)


@lru_cache(maxsize=1)
def _limited_to_full() -> UInt8:
    levels = (np.arange(256) - 16.0) * (255.0 / 219.0)
    return np.clip(np.round(levels), 0, 255).astype(np.uint8)
