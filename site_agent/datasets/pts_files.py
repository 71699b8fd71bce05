"""Landmarks in ``.pts`` files, one face a file, beside the image of the same name.

::

    version: 1
    n_points: 68
    {
    336.820955 240.864510
    ...
    }

The header and the braces may be absent: then each line is one landmark. By the convention of
300-W (and of Matlab) the centre of the upper left pixel is (1, 1), while everything else here
calls it (0, 0); so 1 is taken off when a file is read and added when one is written. Files that
count from 0 are read with ``origin=0``. A landmark of ``nan nan`` is not marked.
"""

from __future__ import annotations

import math
import re
import shutil
from collections import defaultdict
from collections.abc import Iterable, Iterator
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from site_agent.datasets.records import AnnotatedImage, FaceBox, FaceDataset, numbered_parts
from site_agent.errors import AnnotationFileError
from site_agent.pictures.images import IMAGE_SUFFIXES, is_clutter

Float64 = NDArray[np.float64]

DEFAULT_ORIGIN = 1
DEFAULT_MARGIN = 0.1
# Point clouds of laser scanners are called .pts, too.
_LARGEST_FILE_BYTES = 1 << 20
_LARGEST_COORDINATE_PX = 1_000_000
_COUNT = re.compile(r"n_points\s*:\s*(\S+)", re.IGNORECASE)


def read_pts(path: Path | str, *, origin: float = DEFAULT_ORIGIN) -> Float64:
    """Read one file.

    Parameters
    ----------
    path : Path or str
    origin : float
        Coordinates of the centre of the upper left pixel in the file: 1 in 300-W.

    Returns
    -------
    float64, shape (points, 2)
        (x, y) in pixels from the centre of the upper left pixel; NaN where a landmark is not
        marked.

    Raises
    ------
    AnnotationFileError
        Naming the file and the line.
    """
    path = Path(path)
    text = _text_of(path)
    head, opened, rest = text.partition("{")
    body, closed, after = rest.partition("}")
    if not opened:
        head, body = "", text
    elif not closed:
        line = text.count("\n") + 1
        raise AnnotationFileError(path, line, "ends without the '}' that closes the landmarks")
    elif after.strip():
        line = (head + body).count("\n") + 1
        raise AnnotationFileError(path, line, "goes on after '}'; one file holds one face")
    points = _points(path, body, 1 + head.count("\n"))
    declared = _COUNT.search(head)
    if declared and declared[1] != str(len(points)):
        raise AnnotationFileError(
            path,
            1 + head[: declared.start()].count("\n"),
            f"says n_points: {declared[1]}, but has {len(points)} landmarks",
        )
    if not points:
        raise AnnotationFileError(path, 0, "has no landmarks; expected lines of x and y")
    return np.array(points, dtype=np.float64) - origin


def write_pts(points: Float64, path: Path | str, *, origin: float = DEFAULT_ORIGIN) -> None:
    """Write one face, shape (points, 2), in the convention of `read_pts`.

    Raises
    ------
    AnnotationFileError
        When the file cannot be written.
    """
    path = Path(path)
    lines = [f"{x:.6f} {y:.6f}" for x, y in np.asarray(points) + origin]
    text = "\n".join(["version: 1", f"n_points: {len(lines)}", "{", *lines, "}", ""])
    try:
        path.write_text(text, encoding="ascii", newline="\n")
    except OSError as error:
        raise AnnotationFileError(path, 0, f"cannot be written: {error.strerror}") from error


def find_pts(folder: Path) -> Iterator[Path]:
    """Yield the ``.pts`` files of a folder and of those below it, hidden ones left out."""
    return _below(folder, "*.[pP][tT][sS]")


def _below(folder: Path, pattern: str) -> Iterator[Path]:
    for path in folder.rglob(pattern):
        if not any(is_clutter(part) for part in path.relative_to(folder).parts):
            yield path


def read_pts_folder(
    path: Path | str, *, origin: float = DEFAULT_ORIGIN, margin: float = DEFAULT_MARGIN
) -> FaceDataset:
    """Read the ``.pts`` files of a folder and of those below it, or one such file.

    The image of ``a/b.pts`` is ``a/b.jpg``, or of another format; or, where there is none, the
    one image called ``b`` anywhere below the folder. A file without an image is kept under the
    name ``b.jpg``, for `check_dataset` to tell. Landmarks are named '00', '01', ... in the order
    of the file.

    Parameters
    ----------
    path : Path or str
    origin : float
        See `read_pts`.
    margin : float
        Boxes go around the landmarks and this part of their width and height beyond, on each
        side.

    Raises
    ------
    AnnotationFileError
        No ``.pts`` files; two images of the same name; a file that cannot be read.
    """
    path = Path(path)
    folder = path if path.is_dir() else path.parent
    files = sorted(find_pts(path)) if path.is_dir() else [path]
    if not files:
        count = sum(not is_clutter(entry.name) for entry in path.iterdir())
        content = f"{count} other things" if count else "nothing"
        raise AnnotationFileError(
            path,
            0,
            f"this folder has {content} in it, expected images with .pts files; other annotations "
            "are files: XML of dlib and imglab, or JSON of COCO keypoints",
        )
    images = _images_by_stem(folder)
    boxes: dict[Path, list[FaceBox]] = {}
    for file in files:
        points = read_pts(file, origin=origin)
        if not np.isfinite(points).all(axis=1).any():
            raise AnnotationFileError(file, 0, "has no landmark that is marked")
        boxes.setdefault(_image_of(file, images), []).append(box_around(points, margin))
    found = tuple(AnnotatedImage(image, tuple(faces)) for image, faces in boxes.items())
    return FaceDataset(path, path.stem, "", found)


