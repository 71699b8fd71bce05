"""Recordings that can be read more than once: a video file, or a folder of images."""

from __future__ import annotations

import hashlib
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Literal

from aggregators.formats import file_digest
from site_agent.eyeblink.frame_timing import FrameTiming
from site_agent.eyeblink.frames import DecodingReport, FrameSource, VideoInfo, VideoReader
from site_agent.eyeblink.image_folder import ImageFolderReader
from site_agent.eyeblink.session import SourceFile


@dataclass(frozen=True)
class Recording:
    """Where a recording lies, and when its pictures were taken where they do not say.

    Attributes
    ----------
    path : Path
        A video file, or a folder of images.
    timestamps : Path or None
        Times of a folder's images (see `image_folder`).
    frame_rate_hz : float or None
        Rate of a folder's images, where no table says when they were taken.
    """

    path: Path
    timestamps: Path | None = None
    frame_rate_hz: float | None = None

    def open(self, pixels: Literal["grey", "rgb"] = "grey") -> FrameSource:
        """Open it from the beginning.

        Raises
        ------
        VideoFileError
        """
        if self.path.is_dir():
            return ImageFolderReader(
                self.path,
                timestamps=self.timestamps,
                frame_rate_hz=self.frame_rate_hz,
                pixels=pixels,
            )
        return VideoReader(self.path, pixels=pixels)

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
