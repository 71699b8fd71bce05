"""Small videos without faces; every frame has its own grey level."""

from collections.abc import Sequence
from fractions import Fraction
from pathlib import Path

import av
import numpy as np

TICKS_PER_S = 90_000


def write_video(
    path: Path,
    times_s: Sequence[float],
    *,
    size: tuple[int, int] = (96, 64),
    rotation_deg: int = 0,
    codec: str = "libx264",
    faststart: bool = False,
    pixel_aspect: Fraction = Fraction(1),
) -> None:
    """Write frames at the given times; frame n has the grey level 40 + 2 n left, black right."""
    width, height = size
    options = {"movflags": "faststart"} if faststart else {}
    with av.open(str(path), "w", options=options) as container:
        stream = container.add_stream(codec, rate=30)
        stream.width, stream.height, stream.pix_fmt = width, height, "yuv420p"
        stream.codec_context.time_base = Fraction(1, TICKS_PER_S)
        stream.codec_context.gop_size = 10
        stream.time_base = Fraction(1, TICKS_PER_S)
        stream.codec_context.sample_aspect_ratio = pixel_aspect
        if rotation_deg:
            stream.set_display_rotation(rotation_deg)
        for number, time_s in enumerate(times_s):
            picture = np.zeros((height, width, 3), dtype=np.uint8)
            picture[:, : width // 2] = 40 + 2 * (number % 100)
            frame = av.VideoFrame.from_ndarray(picture, format="rgb24")
            frame.pts = round(time_s * TICKS_PER_S)
            frame.time_base = Fraction(1, TICKS_PER_S)
            container.mux(stream.encode(frame))
        container.mux(stream.encode(None))
