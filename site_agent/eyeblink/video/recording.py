"""Recordings that can be read more than once, and their start."""

from contextlib import closing
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from functools import cached_property
from pathlib import Path
from typing import Any, Literal

import numpy as np

from aggregators.formats import file_digest
from site_agent.errors import TableFileError, VideoFileError
from site_agent.eyeblink.records import Float64, frame_rate_of
from site_agent.eyeblink.session_folder import (
    RecordingStart,
    SessionLabels,
    SourceFile,
    source_file,
)
from site_agent.eyeblink.video.seeking import SeekableVideo
from site_agent.pictures.video_reading import DecodingReport, FrameSource, VideoInfo, VideoReader
from site_agent.text_tables import read_table
from site_agent.wording import count_words

FROM_IMAGES = "ffmpeg -framerate RATE -i NAME%04d.png -c:v ffv1 session.mkv"
"""Makes a video of a folder of images."""


@dataclass(frozen=True)
class Recording:
    """The path of a recording, and the times of its pictures where the files have none."""

    path: Path
    timestamps: Path | None = None
    frame_rate_hz: float | None = None
    """A table of times (see `read_frame_times`) or a rate, instead of the times in the file."""

    def open(self, pixels: Literal["grey", "rgb"] = "grey") -> FrameSource:
        """Open it from the beginning."""
        if self.path.is_dir():
            raise VideoFileError(
                f"{self.path}: is a folder, expected a video; make one of its images "
                f"({FROM_IMAGES}), and give uneven times with --timestamps"
            )
        clock = open_clock(self.path, self.timestamps, self.frame_rate_hz)
        reader = VideoReader(self.path, pixels=pixels, clock=clock, fields=True)
        reader.require_times()
        return reader

    def seekable(self, timestamps_s: Float64, *, other_clock: bool | None = None) -> SeekableVideo:
        """Open it for single frames, by their place among the times that were analysed.

        `other_clock`: The times are not the file's own; by default, where a table or rate is named.
        """
        if other_clock is None:
            other_clock = self.timestamps is not None or self.frame_rate_hz is not None
        # Frames are found by the times in the file, whatever those of frames.csv are.
        own_times_s = container_times(self.path) if other_clock else timestamps_s
        return SeekableVideo(self.path, own_times_s)

    @cached_property
    def digest(self) -> str:
        """Return the SHA-256 of the video, which is read for it once."""
        return file_digest(self.path)

    def sources(self) -> tuple[SourceFile, ...]:
        """Return the recording, and the table of its times where there is one."""
        video = SourceFile("video", self.path.name, self.digest)
        table = self.timestamps
        return (video,) if table is None else (video, source_file("timestamps", table))


def describe_recording(
    info: VideoInfo, report: DecodingReport, timing: "FrameTiming", repeats: "RepeatedPictures"
) -> dict[str, Any]:
    """Return the facts of a recording, JSON-able, without its folder's name."""
    described = asdict(info)
    described["path"] = info.path.name
    counted = asdict(report)
    del counted["warnings"]
    measured = {"frame_rate_hz": timing.frame_rate_hz, "steady_rate": timing.steady}
    missing = {"lost_frames": timing.lost_frames, "repeated_frames": repeats.frames}
    return {**described, **counted, **measured, **missing}


def other_times(source: FrameSource, timing: "FrameTiming") -> str | None:
    """Return a warning that a video's times are not those of its file, or None."""
    info, times_from = source.info, source.report.times_from
    if not were_given(times_from):
        return None
    declared = f"{info.declared_rate_hz:.3g}" if info.declared_rate_hz else "no"
    return (
        f"times come from the {times_from} ({timing.frame_rate_hz:.4g} frames/s), not from the "
        f"video file, which says {declared} frames/s"
    )


EARLIEST_YEAR = 1990
"""Cameras with a clock that was never set write 1904 or 1970."""


