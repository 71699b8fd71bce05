"""Writing frames to a video, each with its own time."""

from __future__ import annotations

import tempfile
from fractions import Fraction
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from site_agent.errors import VideoFileError

if TYPE_CHECKING:
    from av.container import OutputContainer
    from av.video.stream import VideoStream

TICKS_PER_S = 90_000


class VideoRecorder:
    """Writes H.264 in the container that the name asks for.

    A Matroska file (``.mkv``) can be read up to where it ends even when the program is killed;
    an ``.mp4`` cannot. A file that is there is replaced with the first picture, not before.

    Raises
    ------
    VideoFileError
        The file cannot be written, or its ending means no container.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self._container: OutputContainer | None = None
        self._stream: VideoStream | None = None
        self._last_tick = -1
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            with tempfile.TemporaryDirectory(prefix=".unsettled-", dir=path.parent) as folder:
                _opened(Path(folder) / path.name).close()
        except (OSError, ValueError) as error:
            raise self._refused(error) from error

    @property
    def begun(self) -> bool:
        """Whether a picture was written."""
        return self._container is not None

    def write(self, picture: NDArray[np.uint8], time_s: float) -> None:
        """Add a picture, uint8 (height, width, 3) BGR; an odd last row or column is left out."""
        import av

        even = picture[: picture.shape[0] // 2 * 2, : picture.shape[1] // 2 * 2]
        if self._container is None:
            try:
                self._container = _opened(self.path)
            except (OSError, ValueError) as error:
                raise self._refused(error) from error
        stream = self._stream or self._open_stream(self._container, even.shape[1], even.shape[0])
        frame = av.VideoFrame.from_ndarray(np.ascontiguousarray(even), format="bgr24")
        self._last_tick = max(self._last_tick + 1, round(time_s * TICKS_PER_S))
        frame.pts = self._last_tick
        frame.time_base = Fraction(1, TICKS_PER_S)
        self._container.mux(stream.encode(frame))

    def close(self) -> None:
        if self._container is None:
            return
        if self._stream is not None:
            self._container.mux(self._stream.encode(None))
            self._stream = None
        self._container.close()

    def _refused(self, error: Exception) -> VideoFileError:
        reason = getattr(error, "strerror", None) or error
        return VideoFileError(
            f"{self.path}: cannot be written as a video ({reason}); expected a name such as "
            "recording.mkv or recording.mp4"
        )

    def _open_stream(self, container: OutputContainer, width: int, height: int) -> VideoStream:
        # Fast to write: the analysis runs beside it.
        options = {"preset": "veryfast", "crf": "18"}
        stream = container.add_stream("libx264", rate=30, options=options)
        stream.width, stream.height, stream.pix_fmt = width, height, "yuv420p"
        stream.codec_context.time_base = Fraction(1, TICKS_PER_S)
        stream.time_base = Fraction(1, TICKS_PER_S)
        self._stream = stream
        return stream


def _opened(path: Path) -> OutputContainer:
    import av

    return av.open(str(path), "w")
