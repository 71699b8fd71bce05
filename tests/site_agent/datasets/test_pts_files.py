"""Landmarks in .pts files: the convention, refusals, folders of pairs."""

from pathlib import Path

import numpy as np
import pytest

from site_agent.datasets.pts_files import find_pts, read_pts, read_pts_folder
from site_agent.errors import AnnotationFileError
from tests.site_agent.datasets.drawn import picture

WITH_HEADER = "version: 1\nn_points:  3\n{\n1.0 1.0\n3.5 2\n11 21.25\n}\n"
EXPECTED = [[0.0, 0.0], [2.5, 1.0], [10.0, 20.25]]


@pytest.mark.parametrize(
    "text",
    [
        WITH_HEADER,
        WITH_HEADER.replace("\n", "\r\n"),
        "{\n1 1\n3.5 2\n11 21.25\n}",
        "1 1\n3.5 2\n\n11 21.25\n",
    ],
)
def test_the_same_landmarks_in_every_spelling(text: str, tmp_path: Path) -> None:
    file = tmp_path / "face.pts"
    file.write_bytes(text.encode())
    np.testing.assert_array_equal(read_pts(file), EXPECTED)
    np.testing.assert_array_equal(read_pts(file, origin=0), np.array(EXPECTED) + 1)


@pytest.mark.parametrize(
    ("text", "line", "message"),
    [
        ("version: 1\nn_points: 4\n{\n1 1\n2 2\n", 0, "has 2 landmarks, while n_points is 4"),
        ("version: 1\nn_points: 2\n{\n1 1\n2 b\n}\n", 5, "'2 b'"),
        ("1 1\n2 2 2\n", 2, "'2 2 2'"),
        ("1 1\n2 inf\n", 2, "beyond any image"),
        ("version: 1\nn_points: 0\n{\n}\n", 0, "no landmarks"),
    ],
)
def test_what_is_wrong_is_said_with_its_line(
    text: str, line: int, message: str, tmp_path: Path
) -> None:
    file = tmp_path / "face.pts"
    file.write_text(text)
    with pytest.raises(AnnotationFileError) as caught:
        read_pts(file)
    assert (caught.value.path, caught.value.line) == (file, line)
    assert message in caught.value.problem


def test_a_folder_of_pairs(tmp_path: Path) -> None:
    for place in ("one.png", "deeper/two.JPG"):
        picture(tmp_path / place, len(place))
    square = "11 11\n31 11\n31 41\n11 41\nnan nan\n"
    for place in ("one", "deeper/two", "alone"):
        (tmp_path / f"{place}.pts").write_text(square)
    dataset = read_pts_folder(tmp_path, margin=0.1)
    names = {image.path.relative_to(tmp_path).as_posix() for image in dataset.images}
    assert names == {"one.png", "deeper/two.JPG", "alone.jpg"}
    box = dataset.images[0].boxes[0]
    assert box.corners == (8, 7, 32, 43)
    assert list(box.parts) == ["00", "01", "02", "03"], "the one that is not marked is absent"
    assert box.parts["02"] == (30.0, 40.0)


def test_what_a_mac_leaves_in_folders_is_no_data(tmp_path: Path) -> None:
    picture(tmp_path / "one.png")
    (tmp_path / "one.pts").write_text("11 11\n31 31\n")
    for place in ("._one", "__MACOSX/one", "__MACOSX/._one", ".trash/one"):
        for suffix in ("png", "pts"):
            file = tmp_path / f"{place}.{suffix}"
            file.parent.mkdir(exist_ok=True)
            file.write_bytes(b"\0\5\x16\7\xff")
    assert [image.path for image in read_pts_folder(tmp_path).images] == [tmp_path / "one.png"]
    (tmp_path / "one.pts").unlink()
    assert list(find_pts(tmp_path)) == []


def test_folders_that_cannot_be_read(tmp_path: Path) -> None:
    with pytest.raises(AnnotationFileError, match=r"has no \.pts files"):
        read_pts_folder(tmp_path)
    picture(tmp_path / "face.png")
    picture(tmp_path / "face.jpg")
    (tmp_path / "face.pts").write_text("1 1\n9 9\n")
    with pytest.raises(AnnotationFileError, match="several images"):
        read_pts_folder(tmp_path)
    (tmp_path / "face.pts").write_text("nan nan\n")
    with pytest.raises(AnnotationFileError, match="no landmark that is marked"):
        read_pts_folder(tmp_path)
