"""Checking that the images of a data set exist."""

from __future__ import annotations

from pathlib import Path

from site_agent.datasets.records import FaceDataset
from site_agent.errors import AnnotationFileError


def require_images(dataset: FaceDataset) -> None:
    """Refuse a data set with missing images, before any is read.

    Raises
    ------
    AnnotationFileError
        Names the folder and how many are missing.
    """
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
