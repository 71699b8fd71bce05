"""Writing pictures with their times as a video that browsers play."""

from collections.abc import Iterator
from fractions import Fraction
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from site_agent.errors import VideoFileError
from site_agent.pictures.video_reading import file_url

if TYPE_CHECKING:
    from av.container import OutputContainer
    from av.video.stream import VideoStream

TICKS_PER_S = 90_000
"""Fine enough that any frame rate, constant or not, keeps its times to 11 microseconds."""


def write_video(
    path: Path,
    pictures: Iterator[tuple[float, NDArray[np.uint8]]],
    frame_rate_hz: float = 30.0,
    *,
    quality_crf: int = 23,
) -> None:
    """Write an mp4 file; each picture keeps its own time, independent of the nominal rate.

    `pictures`, iterator of (time in seconds, uint8 of shape (height, width, 3)): all of one size,
    with even sides.
    """
    import av

    # The index comes first, so that a browser can begin to play; the begin of a video that does
    # not start at zero is kept to the tick, not to the millisecond.
    options = {"movflags": "faststart", "movie_timescale": str(TICKS_PER_S)}
    try:
        with av.open(file_url(path), "w", format="mp4", options=options) as container:
            encoder = Encoder(container, frame_rate_hz, quality_crf)
            for time_s, pixels in pictures:
                encoder.add(pixels, time_s)
            if not encoder.finish():
                raise VideoFileError(f"{path}: cannot be written, as there is no frame")
    except av.error.FFmpegError as error:
        raise OSError(error.errno, error.strerror, str(path)) from error


class Encoder:
    """Adds pictures of one size to an open container, each with its own time, as H.264."""

    def __init__(
        self, container: "OutputContainer", frame_rate_hz: float = 30.0, quality_crf: int = 23
    ) -> None:
        self._container, self._rate_hz, self._crf = container, frame_rate_hz, quality_crf
        self._stream: VideoStream | None = None
        self._last_ticks = -1

    def add(self, pixels: NDArray[np.uint8], time_s: float) -> None:
        """Add a picture, uint8 (height, width, 3) RGB, with even sides."""
        import av
        import cv2

        if self._stream is None:
            self._stream = _open_stream(self._container, pixels.shape, self._rate_hz, self._crf)
        # Several times faster than FFmpeg's own way from RGB to what H.264 stores.
        planes = np.asarray(cv2.cvtColor(pixels, cv2.COLOR_RGB2YUV_I420), dtype=np.uint8)
        frame = av.VideoFrame.from_ndarray(planes, format="yuv420p")
        # A player's clock is finer than any camera's; two frames never get the same time.
        self._last_ticks = max(round(time_s * TICKS_PER_S), self._last_ticks + 1)
        frame.pts, frame.time_base = self._last_ticks, Fraction(1, TICKS_PER_S)
        self._container.mux(self._stream.encode(frame))

    def finish(self) -> bool:
        """Write the encoder's last pictures; return whether there was a picture."""
        if self._stream is not None:
            self._container.mux(self._stream.encode(None))
        return self._stream is not None


def _open_stream(
    container: "OutputContainer", shape: tuple[int, ...], frame_rate_hz: float, quality_crf: int
) -> "VideoStream":
    options = {"crf": str(quality_crf), "preset": "veryfast"}
    rate = Fraction(frame_rate_hz).limit_denominator(1001)
    stream = container.add_stream("libx264", rate=rate, options=options)
    stream.height, stream.width, stream.pix_fmt = shape[0], shape[1], "yuv420p"
    # Without frames that refer to later ones every time stays as it is given.
    stream.codec_context.max_b_frames = 0
    stream.codec_context.time_base = Fraction(1, TICKS_PER_S)
    stream.time_base = Fraction(1, TICKS_PER_S)
    return stream
