"""NVGaze and LPW as they are published: infrared pictures of cameras next to one eye.

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
import math
import re
from collections.abc import Iterator
from pathlib import Path

import numpy as np
from PIL import Image

from site_agent.datasets.check import Finding
from site_agent.datasets.gaze import published, records
from site_agent.errors import AnnotationFileError, SiteAgentError
from site_agent.networks.views import VIEWS, View

MOST_OF_A_PERSON = 3000
_SIZE = (127, 127)
_EYES = {"l": "left", "left": "left", "r": "right", "right": "right"}
_Row = tuple[int, str, str, float, float]
"""Line, picture, eye, and gaze in radians."""


def _persons(folder: Path) -> list[str]:
    tables = (table for table in folder.glob("*.csv") if table.with_suffix("").is_dir())
    return sorted(table.stem for table in tables if "gaze_x" in "".join(_lines(table)[1][:1]))


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


def _read_nvgaze(folder: Path, person: str, _view: View) -> published.PersonRead:
    table = folder / f"{person}.csv"
    rows = kept = _rows(table)
    if len(rows) > MOST_OF_A_PERSON:
        kept = [rows[i] for i in np.linspace(0, len(rows) - 1, MOST_OF_A_PERSON).astype(int)]
    samples = published.make_samples(
        [published.read_picture(folder / person / row[1], "L", _SIZE)[None] for row in kept],
        [row[3:] for row in kept],
        person,
        ["all"] * len(kept),
        [row[0] for row in kept],
        place=table,
        eye=[row[2] for row in kept],
    )
    records.as_left_eyes(samples.patches, samples.gaze, samples.eye == "right")
    reason = f"{MOST_OF_A_PERSON:,} of {person}, evenly spaced, are used"
    return samples, published.left_out(table, len(rows) - len(kept), len(rows), reason)


NVGAZE = published.make_layout(
    "nvgaze",
    "NVGaze with 01.csv and 01/",
    (VIEWS["near-eye"],),
    find=lambda folder: bool(_persons(folder)),
    persons=_persons,
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


def _read_lpw(folder: Path, person: str, _view: View) -> published.PersonRead:
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
            pictures.append(published.scaled(Image.fromarray(pixels), _SIZE)[None])
            numbers.append(((x - wide / 2) / wide, (y - high / 2) / wide))
            sessions.append(video.stem)
            frames.append(count)
        if count != len(pupils):
            problem = f"has {len(pupils)} lines for the {count} frames of {video.name}"
            raise AnnotationFileError(table, 0, problem)
        reason = "they have no pupil within the picture"
        findings += published.left_out(table, without, count, reason)
    samples = published.make_samples(
        pictures, numbers, person, sessions, frames, place=folder / person
    )
    return samples, findings


def _frames(video: Path) -> Iterator[records.UInt8]:
    """Yield the pictures of a video in grey."""
    from site_agent.pictures.video_reading import VideoReader

    try:
        with VideoReader(video) as reader:
            for frame in reader.frames():
                yield frame.image
    except SiteAgentError as error:
        raise AnnotationFileError(video, 0, f"cannot be read: {error}") from error


LPW = published.make_layout(
    "lpw",
    "LPW with 1/4.avi and 1/4.txt",
    (VIEWS["near-eye-pupil"],),
    find=lambda folder: bool(_videos(folder)),
    persons=lambda folder: sorted(_videos(folder), key=int),
    read=_read_lpw,
)
