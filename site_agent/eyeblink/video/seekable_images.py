"""Single frames of a folder of images by their number, in any order."""

from __future__ import annotations

from pathlib import Path
from typing import Protocol

from site_agent.errors import ImageFileError, VideoFileError
from site_agent.eyeblink.records import Float64, UInt8
from site_agent.eyeblink.video.image_folder import TIMESTAMPS_NAME, ImageFolderReader
from site_agent.pictures.images import FULL_BITS, read_image


class SeekableFrames(Protocol):
    """A recording whose frames can be had in any order: a video, or a folder of images."""

    @property
    def path(self) -> Path: ...

    def picture(self, frame: int) -> UInt8: ...

    def close(self) -> None: ...


class SeekableImages:
    """Reads the images that are asked for.

    Parameters
    ----------
    folder : path
    timestamps_s : float64, shape (n,)
        Times of all frames as in frames.csv.
    frame_rate_hz : float or None
        Rate of the images, where the folder has no table of times.
    bits : int
        How many of 16 bits a pixel are used.

    Raises
    ------
    VideoFileError
        The images are not those of the analysis.
    """

    def __init__(
        self,
        folder: Path,
        timestamps_s: Float64,
        frame_rate_hz: float | None,
        bits: int = FULL_BITS,
    ) -> None:
        self.path = folder
        has_table = (folder / TIMESTAMPS_NAME).is_file()
        reader = ImageFolderReader(folder, frame_rate_hz=None if has_table else frame_rate_hz)
        self._bits = bits
        self._files = [image.path for image in reader.images]
        if len(self._files) != len(timestamps_s):
            raise VideoFileError(
                f"{folder}: found {len(self._files)} images, but {len(timestamps_s)} frames were "
                "analysed; remove images that cannot be read, and repeat the analysis"
            )

    def picture(self, frame: int) -> UInt8:
        """Return one frame: uint8, shape (height, width, 3), RGB.

        Raises
        ------
        VideoFileError
        """
        if not 0 <= frame < len(self._files):
            raise VideoFileError(f"{self.path}: has no frame {frame}, only {len(self._files)}")
        try:
            return read_image(self._files[frame], bits=self._bits)
        except ImageFileError as error:
            raise VideoFileError(str(error)) from error

    def close(self) -> None:
        """Nothing stays open between two images."""
