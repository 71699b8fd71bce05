"""Pictures as cameras store them that were held another way."""

from pathlib import Path

from PIL import ExifTags, Image

STORED: dict[int, Image.Transpose | None] = {
    1: None,
    2: Image.Transpose.FLIP_LEFT_RIGHT,
    3: Image.Transpose.ROTATE_180,
    4: Image.Transpose.FLIP_TOP_BOTTOM,
    5: Image.Transpose.TRANSPOSE,
    6: Image.Transpose.ROTATE_90,
    7: Image.Transpose.TRANSVERSE,
    8: Image.Transpose.ROTATE_270,
}
"""By EXIF orientation, how an upright picture is stored."""


def save_turned(upright: Image.Image, path: Path, orientation: int) -> Path:
    """Store a picture so that its EXIF orientation turns it upright."""
    exif, how = Image.Exif(), STORED[orientation]
    exif[ExifTags.Base.Orientation] = orientation
    stored = upright if how is None else upright.transpose(how)
    stored.save(path, exif=exif, quality=98)
    return path