def recording_start(path: Path, labels: SessionLabels, creation_time: str | None) -> RecordingStart:
    """Return the start from the labels, else from the camera, else from the time of the file."""
    if labels.start is not None:
        return RecordingStart(_with_zone(labels.start), "as given")
    written = _parsed(creation_time)
    if written is not None:
        return RecordingStart(written, "from the video file's creation time")
    changed = datetime.fromtimestamp(path.stat().st_mtime, UTC).replace(microsecond=0)
    return RecordingStart(changed, "from the time at which the file was last changed")


def _parsed(text: str | None) -> datetime | None:
    try:
        moment = datetime.fromisoformat(text) if text else None
    except ValueError:
        return None
    return _with_zone(moment) if moment is not None and moment.year >= EARLIEST_YEAR else None


def _with_zone(moment: datetime) -> datetime:
    """Add this machine's time zone to a time without one."""
    return moment if moment.tzinfo is not None else moment.astimezone()


MOST_FRAMES_PER_S = 100_000.0


def were_given(times_from: str) -> bool:
    """Return whether `DecodingReport.times_from` names times that the user gave."""
    return times_from.startswith(("table ", "frame rate "))


class FrameClock:
    """Gives each frame of a video its time: of a table, or by a rate.

    `times_s` (float64, shape (n,)): One for each frame. `frame_rate_hz`: Where there are no times.
    `source`: Where the times come from, for the provenance.
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
    """Return the clock of a video's frames; None for the times of the file itself."""
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

    Returns float64, shape (n,): Seconds, ascending.
    """
    table = read_table(path)
    times_s = table.times_s()
    late = np.flatnonzero(~(np.diff(times_s, prepend=-np.inf) > 0)).tolist()
    if late:
        text = "has no time, or one that does not come after that of the row before"
        raise TableFileError(path, [(table.lines[index], text) for index in late])
    return times_s


def container_times(path: Path) -> Float64:
    """Return the times of a file's frames in seconds, as the file itself has them."""
    with closing(VideoReader(path)) as reader:
        return np.array([frame.timestamp_s for frame in reader.frames()], dtype=np.float64)


def _clock_of_table(path: Path, timestamps: Path) -> FrameClock:
    times_s = read_frame_times(timestamps)
    # Decoded before the long analysis: what a file declares is often wrong.
    frames = len(container_times(path))
    if frames != len(times_s):
        raise VideoFileError(
            f"{timestamps}: has {len(times_s)} times, {path.name} has {frames} frames; "
            "expected one row for each frame"
        )
    return FrameClock(f"table {timestamps.name}", times_s)


PLAUSIBLE_RATES_HZ = (10.0, 2000.0)


def rate_remark(frame_rate_hz: float) -> str | None:
    """Return a remark if no camera films blinks at such a rate, else None."""
    lowest, highest = PLAUSIBLE_RATES_HZ
    if not (frame_rate_hz < lowest or frame_rate_hz > highest):
        return None
    return (
        f"{frame_rate_hz:.4g} frames/s is implausible for blinks, which last 0.1 to 0.4 s "
        f"(expected {lowest:g} to {highest:g}): all durations and rates depend on it; give the "
        "true one with --frame-rate-hz, or the times of the frames with --timestamps"
        + (_MILLISECONDS if lowest <= 1000 * frame_rate_hz <= highest else "")
    )


_MILLISECONDS = ". Are the times in milliseconds? Then name their column timestamp_ms"


@dataclass(frozen=True)
class FrameTiming:
    """The intervals between a recording's frames."""

    frame_rate_hz: float
    steady: bool
    """At least four of five intervals are within 15 % of the median."""
    lost_frames: int
    losses: int
    """Frames that are missing from a steady recording, and in how many places: intervals near a
    whole multiple of the usual one. Not counted (0) where the rate varies."""
    longest_gap_s: float

    def remark(self) -> str | None:
        """Describe the missing frames for people; None where nothing is missing."""
        if not self.lost_frames:
            return None
        return (
            f"about {count_words(self.lost_frames, 'frame is', 'frames are')} missing in "
            f"{count_words(self.losses, 'place')} (longest gap {self.longest_gap_s:.2f} s); "
            "times are the frames' own and stay right"
        )


