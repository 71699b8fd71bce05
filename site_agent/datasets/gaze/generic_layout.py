"""The generic layout of gaze data: a table ``gaze.csv`` and a folder ``images/`` next to it.

===========================  ======================================================
column                       content
===========================  ======================================================
file                         picture, relative to the table: 36 x 60 pixels, grey
person, session              names
frame                        whole number within the session
eye                          left or right, of the person
yaw, pitch                   gaze in radians, in the frame of the normalised camera
head_yaw, head_pitch         pose of the head, likewise
===========================  ======================================================

Files hold the camera's view: pictures and yaws of right eyes are mirrored on reading.
"""

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path, PureWindowsPath

import numpy as np
from PIL import Image, ImageOps, UnidentifiedImageError

from site_agent.datasets.check import Finding
from site_agent.datasets.data_tables import rows_of
from site_agent.datasets.gaze import records
from site_agent.errors import AnnotationFileError, TableFileError, writing_to
from site_agent.named_files import find_named
from site_agent.pictures.images import FIRST_LYING, orientation_of
from site_agent.tables import Table, columns_of
from site_agent.text_tables import header_of

TABLE_NAME = "gaze.csv"
COLUMNS = ("file", "person", "session", "frame", "eye", "yaw", "pitch", "head_yaw", "head_pitch")
_STEEPEST = math.pi / 2
# Frames are kept in 64 bits.
_MOST_DIGITS = 18
# Of a file or folder; more is refused by every file system in use.
_MOST_NAME_BYTES = 255
_PLAIN_MODES = frozenset({"1", "L", "P", "RGB", "RGBA", "LA"})


@dataclass(frozen=True)
class Row:
    """One line of a table."""

    line: int
    """Its number in the file, counted from 1."""
    file: str
    person: str
    session: str
    frame: int
    eye: str
    angles: tuple[float, float, float, float]


def find_table(path: Path) -> Path | None:
    """Return the table of a folder, or the path itself where it is one; None if there is none."""
    table = path / TABLE_NAME if path.is_dir() else path
    if table.suffix.lower() != ".csv" or not table.is_file() or lacking_columns(table):
        return None
    return table


def lacking_columns(table: Path, columns: Sequence[str] = COLUMNS) -> list[str]:
    """Return the columns that a table lacks; none where there is no table."""
    if not table.is_file():
        return []
    try:
        header = header_of(table)
    except TableFileError:
        header = []
    return [name for name in columns if name not in header]


def open_folder(table: Path) -> records.GazeDataset:
    """Open gaze data in the generic layout; pictures are read person by person."""
    persons = rows_by_person(table)
    if not persons:
        raise AnnotationFileError(table, 0, "has no line besides the header; expected samples")
    names = tuple(sorted(persons))
    return records.GazeDataset(
        table, "folder", names, lambda name: _read_person(table, persons[name])
    )


def _examine(table: Path) -> Iterator[records.CheckedPerson]:
    persons = rows_by_person(table)
    if not persons:
        yield None, [], [Finding("error", "no-samples", table, 0, "has no samples")]
    for _, rows in sorted(persons.items()):
        kept: list[Row] = []
        patches: list[records.UInt8] = []
        broken: list[Finding] = []
        for row in rows:
            try:
                patches.append(read_patch(table, row))
                kept.append(row)
            except AnnotationFileError as error:
                missing = not find_named(table.parent, row.file).is_file()
                code = "missing-image" if missing else "broken-image"
                broken.append(Finding("error", code, table, error.line, error.problem))
        yield samples_of(kept, patches), [row.line for row in kept], broken


def rows_by_person(table: Path) -> dict[str, list[Row]]:
    """Return the lines of each person, in the order of the file."""
    persons: dict[str, list[Row]] = {}
    for line, cells in rows_of(table, COLUMNS):
        row = _parse(table, line, cells)
        persons.setdefault(row.person, []).append(row)
    return persons


def _parse(table: Path, line: int, fields: Mapping[str, str]) -> Row:
    def text(name: str) -> str:
        value = fields[name]
        if not value:
            raise AnnotationFileError(table, line, f"{name} is empty")
        return value

    def number(name: str) -> float:
        value = text(name)
        try:
            return float(value)
        except ValueError:
            problem = f"{name} is {value!r}, expected an angle in radians"
            raise AnnotationFileError(table, line, problem) from None

    eye, frame = text("eye").lower(), text("frame")
    if eye not in records.EYES:
        raise AnnotationFileError(table, line, f"eye is {eye!r}, expected left or right")
    if not (frame.isascii() and frame.isdigit() and len(frame) <= _MOST_DIGITS):
        raise AnnotationFileError(table, line, f"frame is {frame!r}, expected a whole number")
    angles = (number("yaw"), number("pitch"), number("head_yaw"), number("head_pitch"))
    file = text("file").replace("\\", "/")
    if PureWindowsPath(file).anchor or ".." in file.split("/") or "\0" in file:
        problem = f"the picture {file!r} is outside the table's folder; expected one inside"
        raise AnnotationFileError(table, line, problem)
    longest = max(len(part) for part in file.encode().split(b"/"))
    if longest > _MOST_NAME_BYTES:
        problem = f"the picture's name has {longest} bytes, expected at most {_MOST_NAME_BYTES}"
        raise AnnotationFileError(table, line, problem)
    return Row(line, file, text("person"), text("session"), int(frame), eye, angles)


