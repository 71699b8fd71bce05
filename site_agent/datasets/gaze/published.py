"""The common part of the readers of published data sets with other pictures than eye patches.

Such a reader gives the samples of a person in a view, and findings on the frames without use.

GazeCapture as it is published: a numbered folder a person, for iTracker.

============================================  =====================================================
file of ``00002/``                            content, a list entry a frame
============================================  =====================================================
``frames.json``, ``frames/00000.jpg``         names of the pictures
``appleFace.json``                            ``X, Y, W, H, IsValid``: box in pixels of the frame
``appleLeftEye.json``, ``appleRightEye.json`` likewise, in pixels of the *face's* box; the person's
                                              left eye is on the right of the picture
``faceGrid.json``                             likewise, in cells of 25 x 25, counted from 1
``dotInfo.json``                              ``XCam, YCam``: the point looked at, in cm from the
                                              camera, right and up
``appleFace/00000.jpg``, ``appleLeftEye/``,   crops, by the data set's own script; they are read
``appleRightEye/``                            where the whole pictures are not there
============================================  =====================================================

A frame is used where face, both eyes and grid are valid. Krafka et al., "Eye Tracking for
Everyone", CVPR 2016.

NVGaze and LPW as they are published: infrared pictures of cameras next to one eye.

===================================  ==============================================================
file                                 content
===================================  ==============================================================
NVGaze: ``01.csv``, pictures in      comments (#), then ``imagefile, eye, gaze_x, gaze_y``: L or R,
``01/``                              angles in radians (of columns ``gaze_x_degree``: in degrees)
LPW: ``1/4.avi`` and ``1/4.txt``     a line ``x y`` a frame: the pupil in pixels
===================================  ==============================================================

Gaze keeps the signs of NVGaze, x positive to the person's right, which is left in the picture, and
y upwards; pictures of right eyes are mirrored and their x negated. NVGaze has far more pictures
than a training needs: of each person at most 3,000, evenly spaced. Kim et al., "NVGaze", CHI 2019;
Tonsen et al., "Labelled pupils in the wild", ETRA 2016.
"""

import csv
import json
import math
import re
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image, UnidentifiedImageError

from site_agent.datasets.check import Finding
from site_agent.datasets.gaze import records
from site_agent.errors import AnnotationFileError, SiteAgentError, VideoFileError
from site_agent.networks.views import GRID_CELLS, SCREEN, VIEWS, View

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


_PARTS = ("appleFace", "appleLeftEye", "appleRightEye")
_BOX = ("X", "Y", "W", "H", "IsValid")
_VIEW = VIEWS["face-eyes-grid"]
_SIDE = _VIEW.shape[-1]


def _recorded_persons(folder: Path) -> list[str]:
    return sorted(
        file.parent.name for file in folder.glob("*/dotInfo.json") if file.parent.name.isdigit()
    )


def _columns(folder: Path, name: str, columns: tuple[str, ...], count: int) -> records.Float64:
    """Return columns of a JSON file, shape (frames, columns)."""
    path = folder / f"{name}.json"
    content = read_json(path)
    try:
        values = np.array([content[column] for column in columns], dtype=np.float64).T
    except (KeyError, TypeError, ValueError) as error:
        problem = f"lacks numbers of {', '.join(columns)}, a list of each ({error})"
        raise AnnotationFileError(path, 0, problem) from error
    if values.shape != (count, len(columns)):
        problem = f"has {len(values)} entries, expected one for each of the {count} frames"
        raise AnnotationFileError(path, 0, problem)
    return values


def _read(root: Path, person: str, _view: View) -> PersonRead:
    folder = root / person
    names: Any = read_json(folder / "frames.json")
    if not isinstance(names, list) or not all(isinstance(name, str) for name in names):
        raise AnnotationFileError(folder / "frames.json", 0, "is no list of file names")
    count = len(names)
    face, left, right = (_columns(folder, part, _BOX, count) for part in _PARTS)
    grid = _columns(folder, "faceGrid", _BOX, count)
    dots = _columns(folder, "dotInfo", ("XCam", "YCam"), count) / SCREEN.units_in_one
    valid = np.all([boxes[:, 4] == 1 for boxes in (face, left, right, grid)], axis=0)
    valid &= np.isfinite(dots).all(axis=1)
    chosen = np.flatnonzero(valid)
    if len(chosen) and left[chosen, 0].mean() < right[chosen, 0].mean():
        problem = "the left eye is left of the right one; expected the person's own left eye, "
        problem += "which is on the right of the picture"
        raise AnnotationFileError(folder / "appleLeftEye.json", 0, problem)
    pictures, frames = [], []
    for i in chosen.tolist():
        boxes = (face[i], *(boxes[i] + [*face[i, :2], 0, 0, 0] for boxes in (left, right)))
        crops = _crops(folder, names[i], boxes)
        if crops is not None:
            pictures.append(np.concatenate([*crops, _grid_channel(grid[i])]))
            frames.append(i)
    samples = make_samples(
        pictures, dots[frames], person, ["recording"] * len(frames), frames, place=folder
    )
    findings: list[Finding] = []
    reason = f"no valid face, eyes or grid ({person})"
    findings += left_out(folder / "faceGrid.json", count - len(chosen), count, reason)
    reason = f"their pictures are missing ({person})"
    findings += left_out(folder / "frames", len(chosen) - len(frames), count, reason)
    return samples, findings


