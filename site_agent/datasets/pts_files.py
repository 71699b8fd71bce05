"""Landmarks in ``.pts`` files, one face a file, next to the image of the same name.

::

    version: 1
    n_points: 68
    {
    336.820955 240.864510
    ...
    }

The header and the braces may be absent. By the convention of 300-W (and of Matlab) the centre of
the upper left pixel is (1, 1), while everything else here
calls it (0, 0); so 1 is taken off when a file is read. Files that count from 0 are read with
``origin=0``. A landmark of ``nan nan`` is not marked.
"""

import math
import re
from collections.abc import Iterator
from functools import lru_cache
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from site_agent.datasets.records import AnnotatedImage, FaceBox, FaceDataset, numbered_parts
from site_agent.errors import AnnotationFileError, TableFileError
from site_agent.named_files import plain_name
from site_agent.pictures.images import IMAGE_SUFFIXES, is_clutter
from site_agent.text_tables import read_text

Float64 = NDArray[np.float64]

DEFAULT_ORIGIN = 1
DEFAULT_MARGIN = 0.1
_LARGEST_COORDINATE_PX = 1_000_000
_VERSION = re.compile(r"version\s*:.*", re.IGNORECASE)
_COUNT = re.compile(r"n_points\s*:\s*([0-9]+)", re.IGNORECASE)


def read_pts(path: Path | str, *, origin: float = DEFAULT_ORIGIN) -> Float64:
    """Read one file.

    `origin` is the coordinate of the centre of the upper left pixel in the file: 1 in 300-W.

    Returns float64, shape (points, 2): (x, y) in pixels from the centre of the upper left pixel;
    NaN where a landmark is not marked.
    """
    path = Path(path)
    try:
        lines = read_text(path)[0].split("\n")
    except TableFileError as error:
        problem = f"cannot be read as landmarks (.pts): {error.problems[0][1]}"
        raise AnnotationFileError(path, 0, problem) from error
    points = []
    declared = None
    for number, line in enumerate(lines, start=1):
        if match := _COUNT.fullmatch(line.strip()):
            declared = int(match[1])
        elif line.strip() not in ("", "{", "}") and not _VERSION.fullmatch(line.strip()):
            points.append(_point(path, number, line))
    if declared not in (None, len(points)):
        problem = f"has {len(points)} landmarks, while n_points is {declared}"
        raise AnnotationFileError(path, 0, problem)
    if not points:
        raise AnnotationFileError(path, 0, "has no landmarks; expected lines of x and y")
    return np.array(points, dtype=np.float64) - origin


def find_pts(folder: Path) -> Iterator[Path]:
    """Yield the ``.pts`` files of a folder and of those below it, hidden ones left out."""
    for path in folder.rglob("*.[pP][tT][sS]"):
        if not any(is_clutter(part) for part in path.relative_to(folder).parts):
            yield path


def read_pts_folder(
    path: Path | str, *, origin: float = DEFAULT_ORIGIN, margin: float = DEFAULT_MARGIN
) -> FaceDataset:
    """Read the ``.pts`` files of a folder and of those below it, or one such file.

    The image of ``a/b.pts`` is ``a/b.jpg``, or of another format. Where there is none,
    `check_datasets` reports that ``a/b.jpg`` is missing. Landmarks are named '00', '01', ... in
    the order of the file.

    Boxes go around the landmarks, and `margin` of their width and height beyond on each side.
    """
    path = Path(path)
    files = sorted(find_pts(path)) if path.is_dir() else [path]
    if not files:
        raise AnnotationFileError(
            path,
            0,
            "this folder has no .pts files; other annotations are named as files: XML of dlib and "
            "imglab, or JSON of COCO keypoints",
        )
    boxes: dict[Path, list[FaceBox]] = {}
    for file in files:
        points = read_pts(file, origin=origin)
        if not np.isfinite(points).all(axis=1).any():
            raise AnnotationFileError(file, 0, "has no landmark that is marked")
        boxes.setdefault(_image_of(file), []).append(box_around(points, margin))
    images = tuple(AnnotatedImage(image, tuple(faces)) for image, faces in boxes.items())
    return FaceDataset(path, path.stem, "", images)


def box_around(points: Float64, margin: float) -> FaceBox:
    """Return a face with a box around its landmarks and `margin` of their extent beyond."""
    marked = points[np.isfinite(points).all(axis=1)]
    low, high = marked.min(axis=0), marked.max(axis=0)
    room = margin * (high - low)
    left, top = (math.floor(value) for value in low - room)
    right, bottom = (math.ceil(value) for value in high + room)
    parts = {name: at for name, at in numbered_parts(points).items() if np.isfinite(at).all()}
    return FaceBox(left, top, right - left + 1, bottom - top + 1, parts)


def _point(path: Path, number: int, line: str) -> tuple[float, float]:
    try:
        x, y = (float(word) for word in _two_words(line))
    except ValueError:
        problem = f"has {line.strip()[:60]!r}, expected two numbers (x y)"
        raise AnnotationFileError(path, number, problem) from None
    if max(abs(x), abs(y)) > _LARGEST_COORDINATE_PX:
        raise AnnotationFileError(path, number, f"has {line.strip()!r}, beyond any image")
    return x, y


@lru_cache(maxsize=64)
def _images_by_stem(folder: Path, _changed: int) -> dict[str, list[Path]]:
    images: dict[str, list[Path]] = {}
    for entry in sorted(folder.iterdir()):
        if entry.suffix.lower() in IMAGE_SUFFIXES:
            images.setdefault(plain_name(entry.stem), []).append(entry)
    return images


def _two_words(line: str) -> list[str]:
    """Return the words of a point, with decimal points, and without a separator between them."""
    coordinates = line.replace(";", " ").split()
    if len(coordinates) == 1:
        return coordinates[0].split(",")
    return [word.removesuffix(",").replace(",", ".") for word in coordinates]


def _image_of(file: Path) -> Path:
    changed = file.parent.stat().st_mtime_ns
    images = _images_by_stem(file.parent, changed).get(plain_name(file.stem), [])
    if len(images) > 1:
        listed = ", ".join(str(image) for image in images)
        raise AnnotationFileError(file, 0, f"could belong to several images: {listed}")
    return images[0] if images else file.with_suffix(".jpg")
