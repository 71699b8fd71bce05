"""Pictures of predictions: boxes and landmarks drawn over the image, to look at.

Small pictures are enlarged until the landmarks of a face are easy to see; strokes grow with the
face. Everything is light on a dark rim, so that it shows on any skin and background.
"""

import math
from collections.abc import Iterable
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from PIL import Image, ImageDraw, ImageFont

from aggregators.whole_file import whole_file
from site_agent.errors import InvalidInputError, writing_to
from site_agent.faces.prediction import ImagePrediction, PredictedFace
from site_agent.pictures.images import read_image, resized
from site_agent.pictures.plot_style import FOUND_RGB, TRUE_RGB
from site_agent.work.files import file_identity

UInt8 = NDArray[np.uint8]

_READABLE_FACE_PX = 220
_LONGEST_ENLARGED_PX = 2400
_RIM_COLOUR = (0, 0, 0)
_SUBPIXEL_BITS = 4
_LARGEST_COORDINATE = 1 << 20


def draw_overlay(image: UInt8, faces: Iterable[PredictedFace]) -> UInt8:
    """Draw boxes, scores and landmarks over a copy of an RGB image.

    The copy is enlarged by a whole number, 1 for images with large faces.
    """
    faces = list(faces)
    scale = _enlargement(image.shape[1], image.shape[0], faces)
    canvas = resized(image, scale).copy()
    for face in faces:
        _draw_face(canvas, face, scale)
    picture = Image.fromarray(canvas)
    for face in faces:  # on top of all boxes
        if face.score is not None:
            _draw_score(picture, face, scale)
    return np.array(picture)


def overlay_paths(images: Iterable[Path], folder: Path | str) -> list[Path]:
    """Return where the picture of each image goes: named after it, and each name once."""
    images, folder = list(images), Path(folder)
    originals = {file_identity(image) for image in set(images)} - {None}
    paths: list[Path] = []
    used: set[str] = set()
    counts: dict[str, int] = {}
    for image in images:
        stem = image.stem
        name, number = f"{stem}.png", counts.get(stem, 1)
        # Images of several folders may share a name; so may names that differ in case.
        while name.lower() in used:
            number += 1
            name = f"{stem}-{number}.png"
        counts[stem] = number
        used.add(name.lower())
        paths.append(folder / name)
        if file_identity(paths[-1]) in originals:
            raise InvalidInputError(
                f"{paths[-1]}: is one of the images themselves; overlays need another folder"
            )
    return paths


def write_overlays(predictions: Iterable[ImagePrediction], folder: Path | str) -> list[Path]:
    """Write a PNG with the predictions drawn in for each image, named as `overlay_paths` says.

    Files of these names are replaced, the images themselves never.
    """
    predictions, folder = list(predictions), Path(folder)
    written: list[Path] = []
    paths = overlay_paths((prediction.path for prediction in predictions), folder)
    with writing_to(folder):
        folder.mkdir(parents=True, exist_ok=True)
        for prediction, path in zip(predictions, paths, strict=True):
            if prediction.problem:
                continue
            image = read_image(prediction.path, apply_orientation=prediction.upright)
            _write_png(draw_overlay(image, prediction.faces), path)
            written.append(path)
    return written


def _write_png(image: UInt8, path: Path) -> None:
    with whole_file(path) as file:
        Image.fromarray(image).save(file, format="PNG", compress_level=4)


def _enlargement(width: int, height: int, faces: list[PredictedFace]) -> int:
    if not faces:
        return 1
    smallest = min(_face_size(face) for face in faces)
    factor = math.ceil(_READABLE_FACE_PX / max(1.0, smallest))
    return max(1, min(factor, _LONGEST_ENLARGED_PX // max(width, height)))


def _face_size(face: PredictedFace) -> float:
    left, top, right, bottom = face.box
    return math.sqrt(max(1.0, (right - left + 1) * (bottom - top + 1)))


def _draw_face(canvas: UInt8, face: PredictedFace, scale: int) -> None:
    import cv2

    size = _face_size(face) * scale
    stroke = round(min(6.0, max(1.5, size / 120)))
    left, top, right, bottom = face.box
    corners = np.array([[left, top], [right + 1, bottom + 1]]) * scale - [[0], [1]]
    first, last = _fixed_point(corners, 0)
    # A box without a score is of the data set.
    box_colour = TRUE_RGB if face.score is None else FOUND_RGB
    for colour, width in ((_RIM_COLOUR, stroke + 2), (box_colour, stroke)):
        cv2.rectangle(canvas, first, last, colour, width)
    if face.landmarks is None:
        return
    radius = min(8.0, max(1.2, size / 130))
    # Pixel (x, y) of the image covers scale x scale pixels of the canvas.
    centres = _fixed_point((face.landmarks + 0.5) * scale - 0.5, _SUBPIXEL_BITS)
    for colour, reach in ((_RIM_COLOUR, radius + 1), (FOUND_RGB, radius)):
        fixed_reach = round(reach * (1 << _SUBPIXEL_BITS))
        for centre in centres:
            cv2.circle(canvas, centre, fixed_reach, colour, -1, cv2.LINE_AA, _SUBPIXEL_BITS)


def _fixed_point(points: NDArray[np.float64], bits: int) -> list[tuple[int, int]]:
    """Return (x, y) as OpenCV takes them, with `bits` of a fraction."""
    limited = np.clip(points, -_LARGEST_COORDINATE, _LARGEST_COORDINATE)
    return [(int(x), int(y)) for x, y in np.rint(limited * (1 << bits))]


def _draw_score(picture: Image.Image, face: PredictedFace, scale: int) -> None:
    """Write the score above the box, or just inside it where there is no room above."""
    pen = ImageDraw.Draw(picture)
    font = ImageFont.load_default(size=min(48, max(11, _face_size(face) * scale / 14)))
    text, (left, top) = f"{face.score:.2f}", (round(value * scale) for value in face.box[:2])
    width, height = (math.ceil(value) + 6 for value in pen.textbbox((0, 0), text, font)[2:])
    x = min(max(0, left), max(0, picture.width - width))
    y = top - height if top >= height else min(max(0, top), max(0, picture.height - height))
    pen.rectangle((x, y, x + width - 1, y + height - 1), fill=_RIM_COLOUR)
    pen.text((x + 3, y + 2), text, font=font, fill=FOUND_RGB)
