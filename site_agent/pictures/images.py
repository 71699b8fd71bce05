"""Still images as arrays: the one door to OpenCV's decoders."""

import io
import logging
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from PIL import ExifTags, Image, UnidentifiedImageError

from site_agent.errors import ImageFileError

UInt8 = NDArray[np.uint8]
Float64 = NDArray[np.float64]
IMAGE_SUFFIXES = frozenset(
    {".bmp", ".dib", ".jpeg", ".jpg", ".jpe", ".jp2", ".png", ".pbm", ".pgm", ".ppm", ".pnm"}
    | {".tif", ".tiff", ".webp", ".gif", ".avif"}
)
# Pillow imports its formats at the first picture; threads that read pictures met that half-way.
Image.init()
_log = logging.getLogger(__name__)
# The largest sample of 12 bits when the upper 8 of 16 are kept.
_MOST_OF_12_BITS = 15
_warned: list[Path] = []
FIRST_LYING = 5
"""The first EXIF orientation that exchanges width and height; so do all above."""


def read_image(path: Path | str, *, apply_orientation: bool = True) -> UInt8:
    """Read an image file.

    `path`: Any format that OpenCV decodes, recognised by its content. Grey and palette images,
    alpha (left out) and 16 bits a channel all give 8-bit RGB. `apply_orientation`: Turn the picture
    upright by its EXIF data. Annotated data must be read with False: dlib's tools, by which boxes
    and landmarks were drawn, ignore EXIF.

    Returns uint8, shape (height, width, 3): RGB.

    Raises `ImageFileError`: with the file's name and the reason, also for a JPEG or PNG file that
    ends too early.
    """
    import cv2

    path = Path(path)
    try:
        data = path.read_bytes()
    except OSError as error:
        raise ImageFileError(f"{path}: {error.strerror or error}") from error
    _require_complete(path, data)
    flags = cv2.IMREAD_COLOR
    if not apply_orientation:
        flags |= cv2.IMREAD_IGNORE_ORIENTATION
    try:
        image = cv2.imdecode(np.frombuffer(data, dtype=np.uint8), flags)
    except cv2.error as error:
        raise ImageFileError(f"{path}: cannot be decoded: {error.err or error}") from error
    if image is None:
        raise ImageFileError(f"{path}: is not an image (JPEG, PNG, TIFF, BMP ...)")
    if not _warned and image.max() <= _MOST_OF_12_BITS:
        _warn_of_fewer_bits(path, data)
    return np.ascontiguousarray(image[:, :, ::-1], dtype=np.uint8)


def _warn_of_fewer_bits(path: Path, data: bytes) -> None:
    """Warn, once a process, of an almost black picture of a camera with 12 bits or fewer."""
    import cv2

    deep = cv2.imdecode(np.frombuffer(data, dtype=np.uint8), cv2.IMREAD_ANYDEPTH)
    if deep is not None and deep.dtype == np.uint16 and deep.max() > _MOST_OF_12_BITS:
        _warned.append(path)
        _log.warning(
            f"{path}: only {int(deep.max()).bit_length()} of its 16 bits are used, so it is read "
            "almost black; multiply the samples so that they use 16 bits"
        )


def _require_complete(path: Path, data: bytes) -> None:
    """Refuse a file that ends too early: OpenCV fills the rest with grey."""
    try:
        with Image.open(io.BytesIO(data)) as picture:
            if picture.format == "PNG":
                picture.verify()
            elif picture.format == "JPEG":
                picture.draft("L", (1, 1))  # decode as coarsely as possible
                picture.load()
    except UnidentifiedImageError:
        return  # OpenCV knows more formats
    except (OSError, SyntaxError, EOFError) as error:
        raise ImageFileError(f"{path}: the file is damaged ({error}); copy it again") from error


def exif_orientation(path: Path | str) -> int:
    """Return how a picture is stored by its EXIF data: 1 upright, up to 8 (CIPA DC-008, 0x0112).

    1 without such data, or where the format is one that only OpenCV decodes.
    """
    try:
        with Image.open(path) as picture:
            return orientation_of(picture)
    except (OSError, SyntaxError):
        return 1


def orientation_of(picture: Image.Image) -> int:
    """Return the EXIF orientation of an open picture, as `exif_orientation` does."""
    orientation = picture.getexif().get(ExifTags.Base.Orientation, 1)
    return int(orientation) if orientation in range(1, 9) else 1


def as_stored(points: Float64, orientation: int, width_px: int, height_px: int) -> Float64:
    """Return where points (x, y) of the upright picture are in the picture as it is stored.

    `orientation` is as from `exif_orientation`; width and height are those of the upright picture.
    """
    x, y = points[:, 0], points[:, 1]
    right, bottom = width_px - 1 - x, height_px - 1 - y
    places = {
        1: (x, y),
        2: (right, y),
        3: (right, bottom),
        4: (x, bottom),
        5: (y, x),
        6: (y, right),
        7: (bottom, right),
        8: (bottom, x),
    }
    return np.stack(places[orientation], axis=1)


def resized(image: UInt8, factor: float) -> UInt8:
    """Return the image `factor` times as large; averaging over areas where it gets smaller."""
    import cv2

    height, width = image.shape[:2]
    size = (max(1, round(width * factor)), max(1, round(height * factor)))
    if size == (width, height):
        return image
    method = cv2.INTER_AREA if factor < 1 else cv2.INTER_LINEAR
    return np.asarray(cv2.resize(image, size, interpolation=method), dtype=np.uint8)


def is_clutter(name: str) -> bool:
    """Return whether a file is hidden or left by an operating system (``__MACOSX``)."""
    return name.startswith(".") or name == "__MACOSX"


def list_images(path: Path | str) -> list[Path]:
    """Return the images of a folder in the order of their names, or the one file given.

    Hidden files are left out.
    """
    path = Path(path)
    if path.is_file():
        return [path]
    if not path.is_dir():
        raise ImageFileError(f"{path}: no such file or folder")
    images = sorted(
        entry
        for entry in path.iterdir()
        if entry.suffix.lower() in IMAGE_SUFFIXES and not is_clutter(entry.name) and entry.is_file()
    )
    if not images:
        suffixes = ", ".join(sorted(IMAGE_SUFFIXES))
        raise ImageFileError(f"{path}: the folder holds no image; expected files of {suffixes}")
    return images
