"""GazeCapture as it is published: a numbered folder a person, for iTracker.

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
"""

from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image

from site_agent.datasets.check import Finding
from site_agent.datasets.gaze import published, records
from site_agent.errors import AnnotationFileError
from site_agent.networks.views import GRID_CELLS, SCREEN, VIEWS, View

_PARTS = ("appleFace", "appleLeftEye", "appleRightEye")
_BOX = ("X", "Y", "W", "H", "IsValid")
_VIEW = VIEWS["face-eyes-grid"]
_SIDE = _VIEW.shape[-1]


def _persons(folder: Path) -> list[str]:
    return sorted(
        file.parent.name for file in folder.glob("*/dotInfo.json") if file.parent.name.isdigit()
    )


def _columns(folder: Path, name: str, columns: tuple[str, ...], count: int) -> records.Float64:
    """Return columns of a JSON file, shape (frames, columns)."""
    path = folder / f"{name}.json"
    content = published.read_json(path)
    try:
        values = np.array([content[column] for column in columns], dtype=np.float64).T
    except (KeyError, TypeError, ValueError) as error:
        problem = f"lacks numbers of {', '.join(columns)}, a list of each ({error})"
        raise AnnotationFileError(path, 0, problem) from error
    if values.shape != (count, len(columns)):
        problem = f"has {len(values)} entries, expected one for each of the {count} frames"
        raise AnnotationFileError(path, 0, problem)
    return values


def _read(root: Path, person: str, _view: View) -> published.PersonRead:
    folder = root / person
    names: Any = published.read_json(folder / "frames.json")
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
    samples = published.make_samples(
        pictures, dots[frames], person, ["recording"] * len(frames), frames, place=folder
    )
    findings: list[Finding] = []
    reason = f"no valid face, eyes or grid ({person})"
    findings += published.left_out(folder / "faceGrid.json", count - len(chosen), count, reason)
    reason = f"their pictures are missing ({person})"
    findings += published.left_out(folder / "frames", len(chosen) - len(frames), count, reason)
    return samples, findings


def _crops(
    folder: Path, name: str, boxes: tuple[records.Float64, ...]
) -> list[records.UInt8] | None:
    """Return face, left and right eye, each (3, 224, 224); None where the picture is missing."""
    size = (_SIDE, _SIDE)
    if (frame := folder / "frames" / name).is_file():
        whole = Image.fromarray(published.read_picture(frame, "RGB"))
        places = [(x, y, x + wide, y + high) for x, y, wide, high, _ in np.rint(boxes).tolist()]
        crops = [published.scaled(whole.crop(place), size) for place in places]
    elif all((folder / part / name).is_file() for part in _PARTS):
        crops = [published.read_picture(folder / part / name, "RGB", size) for part in _PARTS]
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


GAZECAPTURE = published.make_layout(
    "gazecapture",
    "GazeCapture with 00002/dotInfo.json, appleFace.json ... and frames/",
    (_VIEW,),
    find=lambda folder: bool(_persons(folder)),
    persons=_persons,
    read=_read,
)
