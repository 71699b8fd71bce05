"""Folders of images as streams of frames, timed by a table or a steady rate, or frame by frame."""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, Protocol

import numpy as np

from site_agent.errors import ImageFileError, TableFileError, VideoFileError
from site_agent.eyeblink.records import Float64, UInt8
from site_agent.named_files import find_named
from site_agent.pictures.images import FULL_BITS, list_images, read_image
from site_agent.pictures.video_reading import DecodingReport, Frame, VideoInfo
from site_agent.text_tables import read_table
from site_agent.wording import count_words


class SeekableFrames(Protocol):
    """A recording that gives its frames in any order: a video, or a folder of images."""

    @property
    def path(self) -> Path: ...

    def picture(self, frame: int) -> UInt8: ...

    def close(self) -> None: ...


class SeekableImages:
    """Reads the images that are asked for.

    `timestamps_s` (float64, shape (n,)): Times of all frames as in frames.csv. `frame_rate_hz`:
    Rate of the images, where there is no table of times.
    """

    def __init__(
        self,
        folder: Path,
        timestamps_s: Float64,
        frame_rate_hz: float | None,
        bits: int = FULL_BITS,
        timestamps: Path | None = None,
    ) -> None:
        self.path = folder
        if timestamps is not None or (folder / TIMESTAMPS_NAME).is_file():
            frame_rate_hz = None
        reader = ImageFolderReader(folder, timestamps=timestamps, frame_rate_hz=frame_rate_hz)
        self._bits = bits
        self._files = [image.path for image in reader.images]
        if len(self._files) != len(timestamps_s):
            raise VideoFileError(
                f"{folder}: found {len(self._files)} images, but {len(timestamps_s)} frames were "
                "analysed; remove images that cannot be read, and repeat the analysis"
            )

    def picture(self, frame: int) -> UInt8:
        """Return one frame: uint8, shape (height, width, 3), RGB."""
        if not 0 <= frame < len(self._files):
            raise VideoFileError(f"{self.path}: has no frame {frame}, only {len(self._files)}")
        try:
            return read_image(self._files[frame], bits=self._bits)
        except ImageFileError as error:
            raise VideoFileError(str(error)) from error

    def close(self) -> None:
        """Nothing stays open between two images."""


TIMESTAMPS_NAME = "timestamps.csv"


@dataclass(frozen=True)
class TimedImage:
    path: Path
    timestamp_s: float


class ImageFolderReader:
    """Reads the images of a folder in the order of their times.

    `timestamps`: a table with the columns ``file`` and ``timestamp_s`` (or ``timestamp_ms``);
    ``timestamps.csv`` in the folder when there is one and nothing else is said. `frame_rate_hz`:
    images per second in the order of the numbers in their names, where there is no table.
    """

    def __init__(
        self,
        folder: Path | str,
        *,
        timestamps: Path | str | None = None,
        frame_rate_hz: float | None = None,
        pixels: Literal["grey", "rgb"] = "grey",
        bits: int = FULL_BITS,
    ) -> None:
        self.path = Path(folder)
        self._grey = pixels == "grey"
        self.report = DecodingReport()
        self.images = self._timed(Path(timestamps) if timestamps else None, frame_rate_hz)
        self._bits = bits
        first = self._first_readable()
        height, width = first.shape[:2]
        steps_s = np.diff([image.timestamp_s for image in self.images])
        rate_hz = 1.0 / float(np.median(steps_s)) if len(steps_s) else None
        self.info = VideoInfo(
            path=self.path,
            container="images",
            codec=self.images[0].path.suffix.lower().lstrip("."),
            width_px=width,
            height_px=height,
            declared_frames=len(self.images),
            declared_rate_hz=rate_hz,
            duration_s=None,
        )

    def close(self) -> None:
        """Nothing stays open between two images."""

    def frames(self) -> Iterator[Frame]:
        """Yield the images that can be read; the others are counted."""
        report = self.report
        for image in self.images:
            try:
                picture = self._picture(image.path)
            except ImageFileError as error:
                report.decoding_errors += 1
                report.first_error = report.first_error or str(error)
                continue
            report.last_time_s = image.timestamp_s
            index = report.decoded_frames
            report.decoded_frames += 1
            yield Frame(index, image.timestamp_s, picture)
        if report.decoding_errors:
            report.warnings.append(
                f"{report.decoding_errors} of {len(self.images)} images cannot be read "
                f"({report.first_error})"
            )

    def _timed(self, timestamps: Path | None, frame_rate_hz: float | None) -> list[TimedImage]:
        try:
            images = list_images(self.path)
        except ImageFileError as error:
            raise VideoFileError(str(error)) from error
        beside = self.path / TIMESTAMPS_NAME
        if timestamps is None and frame_rate_hz is None and beside.is_file():
            timestamps = beside
        if timestamps is not None:
            self.report.times_from = f"table {timestamps.name}"
            timed, missing = read_timestamps(timestamps, self.path)
            if missing:
                self.report.warnings.append(
                    f"{count_words(len(missing), 'image')} of {timestamps.name} not in the folder "
                    f"({missing[0]} is the first)"
                )
            return timed
        if frame_rate_hz is None or not frame_rate_hz > 0:
            raise VideoFileError(
                f"{self.path}: found {len(images)} images without times; expected a table "
                f"{TIMESTAMPS_NAME} with the columns file and timestamp_s, or a frame rate"
            )
        self.report.times_from = f"frame rate {frame_rate_hz:g} Hz"
        images.sort(key=_natural_order)
        return [TimedImage(path, number / frame_rate_hz) for number, path in enumerate(images)]

    def _first_readable(self) -> UInt8:
        error: ImageFileError | None = None
        for image in self.images[:100]:
            try:
                return self._picture(image.path)
            except ImageFileError as problem:
                error = error or problem
        raise VideoFileError(f"{self.path}: no image can be read ({error})") from error

    def _picture(self, path: Path) -> UInt8:
        picture = read_image(path, bits=self._bits)
        if not self._grey:
            return picture
        import cv2

        return np.asarray(cv2.cvtColor(picture, cv2.COLOR_RGB2GRAY), dtype=np.uint8)


def read_timestamps(path: Path, folder: Path) -> tuple[list[TimedImage], list[str]]:
    """Read the times of images."""
    table = read_table(path)
    if "file" not in table.columns:
        raise TableFileError(
            path, [(1, f"the columns are {table.named()}; expected file and timestamp_s")]
        )
    times_s = table.times_s()
    _, first = np.unique(times_s, return_index=True)
    odd = sorted({*range(len(times_s))} - {*first.tolist()} | {*np.isnan(times_s).nonzero()[0]})
    if odd:
        text = "has no time, or that of another image"
        raise TableFileError(path, [(table.lines[index], text) for index in odd])
    names = table.cells("file")
    paths = [find_named(folder, name) for name in names]
    listed = [TimedImage(paths[index], float(times_s[index])) for index in first]
    images = [image for image in listed if image.path.is_file()]
    if not images:
        raise TableFileError(path, f"none of its {len(listed)} images is in {folder}")
    return images, [name for name, place in zip(names, paths, strict=True) if not place.is_file()]


def _natural_order(path: Path) -> list[tuple[int, str]]:
    """Order ``frame2`` before ``frame10``."""
    pieces = re.split(r"(\d+)", path.name)
    return [(int(word), "") if word.isdecimal() else (-1, word) for word in pieces]
