"""Everything that can be wrong with a dataset is found, all of it at once."""

from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from site_agent.datasets.check import check_datasets
from site_agent.datasets.imglab_xml import read_imglab_xml
from site_agent.datasets.records import (
    AnnotatedImage,
    FaceBox,
    FaceDataset,
    dataset_digest,
    require_images,
)
from site_agent.errors import AnnotationFileError
from tests.site_agent.datasets.drawn import dataset_of, picture

BOX = FaceBox(10, 10, 20, 20)


def test_a_sound_dataset_has_no_findings(tmp_path: Path) -> None:
    seen: list[float] = []
    images = [AnnotatedImage(picture(tmp_path / f"{i}.png", i), (BOX,), 64, 48) for i in range(3)]
    assert check_datasets([dataset_of(tmp_path, *images)], lambda part, _: seen.append(part)) == []
    assert seen[0] == 0.0
    assert seen[-1] == 1.0


def test_all_that_is_wrong_is_listed(tmp_path: Path) -> None:
    (tmp_path / "text.png").write_text("no picture")
    whole = picture(tmp_path / "whole.png", 1)
    (tmp_path / "cut.png").write_bytes(whole.read_bytes()[:2000])
    (tmp_path / "copy.png").write_bytes(whole.read_bytes())
    turned = tmp_path / "turned.jpg"
    exif = Image.Exif()
    exif[0x0112] = 6
    Image.open(picture(tmp_path / "other.png", 2)).save(turned, exif=exif)
    parts = {"00": (1.0, 2.0), "01": (63.0, 47.0)}
    dataset = dataset_of(
        tmp_path,
        AnnotatedImage(tmp_path / "gone.png", (BOX,)),
        AnnotatedImage(tmp_path / "gone2.png", (BOX,)),
        AnnotatedImage(tmp_path / "text.png", (BOX,)),
        AnnotatedImage(tmp_path / "cut.png", (BOX,)),
        AnnotatedImage(whole, (FaceBox(10, 10, 9, 9, parts),), 48, 64),
        AnnotatedImage(tmp_path / "copy.png", (FaceBox(60, 10, 5, 5, {"00": (99.0, 2.0)}),)),
        AnnotatedImage(turned, (FaceBox(64, 10, 5, 5), FaceBox(99, 9, 9, 9, ignore=True))),
    )
    findings = check_datasets([dataset])
    codes = {(finding.code, finding.severity) for finding in findings}
    assert codes == {
        ("missing-image", "error"),
        ("broken-image", "error"),
        ("size-differs", "error"),
        ("duplicate-image", "warning"),
        ("box-crosses-edge", "warning"),
        ("box-outside", "error"),
        ("parts-outside", "warning"),
        ("inconsistent-parts", "error"),
        ("no-parts", "warning"),
        ("exif-orientation", "warning"),
    }
    assert sum(finding.code == "missing-image" for finding in findings) == 2
    assert sum(finding.code == "broken-image" for finding in findings) == 2
    assert all(finding.file == dataset.path and finding.line > 0 for finding in findings)
    (size,) = (finding for finding in findings if finding.code == "size-differs")
    assert "is 64 x 48 pixels, but declared as 48 x 64" in str(size)
    assert str(size).startswith(f"{dataset.path}, line {size.line}: ")


def test_nothing_to_train_on_is_an_error(tmp_path: Path) -> None:
    (none,) = check_datasets([dataset_of(tmp_path)])
    assert none.code == "no-images"
    ignored = AnnotatedImage(picture(tmp_path / "a.png"), (FaceBox(1, 1, 9, 9, ignore=True),))
    (no_boxes,) = check_datasets([FaceDataset(None, "drawn", images=(ignored,))])
    assert (no_boxes.code, no_boxes.severity) == ("no-boxes", "error")


def test_real_files_are_sound(shared_data: Path) -> None:
    for path in sorted((shared_data / "dlib_faces").glob("*.xml")):
        assert check_datasets([read_imglab_xml(path)]) == []


