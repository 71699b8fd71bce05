"""Annotated faces as plain data, whatever file they came from.

Pixel coordinates have their origin at the centre of the upper left pixel, x to the right and y
down. A box covers whole pixels: its right and bottom edges are *inside* it, as in dlib.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

Float64 = NDArray[np.float64]


@dataclass(frozen=True)
class FaceBox:
    """One annotated face of an image.

    Attributes
    ----------
    left, top, width, height : int
        The box in pixels; it may reach outside the image.
    parts : mapping of str to (x, y)
        Landmarks in pixels by name, in the order of the file.
    ignore : bool
        The box is neither a face to find nor an error to find: training and evaluation skip it.
    difficult, occluded, truncated : bool
        Remarks of the annotator.
    label : str or None
        Kind of the object, where a dataset has several.
    detection_score : float
        Score of the detector that made the box, 0 for boxes drawn by hand.
    line : int
        Line of the XML file on which the box begins, 0 where that is not known.
    """

    left: int
    top: int
    width: int
    height: int
    parts: Mapping[str, tuple[float, float]] = field(default_factory=dict)
    ignore: bool = False
    difficult: bool = False
    occluded: bool = False
    truncated: bool = False
    label: str | None = None
    detection_score: float = 0.0
    line: int = field(default=0, compare=False)

    @property
    def right(self) -> int:
        """Column of the last pixel inside the box."""
        return self.left + self.width - 1

    @property
    def bottom(self) -> int:
        """Row of the last pixel inside the box."""
        return self.top + self.height - 1

    @property
    def corners(self) -> tuple[int, int, int, int]:
        """Left, top, right, bottom, all four inside the box: dlib's ``rectangle``."""
        return self.left, self.top, self.right, self.bottom


@dataclass(frozen=True)
class AnnotatedImage:
    """One image file and the faces that somebody marked in it.

    Width and height are those that the annotation file declares; `check_dataset` compares them
    with the image itself. `line` is that of the XML file, 0 where it is not known.
    """

    path: Path
    boxes: tuple[FaceBox, ...] = ()
    width_px: int | None = None
    height_px: int | None = None
    line: int = field(default=0, compare=False)


@dataclass(frozen=True)
class FaceDataset:
    """Images with their boxes and landmarks; `path` is the file they were read from."""

    path: Path | None
    name: str = ""
    comment: str = ""
    images: tuple[AnnotatedImage, ...] = ()

    def boxes(self, *, ignored: bool = False) -> Iterator[tuple[AnnotatedImage, FaceBox]]:
        """Every box with its image; boxes marked `ignore` only where `ignored` is true."""
        for image in self.images:
            for box in image.boxes:
                if ignored or not box.ignore:
                    yield image, box


def part_names(dataset: FaceDataset) -> tuple[str, ...]:
    """Names of the landmarks of a dataset in the order of a trained shape predictor.

    dlib numbers the parts by the lexicographic order of their names over all boxes that are not
    ignored, whatever their order in the file; so '10' comes before '2' and '02' before '10'.
    """
    return tuple(sorted({name for _, box in dataset.boxes() for name in box.parts}))


def parts_array(box: FaceBox, names: Sequence[str]) -> Float64:
    """Landmarks of one box as an array of shape (len(names), 2), NaN where one is absent."""
    absent = (np.nan, np.nan)
    return np.array([box.parts.get(name, absent) for name in names], dtype=np.float64).reshape(
        len(names), 2
    )


def numbered_parts(points: Float64) -> dict[str, tuple[float, float]]:
    """Landmarks of shape (n, 2) as parts named '00', '01', ... so that dlib keeps their order."""
    digits = max(2, len(str(len(points) - 1)))
    return {f"{i:0{digits}d}": (float(x), float(y)) for i, (x, y) in enumerate(points)}
