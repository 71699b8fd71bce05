"""Contact sheets: many faces of a data set on one picture, to be looked at."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import lru_cache
from itertools import islice, pairwise
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from PIL import Image, ImageDraw, ImageFont

from site_agent.datasets.landmark_schemes import PART_GROUPS, ibug_places
from site_agent.datasets.records import AnnotatedImage, FaceBox, FaceDataset
from site_agent.errors import AnnotationFileError, DatasetEditError, ImageFileError
from site_agent.pictures.images import read_image

UInt8 = NDArray[np.uint8]

_BOX_COLOUR, _POINT_COLOUR, _LINE_COLOUR = (255, 210, 0), (0, 255, 90), (0, 170, 255)
_IGNORED_COLOUR = (255, 90, 90)
_INK, _PAPER = (235, 235, 235), (25, 25, 25)
_GAP_PX = 2
# Through the lines that join landmarks the face stays to be seen.
_LINE_OPACITY = 150
_DASH_PX = 5
# What a tile shows, in sizes of its box.
_SURROUNDINGS = 1.8
# Landmarks in the order of their numbers are joined within these groups of the 68.
_JOINED = ("jaw", "right-brow", "left-brow", "right-eye", "left-eye", "outer-mouth", "inner-mouth")
_CLOSED = ("right-eye", "left-eye", "outer-mouth", "inner-mouth")


def sheet_paths(
    dataset: FaceDataset,
    output: Path | str,
    *,
    columns: int = 6,
    rows: int = 5,
    most_pages: int | None = None,
    whole_images: bool = False,
) -> list[Path]:
    """Return where `write_contact_sheets` writes each page; none where nothing is to be shown."""
    output = Path(output)
    pages = -(-len(_shown(dataset, whole_images=whole_images)) // (columns * rows))
    if most_pages is not None:
        pages = min(pages, most_pages)
    digits = len(str(pages))
    endings = ["" if page == 1 else f"-{page:0{digits}d}" for page in range(1, pages + 1)]
    suffix = output.suffix or ".png"
    return [output.with_name(f"{output.stem}{ending}{suffix}") for ending in endings]


def write_contact_sheets(
    dataset: FaceDataset,
    output: Path | str,
    *,
    columns: int = 6,
    rows: int = 5,
    tile_px: int = 200,
    most_pages: int | None = None,
    whole_images: bool = False,
    progress: Callable[[float, str], None] | None = None,
) -> list[Path]:
    """Write pictures of all faces with their boxes and landmarks, as many pages as it takes.

    Boxes are yellow, those to be ignored red and dashed; each tile says file and line.

    Parameters
    ----------
    dataset : FaceDataset
    output : Path or str
        PNG file; further pages are called ``name-2.png`` ..., as `sheet_paths` says.
    columns, rows : int
        Tiles on a page.
    tile_px : int
        Side of a tile.
    most_pages : int, optional
        Not more; the faces shown are then spread evenly over the data set.
    whole_images : bool
        A tile for each image, not for each face.
    progress : callable, optional
        Called with the fraction done and a text.

    Raises
    ------
    DatasetEditError
        Nothing to show, or a page cannot be written.
    AnnotationFileError
        An image cannot be read; names the annotation file and the line.
    """
    shown = _shown(dataset, whole_images=whole_images)
    if not shown:
        raise DatasetEditError(f"{dataset.path or 'the data set'} has nothing to show")
    per_page = columns * rows
    if most_pages is not None and len(shown) > most_pages * per_page:
        picks = np.linspace(0, len(shown) - 1, most_pages * per_page).round().astype(int)
        shown = [shown[i] for i in picks]
    tiles = _tiles(dataset, shown, tile_px)
    files = sheet_paths(
        dataset,
        output,
        columns=columns,
        rows=rows,
        most_pages=most_pages,
        whole_images=whole_images,
    )
    for page, file in enumerate(files, start=1):
        some = list(islice(tiles, per_page))
        try:
            Image.fromarray(arranged(some, columns, gap_px=_GAP_PX)).save(file, format="PNG")
        except OSError as error:
            raise DatasetEditError(f"{file} cannot be written: {error.strerror}") from error
        if progress is not None:
            progress(page / len(files), f"page {page} of {len(files)}")
    return files


def _shown(
    dataset: FaceDataset, *, whole_images: bool
) -> list[tuple[AnnotatedImage, FaceBox | None]]:
    """What there is for tiles: images without a box, or every face with its image."""
    if whole_images:
        return [(image, None) for image in dataset.images]
    return list(dataset.boxes(ignored=True))


def arranged(tiles: Sequence[UInt8], columns: int, *, gap_px: int = 0) -> UInt8:
    """Put tiles of one size, shape (H, W, 3), side by side, row by row."""
    high, wide = tiles[0].shape[:2]
    across = min(columns, len(tiles))
    down = -(-len(tiles) // across)
    size = (down * (high + gap_px) - gap_px, across * (wide + gap_px) - gap_px, 3)
    sheet = np.zeros(size, dtype=np.uint8)
    for i, tile in enumerate(tiles):
        y, x = i // across * (high + gap_px), i % across * (wide + gap_px)
        sheet[y : y + high, x : x + wide] = tile
    return sheet


def face_tile(
    picture: Image.Image,
    box: FaceBox,
    tile_px: int,
    *,
    marks: bool = True,
    surroundings: float = 2.0,
    others: Sequence[FaceBox] = (),
    caption: str = "",
) -> UInt8:
    """Draw the surroundings of a box, scaled to a square tile.

    Parameters
    ----------
    picture : PIL image, RGB
    box : FaceBox
    tile_px : int
    marks : bool
        Draw box and landmarks.
    surroundings : float
        What is shown, in sizes of the box.
    others : sequence of FaceBox
        Further boxes of the image, drawn where they reach into the tile.
    caption : str
        Written along the lower edge.
    """
    boxes = [*others, box] if marks else []
    return _tile(picture, _around(picture, box, surroundings), (tile_px, tile_px), boxes, caption)


def _around(picture: Image.Image, box: FaceBox, surroundings: float) -> tuple[int, int, int, int]:
    """A square about the box: inside the picture, unless the box itself reaches out of it."""
    length = max(box.width, box.height)
    side = surroundings * length
    left, top = (box.left + box.right - side) / 2, (box.top + box.bottom - side) / 2
    wide, high = picture.size
    inside = box.left >= 0 and box.top >= 0 and box.right < wide and box.bottom < high
    if inside and length <= min(wide, high):
        side = min(side, wide, high)
        left = min(max((box.left + box.right - side) / 2, 0.0), wide - side)
        top = min(max((box.top + box.bottom - side) / 2, 0.0), high - side)
    return round(left), round(top), round(left + side), round(top + side)


def _tiles(
    dataset: FaceDataset,
    shown: Sequence[tuple[AnnotatedImage, FaceBox | None]],
    tile_px: int,
) -> Iterator[UInt8]:
    opened: tuple[Path | None, Image.Image | None] = (None, None)
    for image, box in shown:
        if opened[0] != image.path:
            opened = (image.path, _picture(dataset, image))
        picture = opened[1]
        assert picture is not None
        if box is None:
            side = max(picture.size)
            left, top = (picture.width - side) // 2, (picture.height - side) // 2
            region = (left, top, left + side, top + side)
            caption = _caption(image, image.line)
            yield _tile(picture, region, (tile_px, tile_px), image.boxes, caption)
        else:
            others = [other for other in image.boxes if other is not box]
            caption = _caption(image, box.line)
            yield face_tile(
                picture,
                box,
                tile_px,
                surroundings=_SURROUNDINGS,
                others=others,
                caption=caption,
            )


def _caption(image: AnnotatedImage, line: int) -> str:
    return f"{image.path.name}:{line}" if line else image.path.name


def _picture(dataset: FaceDataset, image: AnnotatedImage) -> Image.Image:
    try:
        return Image.fromarray(read_image(image.path, apply_orientation=False))
    except ImageFileError as error:
        place = dataset.path or image.path
        problem = f"the image cannot be read: {error}"
        raise AnnotationFileError(place, image.line, problem) from error


def _tile(
    picture: Image.Image,
    region: tuple[int, int, int, int],
    size_px: tuple[int, int],
    boxes: Sequence[FaceBox],
    caption: str,
) -> UInt8:
    left, top, right, _ = region
    scale = size_px[0] / max(right - left, 1)
    tile = picture.crop(region).resize(size_px, Image.Resampling.BILINEAR)
    pen = ImageDraw.Draw(tile, "RGBA")
    for box in boxes:
        # The middle of a pixel lies half a pixel from its edge.
        corners = (box.left, box.top, box.right + 1, box.bottom + 1)
        edges = [
            (value - origin) * scale
            for value, origin in zip(corners, (left, top, left, top), strict=True)
        ]
        _draw_box(pen, edges, ignored=box.ignore)
        points = {
            name: ((x + 0.5 - left) * scale, (y + 0.5 - top) * scale)
            for name, (x, y) in box.parts.items()
        }
        _draw_parts(pen, points, box.width * scale)
    if caption:
        _draw_caption(pen, caption, size_px)
    return np.asarray(tile, dtype=np.uint8)


def _draw_box(pen: ImageDraw.ImageDraw, edges: Sequence[float], *, ignored: bool) -> None:
    left, top, right, bottom = edges
    if not ignored:
        pen.rectangle((left, top, right, bottom), outline=_BOX_COLOUR)
        return
    for x in np.arange(left, right, 2 * _DASH_PX):
        end = min(x + _DASH_PX, right)
        for y in (top, bottom):
            pen.line((x, y, end, y), fill=_IGNORED_COLOUR)
    for y in np.arange(top, bottom, 2 * _DASH_PX):
        end = min(y + _DASH_PX, bottom)
        for x in (left, right):
            pen.line((x, y, x, end), fill=_IGNORED_COLOUR)


def _draw_parts(
    pen: ImageDraw.ImageDraw, points: dict[str, tuple[float, float]], box_px: float
) -> None:
    names = sorted(points)
    for first, second in _joints(tuple(names)):
        pen.line((*points[first], *points[second]), fill=(*_LINE_COLOUR, _LINE_OPACITY))
    radius = min(2.0, max(0.8, box_px / 120))
    for x, y in points.values():
        pen.ellipse((x - radius, y - radius, x + radius, y + radius), fill=_POINT_COLOUR)


@lru_cache(maxsize=16)
def _joints(names: tuple[str, ...]) -> tuple[tuple[str, str], ...]:
    """Pairs of landmarks to join, where they are iBUG's: a wrong order shows at once."""
    places = ibug_places(names)
    joints = []
    for group in _JOINED:
        numbers = list(PART_GROUPS[group])
        pairs = list(pairwise(numbers))
        if group in _CLOSED:
            pairs.append((numbers[-1], numbers[0]))
        joints += [
            (names[places[a]], names[places[b]]) for a, b in pairs if a in places and b in places
        ]
    return tuple(joints)


def _draw_caption(pen: ImageDraw.ImageDraw, text: str, size_px: tuple[int, int]) -> None:
    font = ImageFont.load_default(max(9, size_px[1] // 16))
    while len(text) > 4 and pen.textlength(text, font=font) > size_px[0] - 4:
        text = f"\N{HORIZONTAL ELLIPSIS}{text[2:]}"
    _, top, _, bottom = pen.textbbox((0, 0), text, font=font)
    high = bottom - top + 4
    pen.rectangle((0, size_px[1] - high, size_px[0], size_px[1]), fill=_PAPER)
    pen.text((2, size_px[1] - high + 2 - top), text, fill=_INK, font=font)
