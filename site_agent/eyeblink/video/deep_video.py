"""Videos of 16 bits a pixel: how many of them the camera used.

Cameras of 10 or 12 bits are recorded in formats of 16 that do not say so (gray16 of FFV1). The
upper 8 of 16 bits would be nearly black; so some pictures of the film are looked at first.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import numpy as np
from numpy.typing import NDArray

from site_agent.pictures.sample_depth import FULL_BITS, Samples, to_8_bits

if TYPE_CHECKING:
    from av.video.format import VideoFormat
    from av.video.frame import VideoFrame
    from av.video.stream import VideoStream

UInt8 = NDArray[np.uint8]

_LOOKED_AT = 9
"""Pictures, spread evenly over the film."""


def used_bits(path: Path, stream: VideoStream) -> int:
    """Return 8, 10 or 12 for a video of 16 bits a pixel that uses no more; 16 for all others.

    Parameters
    ----------
    path : Path
        Opened a second time, where the stream has 16 bits.
    stream : VideoStream
    """
    # Not known where the header does not hold it.
    layout: VideoFormat | None = stream.codec_context.format
    if layout is None or not _is_deep(layout):
        return FULL_BITS
    return Samples.of(map(_samples, _pictures(path, stream.index))).used_bits()


def deep_picture(picture: VideoFrame, bits: int, *, grey: bool) -> UInt8:
    """Return a picture of 16 bits of which `bits` are used.

    Returns
    -------
    uint8, shape (height, width) if `grey`, else (height, width, 3)
        Grey or RGB; values beyond what those bits hold are white.
    """
    import cv2

    pixels = to_8_bits(_samples(picture), bits)
    if pixels.ndim == 2:
        return pixels if grey else np.dstack([pixels] * 3)
    return np.asarray(cv2.cvtColor(pixels, cv2.COLOR_RGB2GRAY), np.uint8) if grey else pixels


def _is_deep(layout: VideoFormat) -> bool:
    # Brightness that shares its samples with colour differences does not begin at 0.
    return layout.components[0].bits == FULL_BITS and (layout.is_rgb or len(layout.components) == 1)


def _samples(picture: VideoFrame) -> NDArray[np.uint16]:
    found: NDArray[Any] = picture.to_ndarray(
        format="rgb48le" if picture.format.is_rgb else "gray16le"
    )
    return found.astype(np.uint16, copy=False)


def _pictures(path: Path, stream_index: int) -> Iterator[VideoFrame]:
    """Yield some pictures; fewer where the file is damaged or cannot be sought."""
    import av

    with contextlib.suppress(OSError, ValueError), av.open(str(path)) as container:
        stream = cast("VideoStream", container.streams[stream_index])
        length = container.duration or 0
        start = container.start_time or 0
        for number in range(_LOOKED_AT):
            with contextlib.suppress(OSError, ValueError, StopIteration):
                container.seek(start + length * number // _LOOKED_AT)
                yield next(container.decode(stream))
