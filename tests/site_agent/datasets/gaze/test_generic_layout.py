"""Gaze data as a folder with a table: reading, writing, checks and numbers."""

from __future__ import annotations

import shutil
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from site_agent.datasets.gaze import gaze_digest, open_gaze
from site_agent.errors import AnnotationFileError
from tests.site_agent.datasets.gaze.made import folder_of, samples_of


def test_what_is_written_is_read_again(tmp_path: Path) -> None:
    parts = [samples_of("a"), samples_of("b", 40, seed=1)]
    table = folder_of(tmp_path / "eyes", *parts)
    dataset = open_gaze(table.parent)
    assert dataset.persons == ("a", "b")
    for part in parts:
        read = dataset.read([str(part.person[0])])
        for name, values in vars(part).items():
            np.testing.assert_array_equal(getattr(read, name), values)
    # On disk, a right eye is as the camera saw it.
    with Image.open(table.parent / "images" / "a" / "s0-00000-right.png") as picture:
        assert (np.asarray(picture) == parts[0].patches[1, :, ::-1]).all()
    line = next(line for line in table.read_text().splitlines() if "s0-00000-right" in line)
    assert float(line.split(",")[5]) == -parts[0].gaze[1, 0]
    # The digest follows the content, not the place or the order of lines.
    digest = gaze_digest(dataset)
    header, *lines = table.read_text().splitlines()
    moved = tmp_path / "moved"
    shutil.copytree(table.parent, moved)
    (moved / "gaze.csv").write_text("\n".join([header, *reversed(lines)]) + "\n")
    assert gaze_digest(open_gaze(moved)) == digest
    Image.new("L", (60, 36)).save(moved / "images" / "a" / "s0-00000-right.png")
    assert gaze_digest(open_gaze(moved)) != digest


@pytest.mark.parametrize(
    ("old", "new", "words"),
    [
        (",left,", ",middle,", "line 2: eye is 'middle', expected left or right"),
        (",s0,0,", ",s0,zero,", "line 2: frame is 'zero', expected a whole number"),
        (",s0,0,", f",s0,{'9' * 30},", "line 2: frame is '9{30}', expected a whole number"),
        ("images/a/s0-00000-left", "../a/s0", "line 2: the picture '../a/s0.png' is outside"),
        ("images/a/s0-00000-left", "/etc/s0", "line 2: the picture '/etc/s0.png' is outside"),
        (",s0,", ",,", "line 2: session is empty"),
        ("s0-00000-left", "s9", "line 2: the picture images/a/s9.png is missing"),
        ("s0-00000-left.png,a,s0,0,left,", "s0-00000-left.png,a,s0,0,left,wide", "angle in rad"),
        ("s0-00000-left.png,a,s0,0,left,", "s0-00000-left.png,a,s0,0,left,9", "within [+]-pi/2"),
    ],
)
def test_lines_that_cannot_be(tmp_path: Path, old: str, new: str, words: str) -> None:
    table = folder_of(tmp_path)
    text = table.read_text()
    # A yaw that begins with a minus would not be a number, nor be out of range, in these lines.
    text = text.replace("left,-", "left,")
    assert old in text
    table.write_text(text.replace(old, new, 1))
    with pytest.raises(AnnotationFileError, match=words):
        open_gaze(tmp_path).read()


def test_pictures_that_cannot_be(tmp_path: Path) -> None:
    table = folder_of(tmp_path)
    first = tmp_path / "images" / "a" / "s0-00000-left.png"
    Image.new("L", (36, 60)).save(first)
    with pytest.raises(AnnotationFileError, match="is 36 x 60 pixels, expected 60 x 36"):
        open_gaze(table).read()
    first.write_bytes(b"no picture")
    with pytest.raises(AnnotationFileError, match="is not a picture"):
        open_gaze(table).read()
