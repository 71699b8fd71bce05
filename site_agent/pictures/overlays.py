"""Pictures of predictions: boxes and landmarks drawn over the image, to look at.

Small pictures are enlarged until faces are large enough to see the landmarks; strokes grow with
the face. Everything is drawn with soft edges, light on a dark rim, so that it shows on any skin
and background.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from aggregators.whole_file import whole_file
from site_agent.errors import PredictionInputError
from site_agent.faces.prediction import ImagePrediction, PredictedFace
from site_agent.pictures.images import read_image
from site_agent.runs.file_identity import file_identity

UInt8 = NDArray[np.uint8]

_READABLE_FACE_PX = 220
_LONGEST_ENLARGED_PX = 2400
_BOX_COLOUR = (255, 176, 0)
_LANDMARK_COLOUR = (80, 255, 200)
_RIM_COLOUR = (0, 0, 0)


def draw_overlay(image: UInt8, faces: Iterable[PredictedFace]) -> UInt8:
    """Draw boxes, scores and landmarks over an image.

    Parameters
    ----------
    image : uint8, shape (height, width, 3)
        RGB; left as it is.
    faces : iterable of PredictedFace
        In pixels of the image.

    Returns
    -------
    uint8, shape (n * height, n * width, 3)
        Enlarged by a whole number n, 1 for images with large faces.
    """
    faces = list(faces)
    scale = _enlargement(image.shape[1], image.shape[0], faces)
    canvas = np.array(image)
    if scale > 1:
        canvas = _enlarged(image, scale)
    for face in faces:
        _draw_face(canvas, face, scale)
    for face in faces:  # on top of all boxes
        if face.score is not None:
            left, top = face.box[0] * scale, face.box[1] * scale
            _draw_text(canvas, f"{face.score:.2f}", left, top, _face_size(face) * scale)
    return canvas


def overlay_paths(images: Iterable[Path], folder: Path | str) -> list[Path]:
    """Return where the picture of each image goes: named after it, and each name once.

    Raises
    ------
    PredictionInputError
        One of them is an image that is to be drawn into, such as a photograph in the same folder.
    """
    images, folder = list(images), Path(folder)
    own = {file_identity(image) for image in set(images)} - {None}
    paths: list[Path] = []
    taken: set[str] = set()
    counts: dict[str, int] = {}
    for image in images:
        stem = image.stem
        name, number = f"{stem}.png", counts.get(stem, 1)
        # Images of several folders may share a name; so may names that differ in case.
        while name.lower() in taken:
            number += 1
            name = f"{stem}-{number}.png"
        counts[stem] = number
        taken.add(name.lower())
        paths.append(folder / name)
        if file_identity(paths[-1]) in own:
            raise PredictionInputError(
                f"{paths[-1]}: is one of the images themselves; overlays need another folder"
            )
    return paths


def write_overlays(predictions: Iterable[ImagePrediction], folder: Path | str) -> list[Path]:
    """Write a PNG with the predictions drawn in for each image, named as `overlay_paths` says.

    Files of these names are replaced, the images themselves never.

    Raises
    ------
    PredictionInputError
        The folder cannot be written, or is where the images are.
    """
    predictions, folder = list(predictions), Path(folder)
    written: list[Path] = []
    paths = overlay_paths((each.path for each in predictions), folder)
    try:
        folder.mkdir(parents=True, exist_ok=True)
        for prediction, path in zip(predictions, paths, strict=True):
            if prediction.problem:
                continue
            image = read_image(prediction.path, apply_orientation=prediction.upright)
            _write_png(draw_overlay(image, prediction.faces), path)
            written.append(path)
    except OSError as error:
        raise PredictionInputError(
            f"{folder}: overlays cannot be written: {error.strerror or error}"
        ) from error
    return written


def _write_png(image: UInt8, path: Path) -> None:
    from PIL import Image

    with whole_file(path) as file:
        Image.fromarray(image).save(file, format="PNG", compress_level=4)


def _enlargement(width: int, height: int, faces: list[PredictedFace]) -> int:
    if not faces:
        return 1
    smallest = min(_face_size(face) for face in faces)
    wanted = math.ceil(_READABLE_FACE_PX / max(1.0, smallest))
    return max(1, min(wanted, _LONGEST_ENLARGED_PX // max(width, height)))


def _enlarged(image: UInt8, scale: int) -> UInt8:
    from PIL import Image

    height, width = image.shape[:2]
    larger = Image.fromarray(image).resize(
        (width * scale, height * scale), Image.Resampling.BICUBIC
    )
    return np.array(larger)


def _face_size(face: PredictedFace) -> float:
    left, top, right, bottom = face.box
    return math.sqrt(max(1.0, (right - left + 1) * (bottom - top + 1)))


def _draw_face(canvas: UInt8, face: PredictedFace, scale: int) -> None:
    size = _face_size(face) * scale
    stroke = min(6.0, max(1.5, size / 120))
    left, top, right, bottom = face.box
    # Pixel (x, y) of the image covers scale x scale pixels of the canvas.
    edges = (left * scale, top * scale, (right + 1) * scale - 1, (bottom + 1) * scale - 1)
    _draw_frame(canvas, edges, stroke + 2, _RIM_COLOUR)
    _draw_frame(canvas, edges, stroke, _BOX_COLOUR)
    if face.landmarks is not None:
        radius = min(8.0, max(1.2, size / 130))
        centres = (face.landmarks + 0.5) * scale - 0.5
        for x, y in centres:
            _draw_disc(canvas, x, y, radius + 1.0, _RIM_COLOUR)
        for x, y in centres:
            _draw_disc(canvas, x, y, radius, _LANDMARK_COLOUR)


def _draw_disc(canvas: UInt8, x: float, y: float, radius: float, colour: tuple[int, ...]) -> None:
    window = _window(canvas, x - radius - 1, y - radius - 1, x + radius + 1, y + radius + 1)
    if window is None:
        return
    rows, columns = window
    distance = np.hypot(
        np.arange(columns.start, columns.stop)[None, :] - x,
        np.arange(rows.start, rows.stop)[:, None] - y,
    )
    _blend(canvas, window, np.clip(radius + 0.5 - distance, 0, 1), colour)


def _draw_frame(
    canvas: UInt8,
    edges: tuple[float, float, float, float],
    stroke: float,
    colour: tuple[int, ...],
) -> None:
    """Draw the outline of a rectangle, `stroke` pixels wide, centred on its edges."""
    half = stroke / 2
    left, top, right, bottom = edges
    for x1, y1, x2, y2 in (
        (left - half, top - half, right + half, top + half),
        (left - half, bottom - half, right + half, bottom + half),
        (left - half, top + half, left + half, bottom - half),
        (right - half, top + half, right + half, bottom - half),
    ):
        window = _window(canvas, x1 - 1, y1 - 1, x2 + 1, y2 + 1)
        if window is None:
            continue
        rows, columns = window
        across = _coverage(columns, x1, x2)
        down = _coverage(rows, y1, y2)
        _blend(canvas, window, down[:, None] * across[None, :], colour)


def _coverage(pixels: slice, start: float, end: float) -> NDArray[np.float64]:
    """How much of each pixel lies between two coordinates."""
    centres = np.arange(pixels.start, pixels.stop)
    covered = np.minimum(centres + 0.5, end + 0.5) - np.maximum(centres - 0.5, start - 0.5)
    clipped: NDArray[np.float64] = np.clip(covered, 0.0, 1.0)
    return clipped


def _draw_text(canvas: UInt8, text: str, left: float, top: float, face_size: float) -> None:
    from PIL import Image, ImageDraw, ImageFont

    font = ImageFont.load_default(size=min(48, max(11, face_size / 14)))
    bounds = [round(value) for value in font.getbbox(text)]
    width, height = bounds[2] + 6, bounds[3] + 6
    label = Image.new("RGB", (width, height), _RIM_COLOUR)
    ImageDraw.Draw(label).text((3, 2), text, font=font, fill=_BOX_COLOUR)
    # Above the box, or just inside it where there is no room above.
    x = min(max(0, round(left)), max(0, canvas.shape[1] - width))
    y = round(top) - height
    if y < 0:
        y = min(max(0, round(top)), max(0, canvas.shape[0] - height))
    target = canvas[y : y + height, x : x + width]
    if target.size:
        target[:] = np.array(label)[: target.shape[0], : target.shape[1]]


def _window(
    canvas: UInt8, left: float, top: float, right: float, bottom: float
) -> tuple[slice, slice] | None:
    """Rows and columns of the canvas inside a rectangle, None where there are none."""
    values = (left, top, right, bottom)
    if not all(math.isfinite(value) for value in values):
        return None
    x1, y1 = max(0, math.floor(left)), max(0, math.floor(top))
    x2 = min(canvas.shape[1], math.ceil(right) + 1)
    y2 = min(canvas.shape[0], math.ceil(bottom) + 1)
    return (slice(y1, y2), slice(x1, x2)) if x2 > x1 and y2 > y1 else None


def _blend(
    canvas: UInt8,
    window: tuple[slice, slice],
    coverage: NDArray[np.floating],
    colour: tuple[int, ...],
) -> None:
    part = canvas[window].astype(np.float64)
    share = coverage[..., None]
    canvas[window] = np.rint(part * (1 - share) + np.array(colour) * share).astype(np.uint8)
