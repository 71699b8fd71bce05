"""Contact sheets: many faces of a data set on one picture, to be looked at."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from PIL import Image

from site_agent.datasets.records import AnnotatedImage, FaceBox, FaceDataset, numbered_parts
from site_agent.datasets.sheets import arranged, face_tile
from site_agent.datasets.synthetic.canvas import UInt8
from site_agent.datasets.synthetic.portraits import RenderedFace
from site_agent.errors import SyntheticFaceError


def contact_sheet(
    faces: FaceDataset | Sequence[RenderedFace],
    output: Path | str | None = None,
    *,
    limit: int = 36,
    columns: int = 6,
    tile_px: int = 256,
    marks: bool = True,
) -> UInt8:
    """Put faces side by side.

    Parameters
    ----------
    faces : FaceDataset or sequence of RenderedFace
        Of a data set, `limit` boxes spread evenly over it are shown.
    output : Path or str, optional
        PNG file to write.
    limit, columns : int
        Faces at most, and in a row.
    tile_px : int
        Side of each tile.
    marks : bool
        Draw boxes and landmarks.

    Returns
    -------
    uint8, shape (H, W, 3)

    Raises
    ------
    SyntheticFaceError
        When there is no face, an image cannot be read or the sheet cannot be written.
    """
    if isinstance(faces, FaceDataset):
        every = list(faces.boxes())
        step = max(1, len(every) // limit)
        tiles = [
            face_tile(*_opened(image, box), tile_px, marks=marks)
            for image, box in every[::step][:limit]
        ]
    else:
        tiles = [
            face_tile(Image.fromarray(face.image), _box_of(face), tile_px, marks=marks)
            for face in faces[:limit]
        ]
    if not tiles:
        raise SyntheticFaceError("a contact sheet needs at least one face; the data set has none")
    sheet = arranged(tiles, columns)
    if output is not None:
        try:
            Image.fromarray(sheet).save(output)
        except (OSError, ValueError) as error:
            raise SyntheticFaceError(f"{output} cannot be written: {error}") from error
    return sheet


def _opened(image: AnnotatedImage, box: FaceBox) -> tuple[Image.Image, FaceBox]:
    try:
        with Image.open(image.path) as picture:
            return picture.convert("RGB"), box
    except OSError as error:
        raise SyntheticFaceError(f"{image.path} cannot be read: {error}") from error


def _box_of(face: RenderedFace) -> FaceBox:
    left, top, right, bottom = face.box
    parts = numbered_parts(face.landmarks)
    return FaceBox(left, top, right - left + 1, bottom - top + 1, parts)
