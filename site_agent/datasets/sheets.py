"""Contact sheets: many faces of a data set on one picture."""

from collections.abc import Iterator, Sequence
from itertools import islice
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from PIL import Image, ImageDraw, ImageFont

from aggregators.pictures import FACE_LINES
from site_agent.datasets.landmark_schemes import ibug_places
from site_agent.datasets.records import AnnotatedImage, FaceBox, FaceDataset
from site_agent.errors import AnnotationFileError, ImageFileError, InvalidInputError, writing_to
from site_agent.pictures.images import read_image
from site_agent.pictures.plot_style import INK_RGB, PAPER_RGB, TRUE_RGB
from site_agent.work import Progress, no_progress

UInt8 = NDArray[np.uint8]

_LINE_COLOUR = (0, 170, 255)
_IGNORED_COLOUR = (255, 90, 90)
_GAP_PX = 2
# Through the lines that join landmarks the face stays to be seen.
_LINE_OPACITY = 150
# Extent of a tile, in sizes of its box.
_SURROUNDINGS = 1.8
_COLUMNS, _TILES, _TILE_PX = 6, 30, 200


def sheet_paths(dataset: FaceDataset, output: Path | str) -> list[Path]:
    """Return where `write_contact_sheets` writes each page; none without faces to show."""
    output = Path(output)
    pages = -(-len(list(dataset.boxes(ignored=True))) // _TILES)
    digits = len(str(pages))
    endings = ["" if page == 1 else f"-{page:0{digits}d}" for page in range(1, pages + 1)]
    suffix = output.suffix or ".png"
    return [output.with_name(f"{output.stem}{ending}{suffix}") for ending in endings]


def write_contact_sheets(
    dataset: FaceDataset, output: Path | str, progress: Progress = no_progress
) -> list[Path]:
    """Write pictures of all faces with their boxes and landmarks, on one or more pages.

    Boxes are yellow, ignored ones red; the caption of each tile is the file and the line.

    `output`: PNG file; further pages are called ``name-2.png`` ..., as `sheet_paths` says.
    """
    shown = list(dataset.boxes(ignored=True))
    if not shown:
        raise InvalidInputError(f"{dataset.path or 'the data set'} has nothing to show")
    tiles = _tiles(dataset, shown)
    files = sheet_paths(dataset, output)
    for page, file in enumerate(files, start=1):
        with writing_to(file):
            Image.fromarray(_arranged(list(islice(tiles, _TILES)))).save(file, format="PNG")
        progress(page / len(files), f"page {page} of {len(files)}")
    return files


def _arranged(tiles: Sequence[UInt8]) -> UInt8:
    high, wide = tiles[0].shape[:2]
    across = min(_COLUMNS, len(tiles))
    down = -(-len(tiles) // across)
    size = (down * (high + _GAP_PX) - _GAP_PX, across * (wide + _GAP_PX) - _GAP_PX, 3)
    sheet = np.zeros(size, dtype=np.uint8)
    for i, tile in enumerate(tiles):
        y, x = i // across * (high + _GAP_PX), i % across * (wide + _GAP_PX)
        sheet[y : y + high, x : x + wide] = tile
    return sheet


def surroundings(picture: Image.Image, box: FaceBox) -> tuple[int, int, int, int]:
    """Return a square about the box, inside the picture unless the box itself is not.

    Left, top, right, bottom, half-open.
    """
    length = max(box.width, box.height)
    side = _SURROUNDINGS * length
    left, top = (box.left + box.right - side) / 2, (box.top + box.bottom - side) / 2
    wide, high = picture.size
    inside = box.left >= 0 and box.top >= 0 and box.right < wide and box.bottom < high
    if inside and length <= min(wide, high):
        side = min(side, wide, high)
        left = min(max((box.left + box.right - side) / 2, 0.0), wide - side)
        top = min(max((box.top + box.bottom - side) / 2, 0.0), high - side)
    return round(left), round(top), round(left + side), round(top + side)


def _tiles(
    dataset: FaceDataset, shown: Sequence[tuple[AnnotatedImage, FaceBox]]
) -> Iterator[UInt8]:
    opened: tuple[Path | None, Image.Image | None] = (None, None)
    for image, box in shown:
        if opened[0] != image.path:
            opened = (image.path, _picture(dataset, image))
        picture = opened[1]
        assert picture is not None
        boxes = [*(other for other in image.boxes if other is not box), box]
        caption = f"{image.path.name}:{box.line}" if box.line else image.path.name
        yield _tile(picture, surroundings(picture, box), boxes, caption)


def _picture(dataset: FaceDataset, image: AnnotatedImage) -> Image.Image:
    try:
        return Image.fromarray(read_image(image.path, apply_orientation=False))
    except ImageFileError as error:
        place = dataset.path or image.path
        problem = f"the image cannot be read: {error}"
        raise AnnotationFileError(place, image.line, problem) from error


def _tile(
    picture: Image.Image, region: tuple[int, int, int, int], boxes: Sequence[FaceBox], caption: str
) -> UInt8:
    left, top, right, _ = region
    scale = _TILE_PX / max(right - left, 1)
    tile = picture.crop(region).resize((_TILE_PX, _TILE_PX), Image.Resampling.BILINEAR)
    pen = ImageDraw.Draw(tile, "RGBA")
    for box in boxes:
        # The middle of a pixel lies half a pixel from its edge.
        corners = (box.left, box.top, box.right + 1, box.bottom + 1)
        edges = [
            (value - origin) * scale
            for value, origin in zip(corners, (left, top, left, top), strict=True)
        ]
        pen.rectangle(edges, outline=_IGNORED_COLOUR if box.ignore else TRUE_RGB)
        points = {
            name: ((x + 0.5 - left) * scale, (y + 0.5 - top) * scale)
            for name, (x, y) in box.parts.items()
        }
        _draw_parts(pen, points, box.width * scale)
    _draw_caption(pen, caption)
    return np.asarray(tile, dtype=np.uint8)


def _draw_parts(
    pen: ImageDraw.ImageDraw, points: dict[str, tuple[float, float]], box_px: float
) -> None:
    names = sorted(points)
    places = ibug_places(names)
    # Joined in the order of their numbers, so that a wrong order shows at once.
    for numbers, closed in FACE_LINES:
        known = [points[names[places[number]]] for number in numbers if number in places]
        if len(known) == len(numbers):
            line = [*known, known[0]] if closed else known
            pen.line(line, fill=(*_LINE_COLOUR, _LINE_OPACITY))
    radius = min(2.0, max(0.8, box_px / 120))
    for x, y in points.values():
        pen.ellipse((x - radius, y - radius, x + radius, y + radius), fill=TRUE_RGB)


def _draw_caption(pen: ImageDraw.ImageDraw, text: str) -> None:
    font = ImageFont.load_default(_TILE_PX // 16)
    while len(text) > 4 and pen.textlength(text, font=font) > _TILE_PX - 4:
        text = f"\N{HORIZONTAL ELLIPSIS}{text[2:]}"
    _, top, _, bottom = pen.textbbox((0, 0), text, font=font)
    high = bottom - top + 4
    pen.rectangle((0, _TILE_PX - high, _TILE_PX, _TILE_PX), fill=PAPER_RGB)
    pen.text((2, _TILE_PX - high + 2 - top), text, fill=INK_RGB, font=font)