def _crops(
    folder: Path, name: str, boxes: tuple[records.Float64, ...]
) -> list[records.UInt8] | None:
    """Return face, left and right eye, each (3, 224, 224); None where the picture is missing."""
    size = (_SIDE, _SIDE)
    if (frame := folder / "frames" / name).is_file():
        whole = Image.fromarray(read_picture(frame, "RGB"))
        places = [(x, y, x + wide, y + high) for x, y, wide, high, _ in np.rint(boxes).tolist()]
        crops = [scaled(whole.crop(place), size) for place in places]
    elif all((folder / part / name).is_file() for part in _PARTS):
        crops = [read_picture(folder / part / name, "RGB", size) for part in _PARTS]
    else:
        return None
    return [crop.transpose(2, 0, 1) for crop in crops]


def _grid_channel(box: records.Float64) -> records.UInt8:
    """Return the face grid as a channel, shape (1, 224, 224), 255 where the face is."""
    x, y, wide, high = np.rint(box[:4]).astype(int) - (1, 1, 0, 0)
    cells = np.zeros((GRID_CELLS, GRID_CELLS), dtype=np.uint8)
    cells[max(y, 0) : max(y + high, 0), max(x, 0) : max(x + wide, 0)] = 255
    place = ((np.arange(_SIDE) + 0.5) * GRID_CELLS / _SIDE).astype(int)
    channel: records.UInt8 = cells[place][:, place][None]
    return channel


GAZECAPTURE = make_layout(
    "gazecapture",
    "GazeCapture with 00002/dotInfo.json, appleFace.json ... and frames/",
    (_VIEW,),
    find=lambda folder: bool(_recorded_persons(folder)),
    persons=_recorded_persons,
    read=_read,
)


MOST_OF_A_PERSON = 3000
_SIZE = (127, 127)
_EYES = {"l": "left", "left": "left", "r": "right", "right": "right"}
_Row = tuple[int, str, str, float, float]
"""Line, picture, eye, and gaze in radians."""
_MARKS = re.compile("gaze_x|^ *imagefile")
"""Either column shows a table of NVGaze; others that it lacks are named when it is read."""


def _filmed_persons(folder: Path) -> list[str]:
    tables = (table for table in folder.glob("*.csv") if table.with_suffix("").is_dir())
    return sorted(table.stem for table in tables if _MARKS.search("".join(_lines(table)[1][:1])))


def _lines(table: Path) -> tuple[int, list[str]]:
    """Return the number of comments at the beginning, and the lines behind them."""
    try:
        lines = table.read_text(encoding="utf-8-sig").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise AnnotationFileError(table, 0, f"cannot be read: {error}") from error
    comments = next((n for n, line in enumerate(lines) if not line.startswith("#")), len(lines))
    return comments, lines[comments:]


def _rows(table: Path) -> list[_Row]:
    comments, lines = _lines(table)
    reader = csv.reader(lines, skipinitialspace=True)
    header = [name.strip() for name in next(reader, [])]

    def column(ending: str) -> int:
        places = [place for place, name in enumerate(header) if re.search(ending, name)]
        if not places:
            problem = f"has the columns {', '.join(header)[:200]}; expected one like {ending!r}"
            raise AnnotationFileError(table, comments + 1, problem)
        return places[0]

    x, y, eye = column("gaze_x(_degree)?$"), column("gaze_y(_degree)?$"), column("(^|_)eye(_|$)")
    file = column("^image")
    unit = math.pi / 180 if header[x].endswith("degree") else 1.0
    rows: list[_Row] = []
    for number, cells in enumerate(reader, start=comments + 2):
        if not any(cells):
            continue
        try:
            gaze = (unit * float(cells[x]), unit * float(cells[y]))
            row = (number, cells[file].strip(), _EYES[cells[eye].strip().lower()], *gaze)
        except (IndexError, KeyError, ValueError) as error:
            problem = f"found {','.join(cells)[:80]!r}, expected a picture, L or R, and two angles"
            raise AnnotationFileError(table, number, problem) from error
        if not all(abs(angle) <= math.pi / 2 for angle in gaze):
            problem = f"the gaze is {cells[x]}, {cells[y]}, expected angles in "
            problem += "degrees" if unit != 1.0 else "radians (of degrees: a column gaze_x_degree)"
            raise AnnotationFileError(table, number, problem)
        rows.append(row)
    return rows


