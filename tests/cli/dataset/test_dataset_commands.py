"""Commands that draw, recognise, check, split, convert and show data sets."""

import json
import os
import re
import threading
from pathlib import Path

import pytest

from site_agent.datasets.conversion import read_faces
from site_agent.datasets.synthetic.egocentric_clips import ClipSettings, write_clips
from site_agent.eyeblink.batch.sessions import find_sessions
from site_agent.eyeblink.conditioning.trials import read_trials_csv
from tests.cli.conftest import Run, run_here
from tests.site_agent.datasets.drawn import faces_in
from tests.site_agent.datasets.gaze.made import folder_of, samples_of
from tests.site_agent.datasets.other_layouts import write_coco_keypoints, write_pts_folder


@pytest.fixture(scope="module")
def faces(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("faces")
    settings = ("--set=images=8", "--set=persons=4", "--set=size=160x160")
    drawn = run_here("dataset", "draw", "faces", folder, *settings, "-q")
    assert drawn.code == 0, drawn.err
    return Path(drawn.out.strip())


def test_splitting_by_person_and_checking_the_parts(
    faces: Path, tmp_path: Path, poolctl: Run
) -> None:
    arguments = ("dataset", "split", faces, "--site-count", 2, "-o", tmp_path)
    arguments += ("--together", "person")
    table = faces.with_name("faces_truth.csv")
    data = poolctl(*arguments, "--persons", table, "--json").data
    first, second = data["items"]
    assert (first["images"], first["groups"], second["groups"]) == (4, 2, 2)
    assert poolctl("dataset", "check", first["dataset"], second["dataset"], "-q").out.split() == [
        first["digest"],
        second["digest"],
    ]
    poolctl("dataset", "check", faces, second["dataset"], "--json").fails(
        5, "integrity", "faces-site-2.xml, line"
    )
    poolctl(*arguments, "--persons", table, "--json").fails(7, "file_exists")
    by_name = poolctl(*arguments, "--person-pattern", "person-([0-9]+)", "--force", "--json")
    assert [item["images"] for item in by_name.data["items"]] == [4, 4]
    for wrong, code in (
        ((), "usage"),
        (("--person-pattern", "("), "invalid_input"),
        (("--persons", tmp_path / "no.csv"), "file_not_found"),
    ):
        assert poolctl(*arguments, "--force", *wrong, "--json").error["code"] == code
    assert poolctl("dataset", "split", faces, "-o", tmp_path, "--json").code == 2
    table_out = poolctl("dataset", "split", faces, "--test-share", "0.25", "-o", tmp_path).out
    assert table_out.splitlines()[2].split()[:2] == ["test", "2"]


def test_converting_there_and_back(faces: Path, tmp_path: Path, poolctl: Run) -> None:
    digest = poolctl("dataset", "check", faces, "-q").out
    coco, back, pts = tmp_path / "f.json", tmp_path / "f.xml", tmp_path / "pts"
    write_coco_keypoints(read_faces(faces), coco)
    write_pts_folder(read_faces(faces), pts)
    assert poolctl("dataset", "convert", coco, "-o", back, "-q").out == f"{back}\n"
    assert poolctl("dataset", "check", back, "-q").out == digest
    assert poolctl("dataset", "convert", faces, "-o", tmp_path / "f.json", "--json").code == 2
    assert poolctl("dataset", "check", pts, "--json").data["boxes"] == 8
    eyes = tmp_path / "eyes.xml"
    arguments = ("dataset", "convert", pts, "-o", eyes)
    assert poolctl(*arguments, "--parts", "eyes", "--json").data["parts"] == 12
    assert poolctl(*arguments, "--json").error["code"] == "file_exists"
    assert poolctl(*arguments, "--force", "--parts", "ears", "--json").code == 2
    (pts / "broken.pts").write_text("1 1\n2 two\n")
    poolctl(*arguments, "--force", "--json").fails(5, "annotation_file", "broken.pts, line 2")


def test_faces_are_drawn_on_a_sheet(faces: Path, tmp_path: Path, poolctl: Run) -> None:
    sheet = tmp_path / "sheet.png"
    arguments = ("dataset", "preview", faces, "-o", sheet)
    assert poolctl(*arguments, "--json").data["pages"] == [str(sheet)]
    assert sheet.read_bytes().startswith(b"\x89PNG")


def test_a_report_goes_into_a_pipe_or_through_a_link(
    faces: Path, tmp_path: Path, poolctl: Run
) -> None:
    pipe, reports = tmp_path / "pipe", []
    os.mkfifo(pipe)
    reader = threading.Thread(target=lambda: reports.append(json.loads(pipe.read_bytes())))
    reader.start()
    assert poolctl("dataset", "check", faces, "--report", pipe).code == 0
    reader.join(540)
    link = tmp_path / "link.json"
    link.symlink_to(tmp_path / "kept.json")
    assert poolctl("dataset", "check", faces, "--report", link).code == 0
    assert [json.loads((tmp_path / "kept.json").read_bytes())] == reports
    assert pipe.is_fifo()
    assert link.is_symlink()


def test_what_is_wrong_goes_to_a_report(faces: Path, tmp_path: Path, poolctl: Run) -> None:
    report = tmp_path / "findings.json"
    arguments = ("dataset", "check", faces, "--report", report)
    window = ("--set=target_size_px=150x150",)
    assert "stops at" not in poolctl(*arguments, *window).out, (
        "as 'train hog-svm' doubles the images"
    )
    told = poolctl(*arguments, *window, "--set=upsample=0")
    assert told.code == 0
    assert re.search(r"'train hog-svm' stops at \d+ of these boxes", told.out)
    once = ("train", "hog-svm", faces, "-o", tmp_path / "a.svm", *window)
    doubled = poolctl(*once, "--set=epsilon=5", "--no-training-scores")
    assert "images were doubled: some faces are smaller than the window" in doubled.out
    trained = poolctl(*once, "--set=upsample=0", "--force")
    assert trained.code == 5
    assert "(--set ignore_unreachable=true)" in trained.err.split("Hint: ")[1]
    assert "\n\n" not in trained.err
    findings = json.loads(report.read_text())["findings"]
    assert {finding["code"] for finding in findings} == {"unreachable-box"}
    assert findings[0]["line"] > 0
    assert "upsample=1" in findings[0]["text"]
    strict = poolctl(*arguments, *window, "--set=upsample=0", "--strict", "--json")
    assert strict.code == 5
    others = len(findings) - 1
    assert others > 5
    for shown in (told.out, strict.error["message"]):
        assert f"(and {others} more of this kind, in lines {findings[1]['line']}, " in shown
        assert shown.count("upsample=1") == 1, "equal findings are told once"
    assert poolctl(*arguments, "--set=ignore_unreachable=true", "--strict").code == 0
    assert poolctl(*arguments, "--set=target_size_px=150x", "--json").code == 2


def test_a_conditioning_session_is_drawn_from_the_command_line(
    tmp_path: Path, poolctl: Run
) -> None:
    video = tmp_path / "p1.mp4"
    arguments = ("dataset", "draw", "video", video, "--set=trials=1", "--set=size=96x64")
    drawn = poolctl(*arguments, "--set=frame_rate_hz=20", "--json").data
    listed = read_trials_csv(Path(drawn["files"]["trials"])).trials
    assert [trial.trial for trial in listed] == ["1"]
    truth = json.loads(Path(drawn["files"]["truth"]).read_text(encoding="utf-8"))
    assert truth["frames"] == pytest.approx(20 * drawn["seconds"], abs=1)
    assert set(truth["trials"][0]) >= {"cr", "onset_ms", "amplitude", "blink_near"}
    (session,) = find_sessions(tmp_path, videos=True).sessions
    assert (session.source, session.trials) == (video, Path(drawn["files"]["trials"]))
    assert poolctl(*arguments, "--set=seconds=3").code == 2


def test_eyes_are_drawn_checked_and_shown(tmp_path: Path, poolctl: Run) -> None:
    eyes = tmp_path / "eyes"
    arguments = ("dataset", "draw", "eyes", eyes, "--set=persons=2", "--set=frames_per_person=24")
    few = (*arguments, "--set=amount=1", "--set=sessions=2,2", "--set=both_eyes=true")
    data = poolctl(*few, "--json").data
    assert (data["dataset"], data["samples"]) == (str(eyes / "gaze.csv"), 96)
    assert poolctl(*few, "--json").error["code"] == "file_exists"
    assert poolctl(*arguments, "--force", "--set=sessions=two", "--json").code == 2
    wrong = poolctl(*arguments, "--force", "--set=sessions=5,2", "--json")
    assert wrong.error["code"] == "invalid_input"
    checked = poolctl("dataset", "check", eyes, "--json").data["datasets"]
    assert [(item["layout"], item["persons"]) for item in checked] == [("folder", 2)]
    assert "expected annotated faces" in poolctl("dataset", "preview", eyes).err
    (eyes / "images" / "p00" / "s00-00000-left.png").unlink()
    report = tmp_path / "findings.json"
    poolctl("dataset", "check", eyes, "--report", report, "--json").fails(
        5, "integrity", "s00-00000-left.png is missing"
    )
    assert json.loads(report.read_text())["findings"][0]["code"] == "missing-image"


def test_gaze_data_and_faces_are_not_mixed(tmp_path: Path, poolctl: Run) -> None:
    eyes, faces = tmp_path / "gaze.csv", tmp_path / "faces.xml"
    eyes.write_text("file,person,session,frame,eye,yaw,pitch,head_yaw,head_pitch\n")
    faces.write_text("<dataset/>")
    poolctl("dataset", "check", eyes, faces, "--json").fails(2, "usage")
    assert "has no samples" in poolctl("dataset", "check", eyes).err


def test_each_kind_of_data_is_named(tmp_path: Path, poolctl: Run) -> None:
    faces = faces_in(tmp_path, 2).path
    assert "faces (XML of dlib and imglab), 2 images" in poolctl("dataset", "check", faces).out
    folder_of(tmp_path / "eyes", samples_of())
    assert "gaze (folder), 1 person" in poolctl("dataset", "check", tmp_path / "eyes").out
    write_clips(tmp_path / "clips", ClipSettings(persons=1, videos=2, seconds=1.5))
    shown = poolctl("dataset", "check", tmp_path / "clips")
    assert "clips (generic), 2 videos of 1 person" in shown.out
    for command in (("split", "--test-share=0.5"), ("convert", "-o", tmp_path / "faces.xml")):
        poolctl("dataset", command[0], tmp_path / "clips", *command[1:], "--json").fails(
            2, "is gaze data, or clips; expected annotated faces"
        )
    missing = ("federated", "simulate", tmp_path / "no", "--method=fedavg", "--rounds=1")
    poolctl(*missing, "-o", tmp_path / "run", "--json").fails(2, "no such folder")
    (tmp_path / "clips/videos/P01-00.mp4").write_bytes(b"no video")
    poolctl("dataset", "check", tmp_path / "clips", "--json").fails(5, "P01-00")
    poolctl(
        "train", "network", "saliency", tmp_path / "clips", "-o", tmp_path / "look.safetensors"
    ).fails(5, "--despite-findings")


def test_a_folder_without_known_data_is_described(tmp_path: Path, poolctl: Run) -> None:
    (tmp_path / "notes.csv").write_text("a,b\n1,2\n")
    nothing = poolctl("dataset", "check", tmp_path).err
    assert "holds no data set that is known, but 1 .csv; expected faces" in nothing
    assert "clips.csv: clip, file, person, split" in nothing
    assert "faces.xml" not in nothing
    (tmp_path / "gaze.csv").write_text("file;person;yaw;pitch\n")
    missing = "gaze.csv lacks session, frame, eye, head_yaw, head_pitch"
    assert missing in poolctl("dataset", "check", tmp_path).err
    assert missing in poolctl("dataset", "check", tmp_path / "gaze.csv").err
    faces = faces_in(tmp_path, 1).path
    assert f"name its file of annotations: {faces}" in poolctl("dataset", "check", tmp_path).err
