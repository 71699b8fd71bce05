"""MPIIFaceGaze as it is published: normalised faces, or whole pictures with annotations.

===================================  ==============================================================
file                                 content
===================================  ==============================================================
``p00.mat`` (HDF5)                   ``Data/data``: faces (n, 3, 448, 448), blue first;
                                     ``Data/label`` (n, 4 or more): pitch and yaw of gaze, pitch and
                                     yaw of the head in radians, then six landmarks in pixels
``p00/p00.txt``, ``p00/day01/...``   a line a picture: file, 2 of the screen, 12 of landmarks, 6 of
                                     the head's pose (Rodrigues vector, translation), 3 of the
                                     face's centre, 3 of the point looked at (mm), left or right
``p00/Calibration/Camera.mat``       ``cameraMatrix``, ``distCoeffs``
===================================  ==============================================================

Whole pictures are normalised as the published ones are (focal length 1600 px, distance 1000 mm,
448 px), without scaling the gaze. The normalised files name no day, so a person is one session, and
do not say which faces were mirrored. Zhang et al., "It's Written All Over Your Face", CVPRW 2017.
"""

import re
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image

from site_agent.datasets.gaze import published, records
from site_agent.datasets.gaze.matlab_file import read_matlab
from site_agent.errors import AnnotationFileError
from site_agent.networks.views import VIEWS, View

_PERSON = re.compile(r"p\d+")
_HDF5 = (b"MATLAB 7.3", b"\x89HDF")
_AT_ONCE = 64
_FOCAL_PX, _DISTANCE_MM, _SIDE_PX = 1600.0, 1000.0, 448
_VALUES = 26
"""Of a line, between the file and the eye."""
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


def _persons(folder: Path) -> list[str]:
    persons = (file.stem for file in folder.glob("p*/p*.txt") if file.stem == file.parent.name)
    return sorted(person for person in persons if _PERSON.fullmatch(person))


def _read_original(root: Path, person: str, view: View) -> published.PersonRead:
    folder = root / person
    table, camera = folder / f"{person}.txt", _Camera(folder / "Calibration" / "Camera.mat")
    try:
        lines = table.read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise AnnotationFileError(table, 0, f"cannot be read: {error}") from error
    faces, gaze, head, sessions, frames, missing = [], [], [], [], [], 0
    for number, line in enumerate(lines, start=1):
        name, *cells = line.split() or [""]
        if not name:
            continue
        try:
            values = np.array([float(cell) for cell in cells[:_VALUES]])
            if len(values) < _VALUES or not np.isfinite(values).all():
                raise ValueError
        except ValueError as error:
            problem = f"found {line[:80]!r}, expected a picture and {_VALUES} numbers"
            raise AnnotationFileError(table, number, problem) from error
        if not (folder / name).is_file():
            missing += 1
            continue
        pose, centre, looked_at = values[14:17], values[20:23], values[23:26]
        picture = published.read_picture(folder / name, "RGB")
        face, turn = camera.normalised(picture, pose, centre, view.shape[-1])
        direction = turn @ (looked_at - centre)
        faces.append(face.transpose(2, 0, 1))
        gaze.append(records.gaze_angles((direction / np.linalg.norm(direction))[None])[0])
        head.append(records.gaze_angles(-(turn @ _rotation(pose)[:, 2])[None])[0])
        sessions.append(name.replace("\\", "/").rpartition("/")[0] or "all")
        frames.append(number)
    samples = published.make_samples(
        faces, gaze, person, sessions, frames, place=table, head=np.array(head).reshape(-1, 2)
    )
    reason = f"their pictures are missing ({person})"
    return samples, published.left_out(table, missing, len(lines), reason)


def _rotation(vector: records.Float64) -> records.Float64:
    """Return the rotation of a Rodrigues vector."""
    angle = float(np.linalg.norm(vector))
    x, y, z = vector / max(angle, 1e-12)
    across = np.array([[0.0, -z, y], [z, 0.0, -x], [-y, x, 0.0]])
    turn: records.Float64
    turn = np.eye(3) + np.sin(angle) * across + (1 - np.cos(angle)) * across @ across
    return turn


class _Camera:
    """A calibrated camera; it turns its pictures into those of the normalised one."""

    def __init__(self, file: Path) -> None:
        try:
            content: dict[str, Any] = read_matlab(file.read_bytes())
            self._matrix = np.array(content["cameraMatrix"], dtype=np.float64).reshape(3, 3)
            bends = np.array(content.get("distCoeffs", ()), dtype=np.float64).ravel()
        except OSError as error:
            raise AnnotationFileError(file, 0, f"cannot be read: {error.strerror}") from error
        except (KeyError, ValueError) as error:
            raise AnnotationFileError(file, 0, f"lacks cameraMatrix (3 x 3): {error}") from error
        self._bends = np.append(bends[:5], np.zeros(5 - len(bends[:5])))

    def normalised(
        self, picture: records.UInt8, pose: records.Float64, centre: records.Float64, side: int
    ) -> tuple[records.UInt8, records.Float64]:
        """Return the face, shape (side, side, 3), and the rotation to the normalised camera."""
        distance = float(np.linalg.norm(centre))
        forward = centre / distance
        down = np.cross(forward, _rotation(pose)[:, 0])
        down /= np.linalg.norm(down)
        turn = np.stack([np.cross(down, forward), down, forward])
        places = (np.arange(side) - side / 2) * _SIDE_PX / side / _FOCAL_PX
        across, below = np.meshgrid(places, places)
        rays = np.stack([across, below, np.full_like(across, distance / _DISTANCE_MM)], axis=-1)
        x, y, z = np.moveaxis(rays @ turn, -1, 0)
        x, y = self._bent(x / z, y / z)
        column = self._matrix[0, 0] * x + self._matrix[0, 1] * y + self._matrix[0, 2]
        return _sampled(picture, column, self._matrix[1, 1] * y + self._matrix[1, 2]), turn

    def _bent(self, x: records.Float64, y: records.Float64) -> tuple[Any, Any]:
        """Return where a lens with this distortion shows points."""
        k1, k2, p1, p2, k3 = self._bends
        r = x * x + y * y
        radial = 1 + r * (k1 + r * (k2 + r * k3))
        across = x * radial + 2 * p1 * x * y + p2 * (r + 2 * x * x)
        return across, y * radial + p1 * (r + 2 * y * y) + 2 * p2 * x * y


def _sampled(picture: records.UInt8, x: records.Float64, y: records.Float64) -> records.UInt8:
    """Return a picture at points between pixels; black outside."""
    high, wide = picture.shape[:2]
    left, top = np.floor(x).astype(int), np.floor(y).astype(int)
    total = np.zeros((*x.shape, picture.shape[2]))
    for column, row in ((0, 0), (1, 0), (0, 1), (1, 1)):
        u, v = left + column, top + row
        weight = np.abs(1 - column - (x - left)) * np.abs(1 - row - (y - top))
        weight *= (u >= 0) & (u < wide) & (v >= 0) & (v < high)
        total += weight[..., None] * picture[np.clip(v, 0, high - 1), np.clip(u, 0, wide - 1)]
    return np.rint(total).astype(np.uint8)


ORIGINAL_FACES = published.make_layout(
    "mpiifacegaze-original",
    "MPIIFaceGaze with p00/p00.txt, p00/day01/ and p00/Calibration/Camera.mat ...",
    _VIEWS,
    find=lambda folder: bool(_persons(folder)),
    persons=_persons,
    read=_read_original,
)
