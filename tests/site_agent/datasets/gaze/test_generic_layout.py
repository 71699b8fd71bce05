"""Gaze data as a folder with a table: reading, writing, checks, and sessions held out."""

import os
import shutil
import zlib
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image

from site_agent.datasets.gaze.check import check_gaze, open_gaze
from site_agent.datasets.gaze.records import (
    GazeSamples,
    gaze_digest,
    held_out_sessions,
    select_sessions,
)
from site_agent.errors import AnnotationFileError, InvalidInputError
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
    ("old", "new", "message"),
    [
        (",left,", ",middle,", "line 2: eye is 'middle', expected left or right"),
        (",s0,0,", ",s0,zero,", "line 2: frame is 'zero', expected a whole number"),
        (",s0,0,", f",s0,{'9' * 30},", "line 2: frame is '9{30}', expected a whole number"),
        ("images/a/s0-00000-left", "../a/s0", "line 2: the picture '../a/s0.png' is outside"),
        ("images/a/s0-00000-left", "/etc/s0", "line 2: the picture '/etc/s0.png' is outside"),
        ("s0-00000-left", "s" * 256, "line 2: the picture's name has 260 bytes, expected at most"),
        (",s0,", ",,", "line 2: session is empty"),
        ("s0-00000-left", "s9", "line 2: the picture images/a/s9.png is missing"),
        ("s0-00000-left.png,a,s0,0,left,", "s0-00000-left.png,a,s0,0,left,wide", "angle in rad"),
        ("s0-00000-left.png,a,s0,0,left,", "s0-00000-left.png,a,s0,0,left,9", "within [+]-pi/2"),
    ],
)
def test_lines_that_cannot_be(tmp_path: Path, old: str, new: str, message: str) -> None:
    table = folder_of(tmp_path)
    text = table.read_text()
    # A yaw that begins with a minus would not be a number, nor be out of range, in these lines.
    text = text.replace("left,-", "left,")
    assert old in text
    table.write_text(text.replace(old, new, 1))
    with pytest.raises(AnnotationFileError, match=message):
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


def test_a_check_finds_everything_at_once(tmp_path: Path) -> None:
    table = folder_of(tmp_path / "eyes", samples_of("a"), samples_of("b", seed=1))
    assert check_gaze([table.parent]) == []
    lines = table.read_text().splitlines()
    folder = table.parent / "images" / "a"
    (folder / "s0-00000-left.png").unlink()
    (folder / "s0-00000-right.png").write_bytes(b"")
    shutil.copy(folder / "s1-00001-left.png", folder / "s1-00003-left.png")
    fields = lines[5].split(",")
    lines[5] = ",".join([*fields[:5], "17.5", *fields[6:]])
    fields = lines[7].split(",")
    lines[7] = ",".join([*fields[:5], str(float(fields[5]) - 0.5), *fields[6:]])
    lines.append(lines[9])
    table.write_text("\n".join(lines) + "\n")
    findings = check_gaze([table])
    assert {(finding.code, finding.line) for finding in findings} >= {
        ("missing-image", 2),
        ("broken-image", 3),
        ("duplicate-image", 8),
        ("gaze-range", 6),
        ("eyes-apart", 9),
        ("duplicate-sample", len(lines)),
    }
    assert all(finding.file == table for finding in findings)
    other = folder_of(tmp_path / "test", samples_of("c", 6), samples_of("b", seed=1)[:1])
    codes = {finding.code for finding in check_gaze([table.parent, other.parent])}
    assert {"shared-image", "few-samples", "one-session"} <= codes


def test_equal_angles_of_a_person_are_found(tmp_path: Path) -> None:
    level = samples_of("a", 30)
    level.gaze[:, 1] = 0
    folder_of(tmp_path, level, samples_of("b", 30, seed=1))
    [finding] = check_gaze([tmp_path])
    assert finding.text.startswith("person a: pitch is 0 in all 30 samples; expected")


def test_angles_in_degrees_are_found_once(tmp_path: Path) -> None:
    table = folder_of(tmp_path, samples_of("a", 30), samples_of("b", 30, seed=1))
    head, *lines = table.read_text().splitlines()
    rows = [line.split(",") for line in lines]
    degrees = [
        ",".join([*row[:5], *(f"{np.rad2deg(float(x)) + 3:.4f}" for x in row[5:])]) for row in rows
    ]
    table.write_text("\n".join([head, *degrees]) + "\n")
    [finding] = [item for item in check_gaze([tmp_path]) if item.severity == "error"]
    assert "they look like degrees, expected radians" in str(finding)


def test_a_table_that_lacks_a_column_is_named(tmp_path: Path) -> None:
    table = folder_of(tmp_path, samples_of("a", 2))
    table.write_text(table.read_text().replace(",pitch,", ",elevation,", 1))
    for path in (tmp_path, table):
        with pytest.raises(AnnotationFileError, match=r"gaze\.csv lacks pitch; expected a folder"):
            open_gaze(path)


def test_pipes_are_not_waited_for_and_huge_pictures_not_read(tmp_path: Path) -> None:
    table = folder_of(tmp_path)
    picture = next(tmp_path.rglob("s0-00000-left.png"))
    Image.new("1", (9000, 9000)).save(picture)
    with pytest.raises(AnnotationFileError, match="9000 x 9000 pixels, expected 60 x 36"):
        open_gaze(table.parent).read()
    head = bytearray(picture.read_bytes())
    head[16:24] = (60_000).to_bytes(4, "big") * 2
    head[29:33] = zlib.crc32(head[12:29]).to_bytes(4, "big")
    picture.write_bytes(head)
    with pytest.raises(AnnotationFileError, match="is huge"):
        open_gaze(table.parent).read()
    picture.unlink()
    os.mkfifo(picture)
    with pytest.raises(AnnotationFileError, match="is not a file"):
        open_gaze(table.parent).read()


@given(st.lists(st.integers(1, 9), min_size=1, max_size=4), st.floats(0.01, 0.99))
def test_whole_sessions_are_held_out_of_each_person(counts: list[int], share: float) -> None:
    parts = []
    for number, count in enumerate(counts):
        one = samples_of(f"p{number}", 20)
        names = np.array([f"s{i % count}" for i in range(20)])
        parts.append(replace(one, session=names))
    samples = GazeSamples.join(parts)
    held = held_out_sessions(samples, share)
    for number, count in enumerate(counts):
        of_person = samples.person == f"p{number}"
        out, rest = (set(samples.session[of_person & mask].tolist()) for mask in (held, ~held))
        assert not out & rest
        assert len(out) == (min(max(1, round(share * count)), count - 1) if count > 1 else 0)
    order = np.random.default_rng(0).permutation(len(samples))
    np.testing.assert_array_equal(held_out_sessions(samples[order], share), held[order])
    assert not held_out_sessions(samples, 0).any()


def test_sessions_are_selected_by_name() -> None:
    samples = samples_of()
    assert set(select_sessions(samples, ["s1"]).session.tolist()) == {"s1"}
    held = select_sessions(samples, ["held-out"])
    assert 0 < len(held) < len(samples)
    with pytest.raises(InvalidInputError, match="no session s7; expected s0, s1"):
        select_sessions(samples, ["s7"])
    with pytest.raises(InvalidInputError, match="no person has two sessions"):
        select_sessions(held, ["held-out"])
