"""Other times for a video's frames than those that its file has.

High-speed cameras store files that play slowly, 500 frames of a second as ten seconds of 50
frames each; others write the times of their frames into a table beside the video.
"""

from __future__ import annotations

from contextlib import closing
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from site_agent.errors import TableFileError, VideoFileError
from site_agent.eyeblink.records import Float64
from site_agent.eyeblink.text_tables import read_table
from site_agent.eyeblink.video.frames import VideoReader, packet_times
from site_agent.wording import count_words

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
        """Return the time of a frame in seconds."""
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
    """Return what gives a video's frames their times; None for those of the file itself."""
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
    """
    table = read_table(path)
    times_s = table.times_s()
    late = np.flatnonzero(~(np.diff(times_s, prepend=-np.inf) > 0)).tolist()
    if late:
        text = "has no time, or one that does not come after that of the row before"
        raise TableFileError(path, [(table.lines[index], text) for index in late])
    return times_s


def container_times(path: Path, frames: int) -> Float64:
    """Return the file's own times of `frames` frames in seconds, as `VideoReader` gives them."""
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


PLAUSIBLE_RATES_HZ = (10.0, 2000.0)


def rate_remark(frame_rate_hz: float) -> str | None:
    """Say, for people, that blinks cannot have been filmed at such a rate; None where they can."""
    lowest, highest = PLAUSIBLE_RATES_HZ
    if not (frame_rate_hz < lowest or frame_rate_hz > highest):
        return None
    return (
        f"{frame_rate_hz:.4g} frames/s is implausible for blinks, which last 0.1 to 0.4 s "
        f"(expected {lowest:g} to {highest:g}): all durations and rates depend on it; give the "
        "true one with --frame-rate-hz, or the times of the frames with --timestamps"
    )


@dataclass(frozen=True)
class FrameTiming:
    """How a recording's frames follow each other.

    Attributes
    ----------
    steady : bool
        At least four of five intervals are within 15 % of the median.
    lost_frames, losses : int
        Frames that are missing from a steady recording, and in how many places: intervals near
        a whole multiple of the usual one. Not counted (0) where the rate varies.
    """

    frame_rate_hz: float
    steady: bool
    lost_frames: int
    losses: int
    longest_gap_s: float

    def remark(self) -> str | None:
        """Say what is missing, for people; None where nothing is."""
        if not self.lost_frames:
            return None
        return (
            f"about {count_words(self.lost_frames, 'frame is', 'frames are')} missing in "
            f"{count_words(self.losses, 'place')} (longest gap {self.longest_gap_s:.2f} s); "
            "times are the frames' own and stay right"
        )


def frame_timing(timestamps_s: Float64) -> FrameTiming:
    """Look at the intervals between frames, shape (n,) in, strictly increasing."""
    if len(timestamps_s) < 2:
        return FrameTiming(float("nan"), True, 0, 0, 0.0)
    steps_s = np.diff(timestamps_s)
    usual_s = float(np.median(steps_s))
    relative = steps_s / usual_s
    steady = bool(np.mean(np.abs(relative - 1.0) < 0.15) >= 0.8)
    multiple = np.round(relative)
    lost = (multiple >= 2) & (np.abs(relative - multiple) < 0.3)
    missing = int(np.sum(multiple[lost] - 1)) if steady else 0
    places = int(np.sum(lost)) if steady else 0
    return FrameTiming(1.0 / usual_s, steady, missing, places, float(steps_s.max()))