STILL_SHARE, USUAL_PERCENTILE = 0.1, 85.0
"""A picture repeats the one before if it changes by less than this share of the changes around it,
and of a usual one: a percentile that is no copy where five of six are, nor a key frame. Copies that
were coded again change by 1 to 5 % of that; no frame of a real face at 11 to 890 kB for 4 s does.
"""
LEAST_CHANGE = 0.05
"""In grey levels: less is coded away, as in drawn faces at 500 frames/s."""
LONGEST_REPEAT_S, LEAST_REPEATED, MOST_FROZEN = 0.2, 0.1, 0.5
"""Longer runs are freezes. Drawn faces without noise stand still for larger shares of the time."""


@dataclass(frozen=True)
class RepeatedPictures:
    """Frames with the picture of the frame before; few ones are not counted (0)."""

    frames: int
    rate_hz: float
    """Of different pictures."""
    remark: str = ""


def repeated_pictures(changes: Float64, timestamps_s: Float64) -> RepeatedPictures:
    """Find the frames for which the camera or the recorder had no new picture.

    `changes`: Mean changes of grey level, shape (n,); see `LightMeter.changes`.
    """
    total, rate_hz = len(changes), frame_rate_of(timestamps_s)
    first, end = np.array(_still_runs(changes), dtype=np.int64).reshape(-1, 2).T
    lengths, from_s = end - first, timestamps_s[first - 1]
    shown_s = timestamps_s[np.minimum(end, total - 1)] - from_s
    frozen = shown_s > LONGEST_REPEAT_S
    steady = lengths[~frozen].sum() >= max(1, LEAST_REPEATED * total)
    if lengths[frozen].sum() >= MOST_FROZEN * total:
        lengths, frozen = lengths * ~frozen, frozen & False
    if not steady and not frozen.any():
        return RepeatedPictures(0, rate_hz)
    count = int(lengths.sum())
    text = (
        f"at least {count} of {total} frames ({100 * count / total:.0f} %) repeat the picture "
        "before them"
    )
    if steady:
        rate_hz *= 1.0 - float(lengths[~frozen].sum()) / total
        text += (
            f", as recorders do where a camera is slower: in effect there are {rate_hz:.1f} "
            "frames/s, which is how finely blinks are timed and measured"
        )
    else:
        longest = int(np.argmax(shown_s * frozen))
        text += (
            f": the picture freezes {count_words(int(frozen.sum()), 'time')}, the longest for "
            f"{shown_s[longest]:.1f} s at {from_s[longest]:.1f} s; blinks there are missed, or "
            "seem to last longer"
        )
    return RepeatedPictures(count, rate_hz, text)


def _still_runs(changes: Float64) -> list[tuple[int, int]]:
    """Return first frame and end of each run of pictures that repeat the one before it."""
    runs: list[tuple[int, int]] = []
    known = changes[np.isfinite(changes)]
    usual = np.percentile(known, USUAL_PERCENTILE) if len(known) else 0.0
    if usual < LEAST_CHANGE:
        return runs
    limits = STILL_SHARE * np.minimum(changes, usual)
    end = 0
    for first in (np.flatnonzero(changes[1:] < limits[:-1]) + 1).tolist():
        if first < end:
            continue
        end = first
        while end < len(changes) and changes[end] < limits[first - 1]:
            end += 1
        if end == len(changes) or changes[first:end].max() < STILL_SHARE * changes[end]:
            runs.append((first, end))
    return runs


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
    rate_hz = frame_rate_of(timestamps_s)
    return FrameTiming(rate_hz, steady, missing, places, float(steps_s.max()))
