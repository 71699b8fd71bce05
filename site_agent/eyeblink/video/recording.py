"""Recordings that can be read more than once, a video file or a folder of images; their start."""

from __future__ import annotations

import hashlib
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Literal

from aggregators.formats import file_digest
from site_agent.eyeblink.session_folder import SessionLabels
from site_agent.eyeblink.sources import RecordingStart, SourceFile
from site_agent.eyeblink.video.frames import DecodingReport, FrameSource, VideoInfo, VideoReader
from site_agent.eyeblink.video.image_folder import TIMESTAMPS_NAME, ImageFolderReader
from site_agent.eyeblink.video.times import FrameTiming, open_clock, were_given
from site_agent.pictures.images import FULL_BITS


@dataclass(frozen=True)
class Recording:
    """Where a recording lies, and the times of its pictures where the files have none.

    Attributes
    ----------
    timestamps, frame_rate_hz : Path, float or None
        A table of times (see `image_folder` and `times`) or a rate: for a folder of images, or
        instead of the times in a video file.
    """

    path: Path
    timestamps: Path | None = None
    frame_rate_hz: float | None = None
    bits: int = FULL_BITS

    def open(self, pixels: Literal["grey", "rgb"] = "grey") -> FrameSource:
        """Open it from the beginning."""
        if self.path.is_dir():
            return ImageFolderReader(
                self.path,
                timestamps=self.timestamps,
                frame_rate_hz=self.frame_rate_hz,
                pixels=pixels,
                bits=self.bits,
            )
        clock = open_clock(self.path, self.timestamps, self.frame_rate_hz)
        return VideoReader(self.path, pixels=pixels, clock=clock, bits=self.bits)

    def source(self) -> SourceFile:
        """Return name and digest; of a folder, the digest of its images' names and digests."""
        if not self.path.is_dir():
            return SourceFile("video", self.path.name, file_digest(self.path))
        reader = ImageFolderReader(
            self.path, timestamps=self.timestamps, frame_rate_hz=self.frame_rate_hz
        )
        whole = hashlib.sha256()
        for image in reader.images:
            whole.update(f"{file_digest(image.path)}  {image.path.name}\n".encode())
        return SourceFile("images", self.path.name, whole.hexdigest())

    def sources(self) -> tuple[SourceFile, ...]:
        """Return the recording, and the table of its times where there is one."""
        table = self.timestamps
        if table is None and self.frame_rate_hz is None and self.path.is_dir():
            table = self.path / TIMESTAMPS_NAME
        if table is None or not table.is_file():
            return (self.source(),)
        return self.source(), SourceFile("timestamps", table.name, file_digest(table))


def describe_recording(
    info: VideoInfo, report: DecodingReport, timing: FrameTiming
) -> dict[str, Any]:
    """Return what is known of a recording, JSON-able, without its folder's name."""
    described = asdict(info)
    described["path"] = info.path.name
    counted = asdict(report)
    del counted["warnings"]
    measured = {"frame_rate_hz": timing.frame_rate_hz, "steady_rate": timing.steady}
    return {**described, **counted, **measured, "lost_frames": timing.lost_frames}


def other_times(source: FrameSource, timing: FrameTiming) -> str | None:
    """Return a warning that a video's times are not those of its file, or None."""
    info, times_from = source.info, source.report.times_from
    if info.container == "images" or not were_given(times_from):
        return None
    declared = f"{info.declared_rate_hz:.3g}" if info.declared_rate_hz else "no"
    return (
        f"times come from the {times_from} ({timing.frame_rate_hz:.4g} frames/s), not from the "
        f"video file, which says {declared} frames/s"
    )


EARLIEST_YEAR = 1990
"""Cameras whose clock was never set write 1904 or 1970."""


def recording_start(path: Path, labels: SessionLabels, creation_time: str | None) -> RecordingStart:
    """Take what the user says, else what the camera wrote, else the time of the file."""
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
    """Times without a zone are those of this machine's."""
    return moment if moment.tzinfo is not None else moment.astimezone()
