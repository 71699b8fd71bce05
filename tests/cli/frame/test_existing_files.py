"""Existing files: replaced only when asked for, and inputs never."""

from pathlib import Path

import pytest

from site_agent.datasets.records import FaceDataset
from tests.cli.conftest import Run
from tests.site_agent.datasets.drawn import faces_in, picture


@pytest.fixture
def faces(tmp_path: Path) -> FaceDataset:
    """Two small pictures with a face each, in a folder of their own."""
    (tmp_path / "faces").mkdir()
    return faces_in(tmp_path / "faces", 2)


def marks(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.iterdir() if path.is_file()}


def test_predictions_do_not_replace_inputs(
    faces: FaceDataset, tmp_path: Path, poolctl: Run
) -> None:
    assert faces.path is not None
    before = marks(faces.path.parent)
    image = faces.images[0].path
    arguments = ("predict", *(image.path for image in faces.images), "--detector", "stock")
    linked = tmp_path / "linked.xml"
    linked.symlink_to(image)
    for path in (image, linked):
        poolctl(*arguments, "--output", path, "--force", "--json").fails(
            2, "usage", f"{path.name}: is an input"
        )
    assert marks(faces.path.parent) == before
    other = tmp_path / "other.xml"
    other.write_text("by hand")
    poolctl(*arguments, "--output", other, "--json").fails(7, "file_exists")
    assert other.read_text() == "by hand"
    assert poolctl(*arguments, "--output", other, "--force", "--json").data["output"] == str(other)
    assert other.read_text().startswith("<?xml")


def test_converting_does_not_replace_other_annotations_and_pictures(
    faces: FaceDataset, tmp_path: Path, poolctl: Run
) -> None:
    assert faces.path is not None
    out = tmp_path / "out" / "faces.xml"
    arguments = ("dataset", "convert", faces.path, "-o", out, "--copy")
    assert poolctl(*arguments).code == 0
    out.write_text("by hand")
    poolctl(*arguments, "--json").fails(7, "file_exists")
    assert out.read_text() == "by hand"
    out.unlink()
    copies, other = out.with_suffix(""), faces.images[1].path.name
    (copies / faces.images[0].path.name).unlink()
    picture(copies / other, 77)
    before = marks(copies)
    refused = poolctl(*arguments, "--json")
    assert refused.error["code"] == "file_exists"
    assert other in refused.error["message"]
    assert marks(copies) == before
    assert poolctl(*arguments, "--force").code == 0
    assert (copies / other).read_bytes() == faces.images[1].path.read_bytes()


def test_converting_does_not_replace_what_is_converted(
    faces: FaceDataset, tmp_path: Path, poolctl: Run
) -> None:
    assert faces.path is not None
    read = tmp_path / "faces" / "read.xml"
    assert poolctl("dataset", "convert", faces.path, "-o", read).code == 0
    linked = tmp_path / "linked.xml"
    linked.symlink_to(read)
    before = marks(read.parent)
    arguments = ("dataset", "convert", read, "--parts", "eyes", "--force", "--json")
    for output in (("-o", read), ("-o", linked)):
        poolctl(*arguments, *output).fails(2, "usage", f"--output {output[-1]}: is an input")
        assert marks(read.parent) == before


@pytest.mark.parametrize(
    "arguments", [("video", "session.mp4", "--set=seconds=0.2"), ("faces", ".", "--set=images=1")]
)
def test_what_is_drawn_does_not_replace_what_was_recorded(
    arguments: tuple[str, ...], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, poolctl: Run
) -> None:
    monkeypatch.chdir(tmp_path)
    names = ("session.mp4", "faces.xml")
    for name in names:
        Path(name).write_bytes(b"of a lab")
    arguments = ("dataset", "draw", *arguments, "--set=size=160x160")
    assert poolctl(*arguments, "--json").error["code"] == "file_exists"
    assert [Path(name).read_bytes() for name in names] == [b"of a lab"] * 2
    assert sorted(path.name for path in tmp_path.iterdir() if path.is_file()) == sorted(names)
    assert poolctl(*arguments, "--force").code == 0
    assert any(Path(name).read_bytes() != b"of a lab" for name in names)
