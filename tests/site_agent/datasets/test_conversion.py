"""Copies of images, excerpts of landmarks, boxes as a detector draws them."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from site_agent.datasets import copy_images, dataset_digest
from site_agent.errors import AnnotationFileError
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
