"""Commands that draw, check, measure and show gaze data."""

import json
from pathlib import Path

from PIL import Image

from tests.cli.conftest import Run


def test_eyes_are_drawn_checked_and_shown(tmp_path: Path, poolctl: Run) -> None:
    eyes = tmp_path / "eyes"
    arguments = (
        "dataset",
        "draw",
        "eyes",
        eyes,
        "--set",
        "persons=2",
        "--set",
        "frames_per_person=24",
    )
    few = (*arguments, "--set", "amount=1", "--set", "sessions=2,2", "--set", "both_eyes=true")
    data = poolctl(*few, "--json").data
    assert (data["dataset"], data["samples"]) == (str(eyes / "gaze.csv"), 96)
    assert poolctl(*few, "--json").error["code"] == "file_exists"
    assert poolctl(*arguments, "--force", "--set", "sessions=two", "--json").code == 2
    wrong = poolctl(*arguments, "--force", "--set", "sessions=5,2", "--json")
    assert wrong.error["code"] == "invalid_input"
    checked = poolctl("dataset", "check", eyes, "--json").data["datasets"]
    assert [(item["layout"], item["persons"]) for item in checked] == [("folder", 2)]
    sheet = tmp_path / "sheet.png"
    arguments = ("dataset", "preview", eyes, "-o", sheet)
    assert poolctl(*arguments, "-q").out == f"{sheet}\n"
    with Image.open(sheet) as picture:
        assert picture.size == (56 + 10 * 122, 2 * 74 + 20), "two rows and the legend"
        assert (255, 210, 0) in {colour for _, colour in picture.getcolors(10**6) or ()}
    (eyes / "images" / "p00" / "s00-00000-left.png").unlink()
    report = tmp_path / "findings.json"
    bad = poolctl("dataset", "check", eyes, "--report", report, "--json")
    assert (bad.code, bad.error["code"]) == (5, "integrity")
    assert "s00-00000-left.png is missing" in bad.error["message"]
    assert json.loads(report.read_text())["findings"][0]["code"] == "missing-image"


def test_gaze_data_and_faces_are_not_mixed(tmp_path: Path, poolctl: Run) -> None:
    eyes, faces = tmp_path / "gaze.csv", tmp_path / "faces.xml"
    eyes.write_text("file,person,session,frame,eye,yaw,pitch,head_yaw,head_pitch\n")
    faces.write_text("<dataset/>")
    mixed = poolctl("dataset", "check", eyes, faces, "--json")
    assert (mixed.code, mixed.error["code"]) == (2, "usage")
    assert "has no samples" in poolctl("dataset", "check", eyes).err
