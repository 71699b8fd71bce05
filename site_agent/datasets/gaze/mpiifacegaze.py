"""MPIIFaceGaze in its normalised form, as it is published.

===================================  ==============================================================
file                                 content
===================================  ==============================================================
``p00.mat`` (HDF5)                   ``Data/data``: faces (n, 3, 448, 448), blue first;
                                     ``Data/label`` (n, 4 or more): pitch and yaw of gaze, pitch and
                                     yaw of the head in radians, then six landmarks in pixels
===================================  ==============================================================

The files name no day, so a person is one session, and do not say which faces were mirrored. Zhang
et al., "It's Written All Over Your Face", CVPRW 2017.
"""

import re
from pathlib import Path

import numpy as np
from PIL import Image

from site_agent.datasets.gaze import published, records
from site_agent.errors import AnnotationFileError
from site_agent.networks.views import VIEWS, View

_PERSON = re.compile(r"p\d+")
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
