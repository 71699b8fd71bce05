"""Copies of images, excerpts of landmarks, boxes as a detector draws them."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from site_agent.datasets.conversion import copy_images, rebox_dataset
from site_agent.datasets.records import dataset_digest, part_names, parts_array
from site_agent.errors import AnnotationFileError, InvalidInputError
from tests.site_agent.datasets.drawn import faces_in, picture


def test_copies_are_the_same_data_set(tmp_path: Path) -> None:
    dataset = faces_in(tmp_path, 3)
    other = picture(tmp_path / "deeper" / dataset.images[0].path.name, 9)
    dataset = replace(dataset, images=(*dataset.images, replace(dataset.images[0], path=other)))
    copied = copy_images(dataset, tmp_path / "copies")
    assert dataset_digest(copied) == dataset_digest(dataset)
    assert copied.images[3].path.name == "person-00_00-2.png"
    assert copy_images(copied, tmp_path / "copies") == copied
    other.unlink()
    with pytest.raises(AnnotationFileError, match=r"person-00_00.png: No such file"):
        copy_images(dataset, tmp_path / "more")


def test_boxes_of_a_detector(tmp_path: Path) -> None:
    dataset = faces_in(tmp_path, 6)
    names = part_names(dataset)

    def find(path: Path) -> list[tuple[float, float, float, float]]:
        """Frame all faces but one as a square above their landmarks' middle."""
        image = next(image for image in dataset.images if image.path == path)
        if image is dataset.images[2]:
            return [(0.0, 0.0, 9.0, 9.0)]
        points = parts_array(image.boxes[0], names)
        centre = (points.min(axis=0) + points.max(axis=0)) / 2 + (0, -3)
        return [(-300.0, -300.0, 300.0, 300.0), (*(centre - 20), *(centre + 20))]

    reboxed = rebox_dataset(dataset, find)
    assert reboxed.detected == 5
    assert [image.path for image, _ in reboxed.estimated] == [dataset.images[2].path]
    for image in reboxed.dataset.images:
        points = parts_array(image.boxes[0], names)
        centre = (points.min(axis=0) + points.max(axis=0)) / 2 + (0, -3)
        near = 1 if image.path != dataset.images[2].path else 6
        np.testing.assert_allclose(image.boxes[0].corners[:2], centre - 20, atol=near)
    assert reboxed.dataset.images[0].boxes[0].parts == dataset.images[0].boxes[0].parts
    first = dataset.images[0]
    ignored = replace(first, boxes=(replace(first.boxes[0], ignore=True, parts={}),))
    mixed = replace(dataset, images=(ignored, *dataset.images[1:]))
    kept = rebox_dataset(mixed, find).dataset
    assert kept.images[0] == ignored
    with pytest.raises(InvalidInputError, match="found none"):
        rebox_dataset(dataset, lambda _: [])
