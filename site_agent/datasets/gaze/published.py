"""The common part of the readers of published data sets with other pictures than eye patches.

Such a reader gives the samples of a person in a view, and findings on the frames without use.
"""

import json
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image, UnidentifiedImageError

from site_agent.datasets.check import Finding
from site_agent.datasets.gaze import records
from site_agent.errors import AnnotationFileError
from site_agent.networks.views import View

PersonRead = tuple[records.GazeSamples, list[Finding]]
"""Samples of a person, and findings on the frames that were left out."""


def make_layout(
    name: str,
    expected: str,
    views: tuple[View, ...],
    *,
    find: Callable[[Path], bool],
    persons: Callable[[Path], Sequence[str]],
    read: Callable[[Path, str, View], PersonRead],
) -> records.GazeLayout:
    """Return a layout of a folder; the first of its views is the usual one."""

    def read_samples(path: Path, view: View, person: str) -> records.GazeSamples:
        return read(path, person, view)[0]

    def open_(path: Path) -> records.GazeDataset:
        readers = {view: partial(read_samples, path, view) for view in views}
        usual = readers.pop(views[0])
        return records.GazeDataset(path, name, tuple(persons(path)), usual, views[0], readers)

    def examine(path: Path) -> Iterator[records.CheckedPerson]:
        for person in persons(path):
            try:
                samples, findings = read(path, person, views[0])
            except AnnotationFileError as error:
                finding = Finding("error", "damaged-file", error.path, error.line, error.problem)
                yield None, [], [finding]
            else:
                yield samples, [0] * len(samples), findings

    def found(path: Path) -> Path | None:
        return path if path.is_dir() and find(path) else None

    return records.GazeLayout(name, expected, found, open_, examine, views[0])


def read_picture(place: Path, kind: str, size: tuple[int, int] | None = None) -> records.UInt8:
    """Return a picture, ``RGB`` or ``L``, resized to (width, height) if a size is given.

    Raises `AnnotationFileError`.
    """
    try:
        with Image.open(place) as picture:
            return scaled(picture.convert(kind), size)
    except FileNotFoundError as error:
        raise AnnotationFileError(place, 0, "the picture is missing") from error
    except (UnidentifiedImageError, Image.DecompressionBombError) as error:
        raise AnnotationFileError(place, 0, f"is no usable picture: {error}") from error
    except (OSError, SyntaxError, ValueError) as error:
        raise AnnotationFileError(place, 0, f"the picture cannot be read: {error}") from error


def scaled(picture: Image.Image, size: tuple[int, int] | None) -> records.UInt8:
    """Return the pixels of a picture in another size."""
    if size is not None and picture.size != size:
        picture = picture.resize(size, Image.Resampling.BILINEAR)
    return np.array(picture, dtype=np.uint8)


def read_json(path: Path) -> Any:
    """Return the content of a JSON file; raise `AnnotationFileError`."""
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError as error:
        raise AnnotationFileError(path, 0, "found no such file") from error
    except (OSError, ValueError) as error:
        raise AnnotationFileError(path, 0, f"cannot be read as JSON: {error}") from error


def left_out(place: Path, count: int, of: int, reason: str) -> list[Finding]:
    """Return a warning on frames that are not used, or nothing."""
    text = f"{count} of {of} frames are left out: {reason}"
    return [Finding("warning", "left-out", place, 0, text)] if count else []


def make_samples(
    pictures: Sequence[records.UInt8],
    gaze: Sequence[Sequence[float]] | records.Float64,
    person: str,
    session: Sequence[str],
    frame: Sequence[int],
    *,
    place: Path,
    eye: Sequence[str] = (),
    head: records.Float64 | None = None,
) -> records.GazeSamples:
    """Return samples; raise `AnnotationFileError` where `place` has none.

    `eye`: left or right; by default the view is of both, or does not know which.
    """
    count = len(pictures)
    if not count:
        raise AnnotationFileError(place, 0, f"has no usable sample of {person}")
    return records.GazeSamples(
        patches=np.stack(pictures),
        gaze=np.array(gaze, dtype=np.float64).reshape(count, 2),
        head=np.zeros((count, 2)) if head is None else head,
        person=np.full(count, person),
        session=np.array(session, dtype=np.str_),
        frame=np.array(frame, dtype=np.int64),
        eye=np.array(eye or ["left"] * count, dtype="<U5"),
    )
