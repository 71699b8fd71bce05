"""Annotated faces as plain data, from any file format.

Pixel coordinates have their origin at the centre of the upper left pixel, x to the right and y
down. A box covers whole pixels: its right and bottom edges are *inside* it, as in dlib.
"""

import hashlib
import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from site_agent.errors import AnnotationFileError

Float64 = NDArray[np.float64]


@dataclass(frozen=True)
class FaceBox:
    """One annotated face of an image."""

    left: int
    top: int
    width: int
    height: int
    """The box in pixels; it may reach outside the image."""
    parts: Mapping[str, tuple[float, float]] = field(default_factory=dict)
    """(x, y): Landmarks in pixels by name, in the order of the file."""
    ignore: bool = False
    """The box is neither a face to find nor an error to find: training and evaluation skip it."""
    difficult: bool = False
    occluded: bool = False
    truncated: bool = False
    """Remarks of the annotator."""
    label: str | None = None
    """Kind of the object, where a dataset has several."""
    detection_score: float = 0.0
    """Score of the detector that made the box, 0 for boxes drawn by hand."""
    line: int = field(default=0, compare=False)
    """Line of the XML file on which the box begins, 0 where that is not known."""

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
    """One image file and its annotated faces.

    Width and height are those that the annotation file declares; `check_datasets` compares them
    with the image itself.
    """

    path: Path
    boxes: tuple[FaceBox, ...] = ()
    width_px: int | None = None
    height_px: int | None = None
    line: int = field(default=0, compare=False)
    """Of the XML file; 0 where it is not known."""


@dataclass(frozen=True)
class FaceDataset:
    """Images with their boxes and landmarks."""

    path: Path | None
    """The file they were read from."""
    name: str = ""
    comment: str = ""
    # A notebook would show every landmark of every face.
    images: tuple[AnnotatedImage, ...] = field(default=(), repr=False)

    def boxes(self, *, ignored: bool = False) -> Iterator[tuple[AnnotatedImage, FaceBox]]:
        """Yield every box with its image; boxes marked `ignore` only where `ignored` is true."""
        for image in self.images:
            for box in image.boxes:
                if ignored or not box.ignore:
                    yield image, box

    def with_boxes(self, change: Callable[[FaceBox], FaceBox]) -> "FaceDataset":
        """Return the data set with every box changed."""
        images = [replace(image, boxes=tuple(map(change, image.boxes))) for image in self.images]
        return replace(self, images=tuple(images))


def part_names(dataset: FaceDataset) -> tuple[str, ...]:
    """Names of the landmarks of a dataset in the order of a trained shape predictor.

    dlib numbers the parts by the lexicographic order of their names over all boxes that are not
    ignored, in any order of the file; so '10' comes before '2' and '02' before '10'.
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


_MARK_DIGITS = 12


def dataset_digest(dataset: FaceDataset) -> str:
    """Hash the contents of a dataset: image files, boxes and landmarks.

    The digest does not depend on names, folders, or the order of images and of boxes, so that a
    copy in another place has the same one. It changes with every byte of an image, coordinate
    and mark. The images cannot be recovered from it; holders of exactly the same files can
    recognise them.
    """
    require_images(dataset)
    images = sorted(_image_digest(dataset, image) for image in dataset.images)
    return _digest_of(["poolctl-dataset/1", images])


def image_marks(dataset: FaceDataset) -> tuple[str, ...]:
    """Return a short mark of each image file's content, in the order of the dataset.

    Two data sets with a common mark share an image, with any annotations. A mark is a
    part of a hash; the image cannot be recovered from it.
    """
    return tuple(
        _digest_of(["poolctl-image/1", _content_digest(dataset, image)])[:_MARK_DIGITS]
        for image in dataset.images
    )


def face_marks(datasets: Sequence[FaceDataset], details: Mapping[str, str]) -> dict[str, Any]:
    """Return the sources of training for `site_agent.training_record.remember_learned`.

    `details`: The faults of the data that it went on despite (`Soundness.details`).
    """
    marks = sorted({mark for dataset in datasets for mark in image_marks(dataset)})
    digests = [dataset_digest(dataset) for dataset in datasets]
    digest = digests[0] if len(digests) == 1 else ""
    return {"data": {"digest": digest, "image_marks": marks}, "details": dict(details)}


def _image_digest(dataset: FaceDataset, image: AnnotatedImage) -> str:
    boxes = sorted(json.dumps(_box_fields(box)) for box in image.boxes)
    return _digest_of([_content_digest(dataset, image), boxes])


def _content_digest(dataset: FaceDataset, image: AnnotatedImage) -> str:
    try:
        with image.path.open("rb") as stream:
            return hashlib.file_digest(stream, "sha256").hexdigest()
    except OSError as error:
        place = dataset.path or image.path
        problem = f"the image {image.path} cannot be read: {error.strerror}"
        raise AnnotationFileError(place, image.line, problem) from error


def _box_fields(box: FaceBox) -> list[object]:
    marks = [box.ignore, box.difficult, box.occluded, box.truncated]
    parts = [[name, *box.parts[name]] for name in sorted(box.parts)]
    return [*box.corners, marks, box.label or "", parts]


def _digest_of(value: object) -> str:
    text = json.dumps(value, separators=(",", ":"), ensure_ascii=True)
    return hashlib.sha256(text.encode("ascii")).hexdigest()


def require_images(dataset: FaceDataset) -> None:
    """Refuse a data set with missing images, before any is read."""
    missing = [image for image in dataset.images if not image.path.is_file()]
    if not missing:
        return
    first = missing[0]
    folder = first.path.parent.absolute()
    there = "is not there" if not folder.is_dir() else "does not have it"
    raise AnnotationFileError(
        dataset.path or Path(first.path.parent),
        first.line,
        f"the image {first.path} cannot be read: the folder {folder} {there} ({len(missing)} of "
        f"{len(dataset.images)} images are missing); file names are relative to the folder of the "
        "annotations, or for COCO to that of --images",
    )
