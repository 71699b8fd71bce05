"""Digests by which models trained on the same annotated images are known."""

from __future__ import annotations

import hashlib
import json

from site_agent.datasets.present_images import require_images
from site_agent.datasets.records import AnnotatedImage, FaceBox, FaceDataset
from site_agent.errors import AnnotationFileError

_MARK_DIGITS = 12


def dataset_digest(dataset: FaceDataset) -> str:
    """Hash the contents of a dataset: image files, boxes and landmarks.

    The digest does not depend on names, folders, or the order of images and of boxes, so that a
    copy in another place has the same one. It changes with every byte of an image, coordinate
    and mark. The images cannot be recovered from it; who holds exactly the same files can
    recognise them.

    Raises
    ------
    AnnotationFileError
        When an image cannot be read; names the annotation file and the line.
    """
    require_images(dataset)
    images = sorted(_image_digest(dataset, image) for image in dataset.images)
    return _digest_of(["poolctl-dataset/1", images])


def image_marks(dataset: FaceDataset) -> tuple[str, ...]:
    """Return a short mark of each image file's content, in the order of the dataset.

    Two data sets with a common mark share an image, whatever was annotated in it. A mark is a
    part of a hash; the image cannot be recovered from it.

    Raises
    ------
    AnnotationFileError
        As `dataset_digest`.
    """
    return tuple(
        _digest_of(["poolctl-image/1", _content_digest(dataset, image)])[:_MARK_DIGITS]
        for image in dataset.images
    )


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