def pts_places(
    dataset: FaceDataset, folder: Path
) -> list[tuple[AnnotatedImage, FaceBox, Path, Path]]:
    """Return for each face its image, its box, and where `write_pts_folder` puts both.

    Returns
    -------
    list of (image, box, file, copy)
        `file` is the ``.pts`` file, `copy` that of the image.
    """
    places = []
    taken: set[str] = set()
    for image, box in dataset.boxes():
        if not box.parts:
            continue
        stem, number = image.path.stem, 1
        while stem.lower() in taken:
            number += 1
            stem = f"{image.path.stem}_{number}"
        taken.add(stem.lower())
        copy = folder / f"{stem}{image.path.suffix}"
        places.append((image, box, folder / f"{stem}.pts", copy))
    return places


def write_pts_folder(
    dataset: FaceDataset,
    names: Iterable[str],
    folder: Path | str,
    *,
    origin: float = DEFAULT_ORIGIN,
) -> list[Path]:
    """Write one ``.pts`` file for each face, and a copy of its image beside it.

    The second face of ``one.jpg`` becomes ``one_2.pts`` with ``one_2.jpg``: a file holds one face.
    What is there under these names (`pts_places`) is replaced.

    Parameters
    ----------
    dataset : FaceDataset
        Boxes without landmarks and ignored ones are left out.
    names : iterable of str
        The landmarks, in the order to be written; those a face lacks become ``nan nan``.
    folder : Path or str
        Where they go, flat; made where absent.

    Returns
    -------
    list of Path
        The ``.pts`` files.

    Raises
    ------
    AnnotationFileError
        When an image cannot be copied or a file not be written.
    """
    folder, names = Path(folder), list(names)
    absent = (math.nan, math.nan)
    written: list[Path] = []
    for image, box, file, copy in pts_places(dataset, folder):
        try:
            folder.mkdir(parents=True, exist_ok=True)
            if not (copy.exists() and copy.samefile(image.path)):
                shutil.copyfile(image.path, copy)
        except OSError as error:
            problem = f"the image {image.path} cannot be copied: {error.strerror}"
            raise AnnotationFileError(dataset.path or image.path, image.line, problem) from error
        points = np.array([box.parts.get(name, absent) for name in names], dtype=np.float64)
        write_pts(points, file, origin=origin)
        written.append(file)
    return written


def box_around(points: Float64, margin: float) -> FaceBox:
    """Return a face whose box goes around its landmarks and `margin` of their extent beyond."""
    marked = points[np.isfinite(points).all(axis=1)]
    low, high = marked.min(axis=0), marked.max(axis=0)
    room = margin * (high - low)
    left, top = (math.floor(value) for value in low - room)
    right, bottom = (math.ceil(value) for value in high + room)
    parts = {name: at for name, at in numbered_parts(points).items() if np.isfinite(at).all()}
    return FaceBox(left, top, right - left + 1, bottom - top + 1, parts)


def _text_of(path: Path) -> str:
    try:
        size = path.stat().st_size
        if size > _LARGEST_FILE_BYTES:
            problem = f"has {size / 1e6:.1f} MB; a file of landmarks has some kB"
            raise AnnotationFileError(path, 0, problem)
        return path.read_text(encoding="utf-8-sig")
    except UnicodeDecodeError as error:
        raise AnnotationFileError(path, 0, "is no text; expected landmarks (.pts)") from error
    except OSError as error:
        raise AnnotationFileError(path, 0, f"cannot be read: {error.strerror}") from error


def _points(path: Path, body: str, first_line: int) -> list[tuple[float, float]]:
    points = []
    for line, text in enumerate(body.split("\n"), first_line):
        words = text.replace(",", " ").split()
        if not words:
            continue
        try:
            values = [float(word) for word in words]
        except ValueError:
            problem = f"has {text.strip()[:60]!r}, expected two numbers (x y)"
            raise AnnotationFileError(path, line, problem) from None
        if len(values) != 2:
            problem = f"has {len(values)} numbers in a line, expected two (x y)"
            raise AnnotationFileError(path, line, problem)
        if any(math.isinf(value) or abs(value) > _LARGEST_COORDINATE_PX for value in values):
            problem = f"has the landmark {text.strip()!r}, beyond any image"
            raise AnnotationFileError(path, line, problem)
        points.append((values[0], values[1]))
    return points


def _images_by_stem(folder: Path) -> dict[str, list[Path]]:
    found: dict[str, list[Path]] = defaultdict(list)
    for file in sorted(_below(folder, "*")):
        if file.suffix.lower() in IMAGE_SUFFIXES:
            found[file.stem].append(file)
    return found


def _image_of(file: Path, images: dict[str, list[Path]]) -> Path:
    # one.jpg.pts is the landmarks of one.jpg
    named = file.with_suffix("")
    if named.suffix.lower() in IMAGE_SUFFIXES and named in images.get(named.stem, ()):
        return named
    known = images.get(file.stem, [])
    candidates = [image for image in known if image.parent == file.parent] or known
    if len(candidates) > 1:
        listed = ", ".join(str(image) for image in candidates[:3])
        raise AnnotationFileError(file, 0, f"could belong to several images: {listed}")
    return candidates[0] if candidates else file.with_suffix(".jpg")
