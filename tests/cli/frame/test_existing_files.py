"""What is there already: replaced only when asked for, and what is read never."""

from __future__ import annotations

from pathlib import Path

import pytest

from site_agent.datasets import FaceDataset
from tests.cli.conftest import Run
from tests.site_agent.datasets.drawn import faces_in


@pytest.fixture
def faces(tmp_path: Path) -> FaceDataset:
    """Two small pictures with a face each, in a folder of their own."""
    (tmp_path / "faces").mkdir()
    return faces_in(tmp_path / "faces", 2)


def marks(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.iterdir() if path.is_file()}


def test_predictions_do_not_replace_annotations(
    faces: FaceDataset, tmp_path: Path, poolctl: Run
) -> None:
    assert faces.path is not None
    before = marks(faces.path.parent)
    words = ("predict", faces.path, "--detector", "stock")
    for force in ((), ("--force",)):
        refused = poolctl(*words, "--output", faces.path, *force, "--json")
        assert (refused.code, refused.error["code"]) == (2, "usage")
        assert "faces.xml: is an input" in refused.error["message"]
    linked = tmp_path / "linked.xml"
    linked.symlink_to(faces.path)
    assert poolctl(*words, "--output", linked, "--force", "--json").error["code"] == "usage"
    image = faces.images[0].path
    assert poolctl(*words, "--output", image, "--force", "--json").error["code"] == "usage"
    assert marks(faces.path.parent) == before
    other = tmp_path / "other.xml"
    other.write_text("by hand")
    refused = poolctl(*words, "--output", other, "--json")
    assert (refused.code, refused.error["code"]) == (7, "file_exists")
    assert other.read_text() == "by hand"
    assert poolctl(*words, "--output", other, "--force", "--json").data["output"] == str(other)
    assert other.read_text().startswith("<?xml")
