"""MPIIGaze and normalised MPIIFaceGaze as they are published.

MPIIGaze (Zhang et al., IEEE TPAMI 41(1), 2019), normalised, with the evaluation subset:

====================================================  =========================================
file                                                  content
====================================================  =========================================
``Data/Normalized/p00/day01.mat``                     ``data.right`` and ``data.left``, each with
                                                      ``image`` (n, 36, 60) uint8, ``gaze`` (n, 3)
                                                      unit vectors, ``pose`` (n, 3) Rodrigues
                                                      vectors; and ``filenames`` (n)
``Evaluation Subset/sample list for eval/p00.txt``    lines such as ``day13/0203.jpg left``
====================================================  =========================================

MPIIFaceGaze (Zhang et al., "It's Written All Over Your Face", CVPRW 2017), normalised; the files
name no day, so a person is one session, and do not say which faces were mirrored:

===================================  ==============================================================
file                                 content
===================================  ==============================================================
``p00.mat`` (HDF5)                   ``Data/data``: faces (n, 3, 448, 448), blue first;
                                     ``Data/label`` (n, 4 or more): pitch and yaw of gaze, pitch and
                                     yaw of the head in radians, then six landmarks in pixels
===================================  ==============================================================
"""

import re
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image

from site_agent.datasets.gaze import published, records
from site_agent.datasets.gaze.matlab_file import read_matlab
from site_agent.errors import AnnotationFileError
from site_agent.networks.views import EYE, VIEWS, View

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


def _persons(path: Path) -> list[str]:
    folder = find_days(path) or path
    folders = {file.parent.name for file in folder.glob("p*/day*.mat")}
    return sorted(name for name in folders if _PERSON.fullmatch(name))


def _read_person(path: Path, person: str, _view: View) -> published.PersonRead:
    """Read the days of a person: the evaluation subset where its lists are there, else all."""
    folder, lists = find_days(path) or path, path / _LISTS
    chosen = _read_list(lists / f"{person}.txt") if lists.is_dir() else None
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
    if chosen:
        (day, name, eye), line = next(iter(chosen.items()))
        problem = f"names {day}/{name} {eye}, which {folder / person} does not have"
        raise AnnotationFileError(lists / f"{person}.txt", line, problem)
    if not parts:
        raise AnnotationFileError(folder / person, 0, "has no samples")
    return records.GazeSamples.join(parts), []


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


MPIIGAZE = published.make_layout(
    "mpiigaze",
    "MPIIGaze with Data/Normalized/p00/day01.mat ...",
    (EYE,),
    # The whole data set, not the folder of the days: its lists choose the evaluation subset.
    find=lambda folder: find_days(folder) is not None,
    persons=_persons,
    read=_read_person,
)


_HDF5 = (b"MATLAB 7.3", b"\x89HDF")
_AT_ONCE = 64
_VIEWS = (VIEWS["face"], VIEWS["face-448"])


def _files(folder: Path) -> list[Path]:
    files = [file for file in sorted(folder.glob("p*.mat")) if _PERSON.fullmatch(file.stem)]
    return [file for file in files if _is_hdf5(file)]


def _is_hdf5(file: Path) -> bool:
    try:
        with file.open("rb") as stored:
            return stored.read(10).startswith(_HDF5)
    except OSError:
        return False


def _read_normalised(folder: Path, person: str, view: View) -> published.PersonRead:
    import h5py

    file, side = folder / f"{person}.mat", view.shape[-1]
    try:
        with h5py.File(file, "r") as content:
            data, label = content["Data/data"], np.asarray(content["Data/label"], dtype=np.float64)
            if data.ndim != 4 or data.shape[1] != 3 or data.shape[2] != data.shape[3]:
                problem = f"Data/data has shape {data.shape}, expected (n, 3, 448, 448)"
                raise AnnotationFileError(file, 0, problem)
            if label.ndim != 2 or len(label) != len(data) or label.shape[1] < 4:
                problem = f"Data/label has shape {label.shape}, expected ({len(data)}, 4 or more)"
                raise AnnotationFileError(file, 0, problem)
            faces = np.empty((len(data), *view.shape), dtype=np.uint8)
            for first in range(0, len(data), _AT_ONCE):
                part = np.clip(data[first : first + _AT_ONCE], 0, 255).astype(np.uint8)
                for place, face in enumerate(part, start=first):
                    # Blue first, as OpenCV and Caffe have it.
                    picture = Image.fromarray(np.ascontiguousarray(face[::-1].transpose(1, 2, 0)))
                    faces[place] = published.scaled(picture, (side, side)).transpose(2, 0, 1)
    except (OSError, KeyError) as error:
        raise AnnotationFileError(file, 0, f"is no whole HDF5 file ({error})") from error
    _require_upright(file, label)
    if not np.all(np.abs(label[:, :4]) <= np.pi):
        raise AnnotationFileError(file, 0, "Data/label holds angles beyond pi, expected radians")
    samples = published.make_samples(
        list(faces), label[:, 1::-1], person, ["all"] * len(faces), range(len(faces)),
        place=file, head=label[:, 3:1:-1],
    )  # fmt: skip
    return samples, []


def _require_upright(file: Path, label: records.Float64) -> None:
    """Raise for faces that lie: their eyes are not above their mouths."""
    if label.shape[1] >= 16 and len(label):
        heights = label[:, 5:16:2].mean(axis=0)
        if heights[:4].mean() >= heights[4:].mean():
            problem = "the eyes of its landmarks are not above the mouth; expected upright faces"
            raise AnnotationFileError(file, 0, problem)


NORMALISED_FACES = published.make_layout(
    "mpiifacegaze",
    "MPIIFaceGaze, normalised, with p00.mat (HDF5) ...",
    _VIEWS,
    find=lambda folder: bool(_files(folder)),
    persons=lambda folder: [file.stem for file in _files(folder)],
    read=_read_normalised,
)
