"""The pixels of decoded frames as arrays: upright, with square pixels, grey or RGB of 8 bits."""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

if TYPE_CHECKING:
    from av.video.frame import VideoFrame

UInt8 = NDArray[np.uint8]

SQUARE_WITHIN = 0.01
"""Scaled videos often declare pixels that are not quite square, as their sides are rounded."""


@dataclass(frozen=True)
class Placement:
    """The way from a stored picture to the one that players show, by the display matrix."""

    transposed: bool = False
    """Rows and columns are exchanged first."""
    right_to_left: bool = False
    upside_down: bool = False

    @classmethod
    def of(cls, picture: "VideoFrame") -> "Placement":
        """Return the placement of a decoded frame, with the mirrors of phones' front cameras."""
        side_data: Mapping[str, Any] = picture.side_data  # PyAV's types know of no matrix
        if "DISPLAYMATRIX" not in side_data:
            return cls()
        matrix = bytes(side_data["DISPLAYMATRIX"])
        # Shown x and y are the sums of stored x and y with these factors.
        x_of_x, y_of_x, _, x_of_y, y_of_y, *_ = np.frombuffer(matrix, np.int32).tolist()
        if abs(y_of_x) > abs(x_of_x):
            return cls(True, x_of_y < 0, y_of_x < 0)
        return cls(False, x_of_x < 0, y_of_y < 0)

    @property
    def mirrored(self) -> bool:
        """True if left and right are exchanged in the stored picture."""
        return self.transposed ^ self.right_to_left ^ self.upside_down

    @property
    def turn_deg(self) -> int:
        """Return the anticlockwise turn, before the shown picture is mirrored left to right."""
        right_to_left = self.right_to_left ^ self.mirrored
        if self.transposed:
            return 270 if right_to_left else 90
        return 180 if right_to_left else 0

    def show(self, pixels: UInt8) -> UInt8:
        """Return a stored picture as players show it."""
        shown = pixels.swapaxes(0, 1) if self.transposed else pixels
        shown = shown[:: -1 if self.upside_down else 1, :: -1 if self.right_to_left else 1]
        return np.ascontiguousarray(shown)


def with_square_pixels(pixels: UInt8, aspect: float) -> UInt8:
    """Stretch a picture of DV and other anamorphic video; eyes would seem more or less open."""
    if abs(aspect - 1.0) < SQUARE_WITHIN:
        return pixels
    import cv2

    height, width = pixels.shape[:2]
    size = (round(width * max(aspect, 1.0)), round(height / min(aspect, 1.0)))
    return np.asarray(cv2.resize(pixels, size, interpolation=cv2.INTER_LINEAR), dtype=np.uint8)


def rgb_picture(picture: "VideoFrame") -> UInt8:
    """Return a frame as uint8 RGB, shape (height, width, 3)."""
    return picture.to_ndarray(format="rgb24").astype(np.uint8, copy=False)


BRIGHTNESS_FIRST = frozenset(
    {"yuv410p", "yuv411p", "yuv420p", "yuv422p", "yuv440p", "yuv444p"}
    | {"yuva420p", "yuva422p", "yuva444p", "nv12", "nv16", "nv21", "nv24"}
)
"""Pixel formats of 8 bits with the brightness in their first plane."""
FULL_RANGE = frozenset({"gray", "yuvj411p", "yuvj420p", "yuvj422p", "yuvj440p", "yuvj444p"})
"""The same, 0..255 by definition."""
_FULL_RANGE_FLAG = 2  # AVCOL_RANGE_JPEG
_DEEP_BRIGHTNESS = re.compile(r"yuva?4[0-4]{2}p(9|10|12|14|16)le")
"""Pixel formats of more bits with the brightness in their first plane."""
_BYTES = np.dtype(np.uint8)


def grey_picture(picture: "VideoFrame") -> UInt8:
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
    if match := _DEEP_BRIGHTNESS.fullmatch(name):
        # FFmpeg would dither, so that 10 bits had noise of two levels that 8 bits have not.
        full = int(picture.color_range) == _FULL_RANGE_FLAG
        levels = _levels(int(match[1]), full)
        return np.asarray(levels[_first_plane(picture, np.dtype("<u2"))], np.uint8)
    return np.ascontiguousarray(picture.to_ndarray(format="gray"), dtype=np.uint8)


def _first_plane(picture: "VideoFrame", kind: np.dtype[Any] = _BYTES) -> NDArray[Any]:
    """Return a view of the first plane without the padding at the end of its lines."""
    plane = picture.planes[0]
    lines = np.frombuffer(plane, dtype=kind)  # type: ignore[call-overload]
    lines = lines.reshape(-1, plane.line_size // kind.itemsize)
    return np.asarray(lines[: picture.height, : picture.width])


def _stretched(brightness: UInt8) -> UInt8:
    import cv2

    return np.asarray(cv2.LUT(brightness, _levels(8, False)), dtype=np.uint8)


@lru_cache(maxsize=8)
def _levels(bits: int, full: bool) -> UInt8:
    """Return the grey level of each value of brightness."""
    values, factor = np.arange(1 << bits), 1 << (bits - 8)
    levels = values * (255.0 / ((1 << bits) - 1)) if full else (values / factor - 16) * 255 / 219
    return np.clip(np.round(levels), 0, 255).astype(np.uint8)
