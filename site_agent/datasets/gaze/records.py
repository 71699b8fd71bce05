"""Eye patches with gaze, and data sets of them that are read person by person."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from site_agent.datasets.gaze.angles import Float64
from site_agent.errors import InvalidInputError

UInt8 = NDArray[np.uint8]

Eye = Literal["left", "right"]
EYES: tuple[Eye, Eye] = ("left", "right")
PATCH_SHAPE = (36, 60)
"""Height and width of an eye patch in pixels."""


@dataclass(frozen=True)
class GazeSamples:
    """Eye patches of one or several persons, all as left eyes.

    Patches of right eyes are mirrored, and their yaws negated, so that one network serves both.
    Angles are radians in the frame of the normalised camera: yaw is positive to the left of the
    picture, pitch upwards, and (0, 0) looks into the camera.

    Attributes
    ----------
    patches : uint8, shape (n, 36, 60)
    gaze, head : float64, shape (n, 2)
        Yaw and pitch.
    person, session, eye : str, shape (n,)
        `eye` is 'left' or 'right', of the person.
    frame : int64, shape (n,)
        Number within the session; both eyes of a frame have the same.
    """

    patches: UInt8
    gaze: Float64
    head: Float64
    person: NDArray[np.str_]
    session: NDArray[np.str_]
    frame: NDArray[np.int64]
    eye: NDArray[np.str_]

    def __len__(self) -> int:
        return len(self.patches)

    def __getitem__(self, index: Any) -> GazeSamples:
        """Return the samples of a slice, a mask or an array of numbers."""
        return GazeSamples(*(values[index] for values in vars(self).values()))


@dataclass(frozen=True)
class GazeDataset:
    """A data set of eye patches on disk.

    Attributes
    ----------
    path : Path
    layout : str
        'mpiigaze' or 'folder'.
    persons : tuple of str
        In the order of their names.
    read_person : function of str
        Reads all samples of a person, in the order of the files.
    """

    path: Path
    layout: str
    persons: tuple[str, ...]
    read_person: Callable[[str], GazeSamples]

    def read(self, persons: Iterable[str] | None = None) -> GazeSamples:
        """Return the samples of some persons, or of all.

        Raises
        ------
        InvalidInputError
            A person that the data set does not have.
        AnnotationFileError
            A file is damaged or missing.
        """
        wanted = self.persons if persons is None else tuple(persons)
        if unknown := sorted(set(wanted) - set(self.persons)):
            raise InvalidInputError(
                f"{self.path}: has no person {', '.join(unknown)}; it has {', '.join(self.persons)}"
            )
        return join_samples([self.read_person(person) for person in wanted])


def join_samples(parts: Sequence[GazeSamples]) -> GazeSamples:
    """Return the samples of several sets, one after the other; at least one set."""
    columns = zip(*(vars(part).values() for part in parts), strict=True)
    return GazeSamples(*(np.concatenate(column) for column in columns))


def as_left_eyes(patches: UInt8, angles: Float64, right: NDArray[np.bool_]) -> None:
    """Mirror the patches of right eyes and negate their yaws, in place.

    The same function turns them back. `angles` has shape (n, ..., 2), yaw first.
    """
    patches[right] = patches[right, :, ::-1]
    angles[right, ..., 0] *= -1
