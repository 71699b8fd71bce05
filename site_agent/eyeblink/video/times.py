"""Other times for a video's frames than those that its file has.

High-speed cameras store files that play slowly, 500 frames of a second as ten seconds of 50
frames each; others write the times of their frames into a table beside the video.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import closing
from pathlib import Path

import numpy as np

from site_agent.errors import TableFileError, VideoFileError
from site_agent.eyeblink.records import Float64
from site_agent.eyeblink.text_tables import read_table
from site_agent.eyeblink.video.frames import PacketTimes, VideoReader

MOST_FRAMES_PER_S = 100_000.0


def were_given(times_from: str) -> bool:
    """Return whether `DecodingReport.times_from` names times that the user gave."""
    return times_from.startswith(("table ", "frame rate "))


class FrameClock:
    """Gives each frame the time of its place among the frames that the file stores.

    A frame's place is that of its presentation time among those of all packets: a packet that
    cannot be decoded shifts nothing. Where packets have no times of their own, frames are counted.

    Parameters
    ----------
    stored : sequence of int
        Presentation times of the packets in the file's own ticks, ascending; empty where they
        are not known.
    times_s : float64, shape (n,), optional
        One for each place.
    frame_rate_hz : float, optional
        Instead of `times_s`.
    source : str
        Where the times come from, for the provenance.
    """

    def __init__(
        self,
        stored: Sequence[int],
        *,
        times_s: Float64 | None = None,
        frame_rate_hz: float | None = None,
        source: str,
    ) -> None:
        self._places = {pts: place for place, pts in enumerate(stored)}
        self._times_s = times_s
        self._rate_hz = frame_rate_hz or 1.0
        self._next = 0
        self.source = source

    def time_s(self, pts: int | None) -> float:
        """Return the time of the next frame, in seconds.

        Raises
        ------
        VideoFileError
            There are more frames than times.
        """
        place = self._next if pts is None else self._places.get(pts, self._next)
        place = max(place, self._next)
        self._next = place + 1
        if self._times_s is None:
            return place / self._rate_hz
        if place >= len(self._times_s):
            raise VideoFileError(
                f"{self.source} has {len(self._times_s)} times, the video more frames; expected "
                "one row for each frame"
            )
        return float(self._times_s[place])


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
    source = f"frame rate {frame_rate_hz:g} Hz"
    return FrameClock(_stored(path), frame_rate_hz=frame_rate_hz, source=source)


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
    with closing(PacketTimes(path)) as packets:
        stored = packets.ascending()
        if len(stored) == frames:
            return packets.seconds(stored)
    with closing(VideoReader(path)) as reader:
        return np.array([frame.timestamp_s for frame in reader.frames()], dtype=np.float64)


def _clock_of_table(path: Path, timestamps: Path) -> FrameClock:
    times_s = read_frame_times(timestamps)
    stored = _stored(path)
    if len(stored) != len(times_s):
        # Some packets hold no picture of their own: decode before the long analysis.
        stored, frames = [], _count_frames(path)
        if frames != len(times_s):
            raise VideoFileError(
                f"{timestamps}: has {len(times_s)} times, {path.name} has {frames} frames; "
                "expected one row for each frame"
            )
    return FrameClock(stored, times_s=times_s, source=f"table {timestamps.name}")


def _stored(path: Path) -> list[int]:
    with closing(PacketTimes(path)) as packets:
        return packets.ascending()


def _count_frames(path: Path) -> int:
    with closing(VideoReader(path)) as reader:
        return sum(1 for _ in reader.frames())