def _read_person(table: Path, rows: list[Row]) -> records.GazeSamples:
    for row in rows:
        if not all(abs(angle) <= _STEEPEST for angle in row.angles):
            problem = f"the angles are {row.angles}, expected radians within +-pi/2"
            raise AnnotationFileError(table, row.line, problem)
    return samples_of(rows, [read_patch(table, row) for row in rows])


def samples_of(rows: Sequence[Row], pictures: Sequence[records.UInt8]) -> records.GazeSamples:
    """Return the samples of rows and their pictures, all as left eyes."""
    patches = np.array(pictures, dtype=np.uint8).reshape(-1, *records.PATCH_SHAPE)
    angles = np.array([row.angles for row in rows], dtype=np.float64).reshape(-1, 2, 2)
    eye = np.array([row.eye for row in rows], dtype="<U5")
    records.as_left_eyes(patches, angles, eye == "right")
    return records.GazeSamples(
        patches=patches,
        gaze=angles[:, 0],
        head=angles[:, 1],
        person=np.array([row.person for row in rows], dtype=np.str_),
        session=np.array([row.session for row in rows], dtype=np.str_),
        frame=np.array([row.frame for row in rows], dtype=np.int64),
        eye=eye,
    )


def read_patch(table: Path, row: Row) -> records.UInt8:
    """Read the picture of a row as the camera saw it."""
    path = find_named(table.parent, row.file)
    # A pipe would be waited for without end.
    if path.exists() and not path.is_file():
        raise AnnotationFileError(table, row.line, f"{row.file} is not a file")
    try:
        with Image.open(path) as picture:
            # Pictures are read as they are shown, here and where a network predicts.
            lies = orientation_of(picture) >= FIRST_LYING
            _require_patch_size(table, row, picture.size[::-1] if lies else picture.size)
            if picture.mode not in _PLAIN_MODES:
                problem = f"the picture {row.file} has samples of kind {picture.mode}"
                raise AnnotationFileError(table, row.line, f"{problem}, expected 8-bit grey")
            upright = ImageOps.exif_transpose(picture)
            pixels = np.array(upright.convert("L"), dtype=np.uint8)
    except FileNotFoundError as error:
        problem = f"the picture {row.file} is missing; files are relative to the table's folder"
        raise AnnotationFileError(table, row.line, problem) from error
    except UnidentifiedImageError as error:
        raise AnnotationFileError(table, row.line, f"{row.file} is not a picture") from error
    except Image.DecompressionBombError as error:
        raise AnnotationFileError(table, row.line, f"{row.file} is huge: {error}") from error
    except (OSError, SyntaxError, ValueError) as error:
        problem = f"the picture {row.file} cannot be read: {error}"
        raise AnnotationFileError(table, row.line, problem) from error
    return pixels


def _require_patch_size(table: Path, row: Row, size: tuple[int, int]) -> None:
    """Raise for a picture of another size, before its pixels are read: it may be huge."""
    if size[::-1] != records.PATCH_SHAPE:
        problem = f"the picture {row.file} is {size[0]} x {size[1]} pixels, expected 60 x 36"
        raise AnnotationFileError(table, row.line, problem)


def write_samples(folder: Path, parts: Iterable[records.GazeSamples]) -> tuple[Path, int]:
    """Write samples in the generic layout; return the path of the table and their number.

    The table is written last, so that a folder without one is known to be incomplete.
    """
    with writing_to(folder):
        return _write_all(folder, parts)


def _write_all(folder: Path, parts: Iterable[records.GazeSamples]) -> tuple[Path, int]:
    images, table = folder / "images", folder / TABLE_NAME
    images.mkdir(parents=True, exist_ok=True)
    # A table of an earlier, larger data set would name pictures that are overwritten.
    table.unlink(missing_ok=True)
    lines = []
    for samples in parts:
        right = samples.eye == "right"
        patches = samples.patches.copy()
        angles = np.stack([samples.gaze, samples.head], axis=1)
        records.as_left_eyes(patches, angles, right)
        lines += [_write_one(images, samples, i, patches[i], angles[i]) for i in range(len(right))]
    Table("gaze", columns_of(COLUMNS, ".6f")).write_csv(table, lines)
    return table, len(lines)


def _write_one(
    images: Path,
    samples: records.GazeSamples,
    i: int,
    patch: records.UInt8,
    angles: records.Float64,
) -> list[object]:
    person, session = str(samples.person[i]), str(samples.session[i])
    frame, eye = int(samples.frame[i]), str(samples.eye[i])
    person_folder = images / person
    person_folder.mkdir(exist_ok=True)
    file = person_folder / f"{session}-{frame:05d}-{eye}.png"
    Image.fromarray(patch).save(file, compress_level=1)
    place = f"images/{person}/{file.name}"
    return [place, person, session, frame, eye, *angles.ravel().tolist()]


GENERIC = records.GazeLayout(
    name="folder",
    expected=f"a folder with {TABLE_NAME} ({', '.join(COLUMNS)})",
    find=find_table,
    open=open_folder,
    examine=_examine,
)
