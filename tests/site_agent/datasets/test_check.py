"""Everything that can be wrong with a dataset is found; copies and contact sheets."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from site_agent.datasets.check import check_datasets
from site_agent.datasets.conversion import copy_images, rebox_dataset
from site_agent.datasets.imglab_xml import read_imglab_xml
from site_agent.datasets.landmark_schemes import ibug_mean_face
from site_agent.datasets.records import (
    AnnotatedImage,
    FaceBox,
    FaceDataset,
    dataset_digest,
    numbered_parts,
    part_names,
    parts_array,
    require_images,
)
from site_agent.datasets.sheets import surroundings, write_contact_sheets
from site_agent.errors import AnnotationFileError, InvalidInputError
from tests.site_agent.datasets.drawn import dataset_of, face_box, face_points, faces_in, picture

BOX = FaceBox(10, 10, 20, 20)


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


@pytest.mark.parametrize(
    ("points", "is_named"),
    [
        (face_points(), False),
        (face_points()[36:48], False),
        (face_points()[36:42] * 0.1 + (20, 16), False),
        (face_points() / 64, True),
        (face_points(scale=0.1) - (30, 20), True),
        (8 * face_points(), True),
    ],
    ids=[
        "face",
        "eyes",
        "a small thing",
        "shares of the picture",
        "another place",
        "another scale",
    ],
)
def test_landmarks_that_are_not_of_their_box_stop_training(
    tmp_path: Path, points: np.ndarray, is_named: bool
) -> None:
    image = AnnotatedImage(picture(tmp_path / "a.png"), (face_box(points),))
    findings = check_datasets([dataset_of(tmp_path, image)])
    off = [finding.severity for finding in findings if finding.code == "parts-off-box"]
    assert off == ["error"] * is_named


@pytest.mark.parametrize("share", [0.5, 1.0])
def test_faces_annotated_on_smaller_pictures_are_told(tmp_path: Path, share: float) -> None:
    def scaled(box: FaceBox) -> FaceBox:
        places = {name: (x * share, y * share) for name, (x, y) in box.parts.items()}
        sides = (int(side * share) for side in (box.left, box.top, box.width, box.height))
        return FaceBox(*sides, places)

    findings = check_datasets([faces_in(tmp_path, 10).with_boxes(scaled)])
    assert [one.code for one in findings if one.code == "near-corner"] == ["near-corner"] * (
        share == 0.5
    )


_LABELS = [("several-labels", "warning")]


@pytest.mark.parametrize(
    ("boxes", "codes"),
    [
        ([(30, 20, 20, 20)], []),
        ([(0, 0, 1, 1)], [("parts-off-box", "error")]),
        ([(30, 20, 50, 40)], [("parts-off-box", "error"), ("box-crosses-edge", "warning")]),
        ([(30, 20, 20, 20), (31, 20, 20, 20)], [("repeated-face", "warning")]),
        ([(30, 20, 20, 20), (44, 20, 20, 20)], []),
        ([(30, 20, 20, 20), (44, 20, 20, 20, {}, False, False, False, False, "toy")], _LABELS),
    ],
    ids=["a size", "shares", "edges for a size", "of two persons", "neighbours", "another thing"],
)
def test_boxes_with_other_edges_and_boxes_of_one_face_are_found(
    tmp_path: Path, boxes: list[tuple[Any, ...]], codes: list[tuple[str, str]]
) -> None:
    face = ibug_mean_face()
    parts = numbered_parts((31, 21) + 18 * (face - face.min(axis=0)) / np.ptp(face, axis=0))
    faces = (FaceBox(*boxes[0], parts), *(FaceBox(*box) for box in boxes[1:]))
    dataset = dataset_of(tmp_path, AnnotatedImage(picture(tmp_path / "a.png"), faces))
    findings = [(one.code, one.severity) for one in check_datasets([dataset])]
    assert sorted(item for item in findings if item[0] != "no-parts") == sorted(codes)


@pytest.mark.parametrize("corner", [(0, 16), (16, 0), (58, 16), (16, 42)])
def test_a_box_cut_by_any_edge_of_the_picture_may_be_smaller_than_its_face(
    tmp_path: Path, corner: tuple[int, int]
) -> None:
    size = (6, 12) if corner[1] == 16 else (12, 6)
    cut = FaceBox(*corner, *size, face_box(face_points()).parts)
    within = replace(cut, left=min(max(cut.left, 1), 57), top=min(max(cut.top, 1), 41))
    for box, is_named in ((cut, False), (within, True)):
        image = AnnotatedImage(picture(tmp_path / "a.png"), (box,))
        codes = {finding.code for finding in check_datasets([dataset_of(tmp_path, image)])}
        assert ("parts-off-box" in codes) == is_named


@pytest.mark.parametrize("place", [(0.0, 0.0), (-1.0, -1.0)])
def test_a_landmark_that_nobody_marked_stops_training(
    tmp_path: Path, place: tuple[float, float]
) -> None:
    whole = face_box(face_points())
    image = AnnotatedImage(
        picture(tmp_path / "a.png"), (replace(whole, parts={**whole.parts, "40": place}),)
    )
    [finding] = [
        finding
        for finding in check_datasets([dataset_of(tmp_path, image)])
        if finding.code == "parts-unmarked"
    ]
    assert finding.severity == "error"
    assert "1 of 68 parts" in finding.text


def test_an_unmarked_landmark_is_found_in_a_box_around_all(tmp_path: Path) -> None:
    parts = {**face_box(face_points()).parts, "40": (0.0, 0.0)}
    around = AnnotatedImage(picture(tmp_path / "a.png"), (FaceBox(0, 0, 60, 46, parts),))
    assert "parts-unmarked" in {
        item.code for item in check_datasets([dataset_of(tmp_path, around)])
    }


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


def pixels_of(path: Path) -> np.ndarray:
    with Image.open(path) as page:
        return np.asarray(page)


def test_pages_hold_all_faces(tmp_path: Path) -> None:
    dataset = faces_in(tmp_path, 31)
    seen: list[float] = []
    pages = write_contact_sheets(dataset, tmp_path / "sheet.png", lambda part, _: seen.append(part))
    assert [page.name for page in pages] == ["sheet.png", "sheet-2.png"]
    assert seen == [0.5, 1.0]
    assert pixels_of(pages[0]).shape == (5 * 202 - 2, 6 * 202 - 2, 3)
    assert pixels_of(pages[1]).shape == (200, 200, 3)


@pytest.mark.parametrize(("place", "inside"), [((69, 39, 20, 20), True), ((50, 20, 50, 20), False)])
def test_a_tile_shows_nothing_beside_the_picture(
    place: tuple[int, int, int, int], inside: bool
) -> None:
    white = Image.new("RGB", (90, 60), "white")
    left, top, right, bottom = surroundings(white, FaceBox(*place))
    assert right - left == bottom - top
    assert (left >= 0 and top >= 0 and right <= 90 and bottom <= 60) == inside


def test_boxes_and_landmarks_are_drawn(tmp_path: Path) -> None:
    dataset = faces_in(tmp_path, 1)
    black = dataset.images[0].path
    Image.new("L", (64, 48)).save(black)
    image = dataset.images[0]
    [page] = write_contact_sheets(dataset, tmp_path / "sheet.png")
    pixels = pixels_of(page).reshape(-1, 3)
    colours = {tuple(colour) for colour in np.unique(pixels, axis=0).tolist()}
    assert (255, 210, 0) in colours
    # Pixels below the lines that join landmarks stay visible.
    assert (0, 170, 255) not in colours
    assert (0, 100, 150) in colours
    ignored = replace(image, boxes=(replace(image.boxes[0], ignore=True, parts={}),))
    [page] = write_contact_sheets(replace(dataset, images=(ignored,)), tmp_path / "sheet")
    assert page.name == "sheet.png"
    pixels = pixels_of(page).reshape(-1, 3)
    assert (pixels == (255, 90, 90)).all(axis=1).any()
    assert not (pixels == (255, 210, 0)).all(axis=1).any()


def test_grey_of_16_bits_is_not_white(tmp_path: Path) -> None:
    dataset = faces_in(tmp_path, 1)
    Image.fromarray(np.full((48, 64), 100 * 256, np.uint16)).save(dataset.images[0].path)
    [page] = write_contact_sheets(dataset, tmp_path / "sheet.png")
    pixels = pixels_of(page).reshape(-1, 3)
    assert (np.median(pixels, axis=0) == 100).all()


def test_what_cannot_be_shown(tmp_path: Path) -> None:
    with pytest.raises(InvalidInputError, match="nothing to show"):
        write_contact_sheets(FaceDataset(None), tmp_path / "sheet.png")
    dataset = faces_in(tmp_path, 1)
    with pytest.raises(InvalidInputError, match="cannot be written"):
        write_contact_sheets(dataset, tmp_path / "absent" / "sheet.png")
    dataset.images[0].path.write_text("no picture")
    with pytest.raises(AnnotationFileError, match="line 6"):
        write_contact_sheets(dataset, tmp_path / "sheet.png")