def test_digest_follows_contents_only(tmp_path: Path) -> None:
    there = tmp_path / "elsewhere"
    there.mkdir()
    a, b = picture(tmp_path / "a.png", 1), picture(tmp_path / "b.png", 2)
    other = FaceBox(1, 2, 3, 4, {"x": (1.0, 2.0), "y": (3.0, 4.0)})
    first = FaceDataset(None, "n", images=(AnnotatedImage(a, (BOX, other)), AnnotatedImage(b)))
    digest = dataset_digest(first)
    (there / "one.png").write_bytes(a.read_bytes())
    moved = FaceBox(1, 2, 3, 4, {"y": (3.0, 4.0), "x": (1.0, 2.0)})
    same = (AnnotatedImage(b), AnnotatedImage(there / "one.png", (moved, BOX), 64, 48))
    assert dataset_digest(FaceDataset(there / "f.xml", images=same)) == digest
    for changed in (
        FaceBox(1, 2, 3, 5, other.parts),
        FaceBox(1, 2, 3, 4, {"x": (1.0, 2.0), "y": (3.0, 4.5)}),
        FaceBox(1, 2, 3, 4, other.parts, ignore=True),
    ):
        images = (AnnotatedImage(a, (BOX, changed)), AnnotatedImage(b))
        assert dataset_digest(FaceDataset(None, images=images)) != digest
    a.write_bytes(a.read_bytes() + b"\0")
    assert dataset_digest(first) != digest


def test_digest_names_the_image_that_is_missing(tmp_path: Path) -> None:
    dataset = dataset_of(tmp_path, AnnotatedImage(tmp_path / "gone.png", (BOX,)))
    with pytest.raises(AnnotationFileError, match=r"faces\.xml, line 6: the image .*gone\.png"):
        dataset_digest(dataset)
    with pytest.raises(AnnotationFileError, match="1 of 1 images are missing") as caught:
        require_images(dataset)
    assert str(tmp_path) in caught.value.problem


def test_pictures_in_two_data_sets_are_found_by_their_pixels(tmp_path: Path) -> None:
    train, test = tmp_path / "train", tmp_path / "test"
    train.mkdir()
    test.mkdir()
    whole = picture(train / "a.png")
    with Image.open(whole) as opened:
        opened.save(test / "renamed.bmp")
    first = dataset_of(train, AnnotatedImage(whole, (BOX,)))
    separate = AnnotatedImage(picture(test / "own.png", 5), (BOX,))
    second = dataset_of(test, separate, AnnotatedImage(test / "renamed.bmp", (BOX,)))
    [finding] = check_datasets([first, second])
    assert (finding.code, finding.severity) == ("shared-image", "error")
    assert finding.file == second.path
    assert "a.png" in finding.text
    assert check_datasets([first, first])[0].code == "shared-image"


@pytest.mark.parametrize("suffix", ["png", "tiff"])
def test_pictures_of_16_bits_are_told_from_each_other(tmp_path: Path, suffix: str) -> None:
    paths = []
    for number in range(3):
        deep = np.random.default_rng(number).integers(300, 65536, (48, 64), dtype=np.uint16)
        paths.append(tmp_path / f"{number}.{suffix}")
        Image.fromarray(deep).save(paths[-1])
    # The same samples in another format, the other way round in bytes.
    paths.append(tmp_path / "copy.ppm")
    with Image.open(paths[0]) as opened:
        paths[-1].write_bytes(b"P5 64 48 65535\n" + np.asarray(opened).astype(">u2").tobytes())
    dataset = dataset_of(tmp_path, *(AnnotatedImage(path, (BOX,), 64, 48) for path in paths))
    [finding] = check_datasets([dataset])
    assert finding.code == "duplicate-image"
    assert "copy.ppm" in finding.text
    assert f"0.{suffix}" in finding.text


def test_other_landmarks_than_expected(tmp_path: Path) -> None:
    other = tmp_path / "other"
    other.mkdir()
    parts = {f"{i}": (20.0 + i, 20.0) for i in range(3)}
    box = FaceBox(10, 10, 20, 20, parts)
    first = dataset_of(tmp_path, AnnotatedImage(picture(tmp_path / "a.png"), (box,)))
    fewer = FaceBox(10, 10, 20, 20, {"0": (20.0, 20.0)})
    second = dataset_of(other, AnnotatedImage(picture(other / "b.png", 1), (fewer,)))
    assert [f.code for f in check_datasets([first, second])] == ["other-parts"]
