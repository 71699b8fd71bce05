"""Still images as arrays: the one door to OpenCV's decoders."""

from __future__ import annotations

from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from site_agent.errors import ImageFileError

UInt8 = NDArray[np.uint8]
Float64 = NDArray[np.float64]

IMAGE_SUFFIXES = frozenset(
    {".bmp", ".dib", ".jpeg", ".jpg", ".jpe", ".jp2", ".png", ".pbm", ".pgm", ".ppm", ".pnm"}
    | {".tif", ".tiff", ".webp", ".gif", ".avif"}
)
LARGEST_FILE_BYTES = 1 << 30


def read_image(path: Path | str, *, apply_orientation: bool = True) -> UInt8:
    """Read an image file.

    Parameters
    ----------
    path : path
        Any format that OpenCV decodes, told by its content. Grey and palette images, alpha (left
        out) and 16 bits a channel (the upper 8 are kept) all give 8-bit RGB.
    apply_orientation : bool
        Turn the picture as its EXIF data say. Annotated data must be read with False: dlib's
        tools, by which boxes and landmarks were drawn, ignore EXIF.

    Returns
    -------
    uint8, shape (height, width, 3)
        RGB.

    Raises
    ------
    ImageFileError
        With the file's name and the reason. A file that ends too early is refused, too, though
        OpenCV would fill the rest with grey.
    """
    import cv2

    path = Path(path)
    data = _read_bytes(path)
    missing = _missing_end(data)
    if missing:
        raise ImageFileError(f"{path}: the file ends too early ({missing}); copy it again")
    flags = cv2.IMREAD_COLOR
    if not apply_orientation:
        flags |= cv2.IMREAD_IGNORE_ORIENTATION
    try:
        image = cv2.imdecode(np.frombuffer(data, dtype=np.uint8), flags)
    except cv2.error as error:
        raise ImageFileError(f"{path}: cannot be decoded: {error.err or error}") from error
    if image is None:
        raise ImageFileError(
            f"{path}: found {_first_bytes(data)}, expected an image (JPEG, PNG, TIFF, BMP ...)"
        )
    return np.ascontiguousarray(image[:, :, ::-1], dtype=np.uint8)


def exif_orientation(path: Path | str) -> int:
    """Return how EXIF data say that a picture is stored: 1 upright, up to 8 (CIPA DC-008, 0x0112).

    1 where there are no such data, or the format is one that only OpenCV decodes.
    """
    from PIL import ExifTags, Image, UnidentifiedImageError

    try:
        with Image.open(path) as picture:
            orientation = picture.getexif().get(ExifTags.Base.Orientation, 1)
    except (OSError, UnidentifiedImageError, SyntaxError):
        return 1
    return orientation if orientation in range(1, 9) else 1


def as_stored(points: Float64, orientation: int, width_px: int, height_px: int) -> Float64:
    """Return where points of the upright picture are in the picture as it is stored.

    Parameters
    ----------
    points : float64, shape (n, 2)
        (x, y) in pixels.
    orientation : int
        As `exif_orientation` gives it.
    width_px, height_px : int
        Of the upright picture.
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


def list_images(path: Path | str) -> list[Path]:
    """Return the images of a folder in the order of their names, or the one file given.

    Raises
    ------
    ImageFileError
        When there is nothing there, or no image in the folder.
    """
    path = Path(path)
    if path.is_file():
        return [path]
    if not path.is_dir():
        raise ImageFileError(f"{path}: no such file or folder")
    found = sorted(
        entry
        for entry in path.iterdir()
        if entry.suffix.lower() in IMAGE_SUFFIXES and entry.is_file()
    )
    if not found:
        suffixes = ", ".join(sorted(IMAGE_SUFFIXES))
        raise ImageFileError(f"{path}: the folder holds no image ({suffixes})")
    return found


def _read_bytes(path: Path) -> bytes:
    try:
        if path.is_dir():
            raise ImageFileError(f"{path}: is a folder, expected an image file")
        size = path.stat().st_size
        if size == 0:
            raise ImageFileError(f"{path}: the file is empty")
        if size > LARGEST_FILE_BYTES:
            raise ImageFileError(
                f"{path}: {size} bytes, expected an image of at most {LARGEST_FILE_BYTES}"
            )
        return path.read_bytes()
    except OSError as error:
        raise ImageFileError(f"{path}: {error.strerror or error}") from error


def _missing_end(data: bytes) -> str:
    """Say which closing mark a JPEG or PNG file lacks; empty for a whole file."""
    if data.startswith(b"\xff\xd8\xff"):
        # Thumbnails have marks of their own, but they come before the last scan begins.
        if data.rfind(b"\xff\xd9") < data.rfind(b"\xff\xda"):
            return "no end-of-image marker"
    elif data.startswith(b"\x89PNG\r\n\x1a\n") and b"IEND" not in data[-4096:]:
        return "no IEND chunk"
    return ""


def _first_bytes(data: bytes) -> str:
    return f"a file that begins with the bytes {data[:8].hex(' ')}"
