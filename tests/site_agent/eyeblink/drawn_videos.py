"""Small videos without faces; every frame has its own grey level."""

from collections.abc import Mapping, Sequence
from fractions import Fraction
from pathlib import Path

import av
import numpy as np


def write_video(
    path: Path,
    times_s: Sequence[float],
    *,
    size: tuple[int, int] = (96, 64),
    rotation_deg: int = 0,
    codec: str = "libx264",
    layout: str = "yuv420p",
    faststart: bool = False,
    pixel_aspect: Fraction = Fraction(1),
    codec_options: dict[str, str] | None = None,
    ticks_per_s: int = 90_000,
    metadata: Mapping[str, str] = {},
) -> None:
    """Write frames at the given times; frame n has the grey level 40 + 2 n left, black right."""
    width, height = size
    flags = "faststart" if faststart else "use_metadata_tags"
    options = {"movflags": flags} if faststart or metadata else {}
    with av.open(str(path), "w", options=options) as container:
        container.metadata.update(metadata)
        stream = container.add_stream(codec, rate=30, options=codec_options)
        stream.width, stream.height, stream.pix_fmt = width, height, layout
        stream.codec_context.time_base = Fraction(1, ticks_per_s)
        stream.codec_context.gop_size = 10
        stream.time_base = Fraction(1, ticks_per_s)
        stream.codec_context.sample_aspect_ratio = pixel_aspect
        if rotation_deg:
            stream.set_display_rotation(rotation_deg)
        for number, time_s in enumerate(times_s):
            picture = np.zeros((height, width, 3), dtype=np.uint8)
            picture[:, : width // 2] = 40 + 2 * (number % 100)
            frame = av.VideoFrame.from_ndarray(picture, format="rgb24")
            frame.pts = round(time_s * ticks_per_s)
            frame.time_base = Fraction(1, ticks_per_s)
            container.mux(stream.encode(frame))
        container.mux(stream.encode(None))
