"""MPIIGaze as it is published: normalised ``.mat`` files and the evaluation subset.

====================================================  =========================================
file                                                  content
====================================================  =========================================
``Data/Normalized/p00/day01.mat``                     ``data.right`` and ``data.left``, each with
                                                      ``image`` (n, 36, 60) uint8, ``gaze`` (n, 3)
                                                      unit vectors, ``pose`` (n, 3) Rodrigues
                                                      vectors; and ``filenames`` (n)
``Evaluation Subset/sample list for eval/p00.txt``    lines such as ``day13/0203.jpg left``
====================================================  =========================================

Zhang et al., "MPIIGaze", IEEE TPAMI 41(1), 2019.
"""

import re
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from site_agent.datasets.check import Finding
from site_agent.datasets.gaze import records
from site_agent.datasets.gaze.matlab_file import read_matlab
from site_agent.errors import AnnotationFileError

_NORMALISED = Path("Data", "Normalized")
_LISTS = Path("Evaluation Subset", "sample list for eval")
_PERSON = re.compile(r"p\d+")
_UNIT_TOLERANCE = 0.01

Chosen = dict[tuple[str, str, str], int]
"""Samples (day, file name, eye) of the evaluation subset, with their lines."""


def find_days(path: Path) -> Path | None:
    """Return the folder that has the folders of the persons, or None if the layout is another."""
    for folder in (path / _NORMALISED, path):
        if any(_PERSON.fullmatch(file.parent.name) for file in folder.glob("p*/day*.mat")):
            return folder
    return None


def open_mpiigaze(path: Path) -> records.GazeDataset:
    """Open MPIIGaze; days are read person by person.

    The folder of the whole data set gives the evaluation subset where its lists are there;
    ``Data/Normalized`` gives all samples.
    """
    folder = find_days(path)
    if folder is None:
        problem = "has no normalised MPIIGaze data, expected Data/Normalized/p00/day01.mat ..."
        raise AnnotationFileError(path, 0, problem)
    folders = {file.parent.name for file in folder.glob("p*/day*.mat")}
    persons = tuple(sorted(name for name in folders if _PERSON.fullmatch(name)))
    lists = path / _LISTS
    read = partial(_read_person, folder, lists if lists.is_dir() else None)
    return records.GazeDataset(path, "mpiigaze", persons, read)


def _find(path: Path) -> Path | None:
    # The whole data set, not the folder of the days: its lists choose the evaluation subset.
    return path if path.is_dir() and find_days(path) is not None else None


def _examine(path: Path) -> Iterator[records.CheckedPerson]:
    dataset = open_mpiigaze(path)
    for person in dataset.persons:
        try:
            samples = dataset.read_person(person)
        except AnnotationFileError as error:
            finding = Finding("error", "damaged-file", error.path, error.line, error.problem)
            yield None, [], [finding]
        else:
            yield samples, [0] * len(samples), []


def _read_person(folder: Path, lists: Path | None, person: str) -> records.GazeSamples:
    chosen = None if lists is None else _read_list(lists / f"{person}.txt")
    parts = []
    for file in sorted((folder / person).glob("day*.mat")):
        days, names = _read_day(file, person)
        if chosen is None:
            parts += days
            continue
        for samples in days:
            eye = str(samples.eye[0])
            selected = [chosen.pop((file.stem, name, eye), 0) > 0 for name in names]
            if any(selected):
                parts.append(samples[np.array(selected)])
    if chosen and lists is not None:
        (day, name, eye), line = next(iter(chosen.items()))
        problem = f"names {day}/{name} {eye}, which {folder / person} does not have"
        raise AnnotationFileError(lists / f"{person}.txt", line, problem)
    if not parts:
        raise AnnotationFileError(folder / person, 0, "has no samples")
    return records.join_samples(parts)


def _read_list(path: Path) -> Chosen:
    try:
        lines = path.read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise AnnotationFileError(path, 0, f"cannot be read: {error}") from error
    chosen: Chosen = {}
    for number, line in enumerate(lines, start=1):
        match = re.fullmatch(r"(day\d+)/(\S+) (left|right)\s*", line)
        if match:
            chosen[match[1], match[2], match[3]] = number
        elif line.strip():
            problem = f"is {line!r}, expected a line such as 'day13/0203.jpg left'"
            raise AnnotationFileError(path, number, problem)
    return chosen


def _read_day(file: Path, person: str) -> tuple[list[records.GazeSamples], list[str]]:
    """Return the samples of either eye, and the names of the frames."""
    content = _load(file)
    names = content["filenames"]
    if not isinstance(names, list) or not all(isinstance(name, str) for name in names):
        raise AnnotationFileError(file, 0, "has file names that are not cells of text")
    return [_read_eye(file, content, person, eye, len(names)) for eye in records.EYES], names


def _load(file: Path) -> dict[str, Any]:
    try:
        content = read_matlab(file.read_bytes())
    except OSError as error:
        raise AnnotationFileError(file, 0, f"cannot be read: {error.strerror}") from error
    except ValueError as error:
        raise AnnotationFileError(file, 0, f"is not a whole MATLAB file ({error})") from error
    for name in ("data", "filenames"):
        if name not in content:
            raise AnnotationFileError(file, 0, f"lacks the variable {name!r}: not MPIIGaze data")
    return content


def _read_eye(
    file: Path, content: dict[str, Any], person: str, eye: records.Eye, count: int
) -> records.GazeSamples:
    image = _field(file, content, eye, "image", (count, *records.PATCH_SHAPE))
    gaze = _field(file, content, eye, "gaze", (count, 3)).astype(np.float64)
    pose = _field(file, content, eye, "pose", (count, 3)).astype(np.float64)
    if image.dtype != np.uint8:
        problem = f"data.{eye}.image holds {image.dtype}, expected uint8"
        raise AnnotationFileError(file, 0, problem)
    off = ~(np.abs(np.linalg.norm(gaze, axis=1) - 1) < _UNIT_TOLERANCE)
    if off.any() or not np.isfinite(pose).all():
        problem = f"data.{eye} has gaze vectors that are not of length 1, or poses that are not "
        raise AnnotationFileError(file, 0, f"{problem}finite; expected normalised data")
    angles = np.stack([records.gaze_angles(gaze), records.head_angles(pose)], axis=1)
    patches = np.array(image)
    records.as_left_eyes(patches, angles, np.full(count, eye == "right"))
    return records.GazeSamples(
        patches=patches,
        gaze=angles[:, 0],
        head=angles[:, 1],
        person=np.full(count, person),
        session=np.full(count, file.stem),
        frame=np.arange(count, dtype=np.int64),
        eye=np.full(count, eye, dtype="<U5"),
    )


def _field(
    file: Path, content: dict[str, Any], eye: records.Eye, name: str, shape: tuple[int, ...]
) -> Any:
    try:
        values = content["data"][eye][name]
        if not isinstance(values, np.ndarray):
            raise TypeError
    except (IndexError, KeyError, TypeError) as error:
        raise AnnotationFileError(file, 0, f"lacks data.{eye}.{name}") from error
    if values.shape != shape:
        problem = f"data.{eye}.{name} has shape {values.shape}, expected {shape}"
        raise AnnotationFileError(file, 0, f"{problem} for its {shape[0]} file names")
    return values


MPIIGAZE = records.GazeLayout(
    name="mpiigaze",
    expected="MPIIGaze with Data/Normalized/p00/day01.mat ...",
    find=_find,
    open=open_mpiigaze,
    examine=_examine,
)
