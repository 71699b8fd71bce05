"""Still images as arrays: the one door to OpenCV's decoders."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, cast

import numpy as np
from numpy.typing import NDArray

from site_agent.errors import ImageFileError
from site_agent.pictures.sample_depth import FULL_BITS, Pixels, Samples, to_8_bits

if TYPE_CHECKING:
    from PIL.Image import Image

UInt8 = NDArray[np.uint8]
Float64 = NDArray[np.float64]

IMAGE_SUFFIXES = frozenset(
    {".bmp", ".dib", ".jpeg", ".jpg", ".jpe", ".jp2", ".png", ".pbm", ".pgm", ".ppm", ".pnm"}
    | {".tif", ".tiff", ".webp", ".gif", ".avif"}
)
LARGEST_FILE_BYTES = 1 << 30
FIRST_LYING = 5
"""EXIF orientations from here on exchange width and height."""

_LOOKED_AT = 9
# Behind FF: no filling, no FF of a scan's own, no mark between parts of a scan.
_JPEG_MARKER = re.compile(rb"\xff([^\x00\x01\xd0-\xd8\xff])", re.DOTALL)
_JPEG_END = 0xD9
_PNG_START = b"\x89PNG\r\n\x1a\n"


def read_image(
    path: Path | str, *, apply_orientation: bool = True, sample_bits: int | None = None
) -> UInt8:
    """Read an image file.

    Parameters
    ----------
    path : path
        Any format that OpenCV decodes, told by its content. Grey and palette images, alpha (left
        out) and 16 bits a channel all give 8-bit RGB.
    apply_orientation : bool
        Turn the picture as its EXIF data say. Annotated data must be read with False: dlib's
        tools, by which boxes and landmarks were drawn, ignore EXIF.
    sample_bits : int, optional
        How many of 16 bits a channel are used, of which the upper 8 are kept. When left out, 16;
        or 8, 10 or 12 where no sample reaches beyond (see `sample_depth`).

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
    path = Path(path)
    image = _decoded(path, apply_orientation=apply_orientation, deep=sample_bits != FULL_BITS)
    if image.dtype == np.uint16:
        bits = sample_bits or Samples.of([image]).used_bits()
        if bits == FULL_BITS:
            # OpenCV's own way to 8 bits, which rounds for some formats and cuts for others.
            image = _decoded(path, apply_orientation=apply_orientation, deep=False)
        else:
            image = to_8_bits(image, bits)
    return np.ascontiguousarray(image[:, :, ::-1], dtype=np.uint8)


def film_bits(paths: Sequence[Path | str]) -> int:
    """Return how many of 16 bits a channel the images of one film use: the same for all of them.

    Some images, spread evenly over the film, are looked at, those passed over that cannot be
    read; 16 also where one has 8 bits.
    """
    picked = np.linspace(0, len(paths) - 1, min(len(paths), _LOOKED_AT)).round().astype(int)
    pictures = []
    for index in picked:
        try:
            picture = _decoded(Path(paths[index]), apply_orientation=True, deep=True)
        except ImageFileError:
            continue
        if picture.dtype != np.uint16:
            return FULL_BITS
        pictures.append(picture)
    return Samples.of(pictures).used_bits()


def _decoded(path: Path, *, apply_orientation: bool, deep: bool) -> Pixels:
    """Return an image, BGR, of 8 bits; of 16 where it is `deep` and that is asked for."""
    import cv2

    data = _read_bytes(path)
    missing = _missing_end(data)
    if missing:
        raise ImageFileError(f"{path}: the file ends too early ({missing}); copy it again")
    flags = cv2.IMREAD_COLOR
    if not apply_orientation:
        flags |= cv2.IMREAD_IGNORE_ORIENTATION
    buffer = np.frombuffer(data, dtype=np.uint8)
    try:
        image = cv2.imdecode(buffer, flags | (cv2.IMREAD_ANYDEPTH if deep else 0))
        if image is not None and image.dtype not in (np.uint8, np.uint16):
            image = cv2.imdecode(buffer, flags)
    except cv2.error as error:
        raise ImageFileError(f"{path}: cannot be decoded: {error.err or error}") from error
    if image is None:
        raise ImageFileError(
            f"{path}: found {_first_bytes(data)}, expected an image (JPEG, PNG, TIFF, BMP ...)"
        )
    pixels = cast("Pixels", image)
    if not apply_orientation and data[:2] in (b"II", b"MM"):
        # OpenCV turns TIFF whatever it is asked for.
        pixels = _turned_back(pixels, exif_orientation(path))
    return pixels


def _turned_back(upright: Pixels, orientation: int) -> Pixels:
    """Undo the turn of a picture to the upright, shape (height, width, 3)."""
    if orientation >= FIRST_LYING:
        upright = upright.transpose(1, 0, 2)
    rows = -1 if orientation in (3, 4, 6, 7) else 1
    columns = -1 if orientation in (2, 3, 7, 8) else 1
    return upright[::rows, ::columns]


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


def stored_size(picture: Image) -> tuple[int, int]:
    """Return width and height of a picture as it is stored; Pillow turns TIFF by itself.

    To be asked before the pixels are loaded: the orientation is gone then.
    """
    from PIL import ExifTags

    width_px, height_px = picture.size
    orientation = picture.getexif().get(ExifTags.Base.Orientation, 1)
    if picture.format == "TIFF" and FIRST_LYING <= orientation <= 8:
        return height_px, width_px
    return width_px, height_px


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


def is_clutter(name: str) -> bool:
    """Tell what operating systems leave in folders: ``._one.jpg``, ``.DS_Store``, ``__MACOSX``."""
    return name.startswith(".") or name == "__MACOSX"


def list_images(path: Path | str) -> list[Path]:
    """Return the images of a folder in the order of their names, or the one file given.

    Of a folder those that are hidden are left out.

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
        if entry.suffix.lower() in IMAGE_SUFFIXES and not is_clutter(entry.name) and entry.is_file()
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
    """Say which closing mark a JPEG or PNG file lacks; empty for a whole file.

    What comes behind the first picture is not looked at: telephones append a video.
    """
    if data.startswith(b"\xff\xd8\xff"):
        return "" if _jpeg_ends(data) else "no end-of-image marker"
    if data.startswith(_PNG_START):
        return "" if _png_ends(data) else "no IEND chunk"
    return ""


def _jpeg_ends(data: bytes) -> bool:
    at = 2
    while (marker := _JPEG_MARKER.search(data, at)) is not None:
        if marker[1][0] == _JPEG_END:
            return True
        # Thumbnails lie inside a segment and are stepped over with it.
        at = marker.end() + max(2, int.from_bytes(data[marker.end() : marker.end() + 2], "big"))
    return False


def _png_ends(data: bytes) -> bool:
    at = len(_PNG_START)
    while at + 8 <= len(data):
        if data[at + 4 : at + 8] == b"IEND":
            return True
        at += 12 + int.from_bytes(data[at : at + 4], "big")
    return False


def _first_bytes(data: bytes) -> str:
    return f"a file that begins with the bytes {data[:8].hex(' ')}"