def _read_nvgaze(folder: Path, person: str, _view: View) -> PersonRead:
    table = folder / f"{person}.csv"
    rows = kept = _rows(table)
    if len(rows) > MOST_OF_A_PERSON:
        kept = [rows[i] for i in np.linspace(0, len(rows) - 1, MOST_OF_A_PERSON).astype(int)]
    samples = make_samples(
        [read_picture(folder / person / row[1], "L", _SIZE)[None] for row in kept],
        [row[3:] for row in kept],
        person,
        ["all"] * len(kept),
        [row[0] for row in kept],
        place=table,
        eye=[row[2] for row in kept],
    )
    records.as_left_eyes(samples.patches, samples.gaze, samples.eye == "right")
    reason = f"{MOST_OF_A_PERSON:,} of {person}, evenly spaced, are used"
    return samples, left_out(table, len(rows) - len(kept), len(rows), reason)


NVGAZE = make_layout(
    "nvgaze",
    "NVGaze with 01.csv and 01/",
    (VIEWS["near-eye"],),
    find=lambda folder: bool(_filmed_persons(folder)),
    persons=_filmed_persons,
    read=_read_nvgaze,
)


def _videos(folder: Path) -> dict[str, list[Path]]:
    persons: dict[str, list[Path]] = {}
    for video in folder.glob("*/*.avi"):
        if video.parent.name.isdigit() and video.stem.isdigit():
            persons.setdefault(video.parent.name, []).append(video)
    return persons


def _pupils(table: Path) -> list[tuple[float, float]]:
    pupils = []
    for number, line in enumerate(_lines(table)[1], start=1):
        try:
            x, y = map(float, line.replace(",", " ").split())
        except ValueError as error:
            problem = f"found {line[:80]!r}, expected the x and y of a pupil"
            raise AnnotationFileError(table, number, problem) from error
        pupils.append((x, y))
    return pupils


def _read_lpw(folder: Path, person: str, _view: View) -> PersonRead:
    pictures, numbers, sessions, frames = [], [], [], []
    findings: list[Finding] = []
    for video in sorted(_videos(folder)[person], key=lambda path: int(path.stem)):
        table = video.with_suffix(".txt")
        if not table.is_file():
            raise AnnotationFileError(table, 0, f"is missing; it has the pupils of {video.name}")
        pupils, without = _pupils(table), 0
        count = 0
        for count, pixels in enumerate(_frames(video), start=1):
            high, wide = pixels.shape
            x, y = pupils[count - 1] if count <= len(pupils) else (math.nan, math.nan)
            if not (0 < x < wide and 0 < y < high):
                without += 1
                continue
            pictures.append(scaled(Image.fromarray(pixels), _SIZE)[None])
            numbers.append(((x - wide / 2) / wide, (y - high / 2) / wide))
            sessions.append(video.stem)
            frames.append(count)
        if count != len(pupils):
            problem = f"has {len(pupils)} lines for the {count} frames of {video.name}"
            raise AnnotationFileError(table, 0, problem)
        reason = "they have no pupil within the picture"
        findings += left_out(table, without, count, reason)
    samples = make_samples(pictures, numbers, person, sessions, frames, place=folder / person)
    return samples, findings


def _frames(video: Path) -> Iterator[records.UInt8]:
    """Yield the pictures of a video in grey."""
    from site_agent.pictures.video_reading import VideoReader

    try:
        with VideoReader(video) as reader:
            for frame in reader.frames():
                # Behind a frame that is missing the gaze would belong to other pictures.
                if reader.report.decoding_errors:
                    raise VideoFileError(f"it is damaged ({reader.report.first_error})")
                yield frame.image
    except SiteAgentError as error:
        raise AnnotationFileError(video, 0, f"cannot be read: {error}") from error


LPW = make_layout(
    "lpw",
    "LPW with 1/4.avi and 1/4.txt",
    (VIEWS["near-eye-pupil"],),
    find=lambda folder: bool(_videos(folder)),
    persons=lambda folder: sorted(_videos(folder), key=int),
    read=_read_lpw,
)
