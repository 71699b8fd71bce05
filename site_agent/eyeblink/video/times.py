"""Other times for a video's frames than those that its file has.

High-speed cameras store files that play slowly, 500 frames of a second as ten seconds of 50
frames each; others write the times of their frames into a table beside the video.
"""

from __future__ import annotations

from contextlib import closing
from pathlib import Path

import numpy as np

from site_agent.errors import TableFileError, VideoFileError
from site_agent.eyeblink.records import Float64
from site_agent.eyeblink.text_tables import read_table
from site_agent.eyeblink.video.frames import VideoReader, packet_times

MOST_FRAMES_PER_S = 100_000.0


def were_given(times_from: str) -> bool:
    """Return whether `DecodingReport.times_from` names times that the user gave."""
    return times_from.startswith(("table ", "frame rate "))


class FrameClock:
    """Gives each frame of a video its time: of a table, or by a rate.

    Parameters
    ----------
    times_s : float64, shape (n,), optional
        One for each frame.
    frame_rate_hz : float
        Where there are no times.
    source : str
        Where the times come from, for the provenance.
    """

    def __init__(
        self, source: str, times_s: Float64 | None = None, frame_rate_hz: float = 1.0
    ) -> None:
        self.source = source
        self._times_s = times_s
        self._rate_hz = frame_rate_hz

    def time_s(self, frame: int) -> float:
        """Return the time of a frame in seconds.

        Raises
        ------
        VideoFileError
            There are more frames than times.
        """
        if self._times_s is None:
            return frame / self._rate_hz
        if frame >= len(self._times_s):
            raise VideoFileError(
                f"{self.source} has {len(self._times_s)} times, the video more frames; expected "
                "one row for each frame"
            )
        return float(self._times_s[frame])


def open_clock(
    path: Path, timestamps: Path | None, frame_rate_hz: float | None
) -> FrameClock | None:
    """Return what gives a video's frames their times; None for those of the file itself.

    Raises
    ------
    VideoFileError
        The table does not have one row for each frame, the rate is not positive, or the file is
        not a video.
    """
    if timestamps is not None:
        return _clock_of_table(path, timestamps)
    if frame_rate_hz is None:
        return None
    if not 0 < frame_rate_hz <= MOST_FRAMES_PER_S:
        raise VideoFileError(
            f"{path}: a frame rate of {frame_rate_hz:g} was given; expected frames per second, "
            "more than 0"
        )
    return FrameClock(f"frame rate {frame_rate_hz:g} Hz", frame_rate_hz=frame_rate_hz)


def read_frame_times(path: Path) -> Float64:
    """Read a table with one row for each frame of a video, in their order.

    Returns
    -------
    float64, shape (n,)
        Seconds, ascending.

    Raises
    ------
    TableFileError
    """
    table = read_table(path)
    times_s = table.times_s()
    late = np.flatnonzero(~(np.diff(times_s, prepend=-np.inf) > 0)).tolist()
    if late:
        text = "has no time, or one that does not come after that of the row before"
        raise TableFileError(path, [(table.lines[index], text) for index in late])
    return times_s


def container_times(path: Path, frames: int) -> Float64:
    """Return the file's own times of `frames` frames in seconds, as `VideoReader` gives them.

    Raises
    ------
    VideoFileError
    """
    times_s = packet_times(path)
    if len(times_s) == frames:
        return times_s
    with closing(VideoReader(path)) as reader:
        return np.array([frame.timestamp_s for frame in reader.frames()], dtype=np.float64)


def _clock_of_table(path: Path, timestamps: Path) -> FrameClock:
    times_s = read_frame_times(timestamps)
    if len(packet_times(path)) != len(times_s):
        # Some packets hold no picture of their own: decode before the long analysis.
        with closing(VideoReader(path)) as reader:
            frames = sum(1 for _ in reader.frames())
        if frames != len(times_s):
            raise VideoFileError(
                f"{timestamps}: has {len(times_s)} times, {path.name} has {frames} frames; "
                "expected one row for each frame"
            )
    return FrameClock(f"table {timestamps.name}", times_s)
