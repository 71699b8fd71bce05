"""Contact sheets of any data set."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from site_agent.datasets.records import FaceBox, FaceDataset
from site_agent.datasets.sheets import surroundings, write_contact_sheets
from site_agent.errors import AnnotationFileError, InvalidInputError
from tests.site_agent.datasets.drawn import faces_in


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
