"""Laws of every format of annotated faces, as tests.

A member's tests subclass `AnnotationFormatLaws`, name the format and say how it is written.
"""

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import ClassVar

import numpy as np
import pytest
from PIL import Image

from site_agent.datasets.conversion import read_faces, recognise_annotations
from site_agent.datasets.records import (
    AnnotatedImage,
    FaceBox,
    FaceDataset,
    dataset_digest,
    numbered_parts,
    part_names,
)
from site_agent.errors import AnnotationFileError

SIZE = (64, 48)


def drawn_faces(folder: Path) -> FaceDataset:
    """Return three pictures with one face each and landmarks at whole pixels.

    The last face lacks a landmark.
    """
    images = []
    for seed in range(3):
        random = np.random.default_rng(seed)
        path = folder / f"person-{seed}.png"
        path.parent.mkdir(parents=True, exist_ok=True)
        Image.fromarray(random.integers(0, 255, (*SIZE[::-1], 3), np.uint8)).save(path)
        parts = numbered_parts(random.integers(10, 40, (12, 2)).astype(np.float64))
        if seed == 2:
            del parts["05"]
        images.append(AnnotatedImage(path, (FaceBox(8, 6, 40, 39, parts),), *SIZE))
    return FaceDataset(None, images=tuple(images))


class AnnotationFormatLaws:
    """Subclass as ``Test...`` and fill in the attributes."""

    format_name: ClassVar[str]
    holds_boxes: ClassVar[bool] = True
    """False where boxes are made of the landmarks."""

    def write(self, dataset: FaceDataset, place: Path) -> Path:
        """Write a data set below a folder and return the path for reading it."""
        raise NotImplementedError

    @pytest.fixture
    def faces(self, tmp_path: Path) -> FaceDataset:
        return drawn_faces(tmp_path / "pictures")

    @pytest.fixture
    def written(self, faces: FaceDataset, tmp_path: Path) -> Path:
        return self.write(faces, tmp_path / "written")

    def test_it_is_recognised(self, written: Path) -> None:
        assert recognise_annotations(written).name == self.format_name

    def test_what_is_written_is_read(self, faces: FaceDataset, written: Path) -> None:
        again = read_faces(written)
        assert part_names(again) == part_names(faces)
        assert len(again.images) == len(faces.images)
        for image, expected in zip(again.images, faces.images, strict=True):
            assert image.path.read_bytes() == expected.path.read_bytes(), "the same picture"
            [box], [expected_box] = image.boxes, expected.boxes
            assert set(box.parts) == set(expected_box.parts)
            for name, point in expected_box.parts.items():
                assert box.parts[name] == pytest.approx(point, abs=1e-5)
            if self.holds_boxes:
                assert box.corners == expected_box.corners
            left, top, right, bottom = box.corners
            assert all(left <= x <= right and top <= y <= bottom for x, y in box.parts.values())

    def test_reading_again_gives_the_same(self, written: Path) -> None:
        first, second = read_faces(written), read_faces(written)
        assert first == second
        assert dataset_digest(first) == dataset_digest(second)

    def test_absent_pictures_are_for_the_check_to_tell(
        self, faces: FaceDataset, written: Path
    ) -> None:
        names = sorted(image.path.name for image in faces.images)
        suffixes = {".png"} if self.holds_boxes else {".png", ".jpg"}
        for image in [*read_faces(written).images, *faces.images]:
            image.path.unlink(missing_ok=True)
        images = read_faces(written).images
        assert sorted(image.path.stem for image in images) == [Path(name).stem for name in names]
        assert {image.path.suffix for image in images} <= suffixes

    def test_what_is_not_there_is_named(self, written: Path) -> None:
        for absent in (written.with_name(f"none-{written.name}"), written.parent / "no" / "where"):
            with pytest.raises(AnnotationFileError, match=absent.name):
                read_faces(absent)

    def test_damaged_files_are_refused_or_read(self, written: Path) -> None:
        """No cut and no changed byte may end in anything but faces or a message with the file."""
        file = next(written.glob("*.pts")) if written.is_dir() else written
        messages = []
        for damaged in _damaged(file.read_bytes()):
            file.write_bytes(damaged)
            try:
                read_faces(written)
            except AnnotationFileError as error:
                messages.append(str(error))
        assert messages
        assert all(file.name in message for message in messages)

    @pytest.mark.parametrize(
        "content",
        [
            b"",
            b"\x00" * 64,
            b"neither this nor that\n",
            b"<?xml version='1.0' encoding='no-such'?><dataset/>",
        ],
    )
    def test_other_contents_are_refused(self, written: Path, content: bytes) -> None:
        file = next(written.glob("*.pts")) if written.is_dir() else written
        file.write_bytes(content)
        with pytest.raises(AnnotationFileError, match=file.name):
            read_faces(written)

    def test_no_landmark_is_taken_from_another_face(
        self, faces: FaceDataset, tmp_path: Path
    ) -> None:
        backwards = replace(faces, images=faces.images[::-1])
        written = self.write(backwards, tmp_path / "backwards")
        by_name = {image.path.stem: image.boxes[0] for image in read_faces(written).images}
        for image in faces.images:
            parts = by_name[image.path.stem].parts
            assert parts.keys() == image.boxes[0].parts.keys()
            assert parts["00"] == pytest.approx(image.boxes[0].parts["00"], abs=1e-5)


def _damaged(content: bytes) -> Iterator[bytes]:
    """Yield the content cut in 40 places, and with a byte changed in 200."""
    random = np.random.default_rng(0)
    for cut in np.linspace(0, len(content) - 1, 40).astype(int):
        yield content[:cut]
    for place in random.integers(0, len(content), 200):
        yield content[:place] + bytes([random.integers(0, 256)]) + content[place + 1 :]
