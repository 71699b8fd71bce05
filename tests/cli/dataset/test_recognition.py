"""`dataset check` names the kind of the data, and the columns that it expects."""

from pathlib import Path

from site_agent.datasets.synthetic.egocentric_clips import ClipSettings, write_clips
from tests.cli.conftest import Run
from tests.site_agent.datasets.drawn import faces_in
from tests.site_agent.datasets.gaze.made import folder_of, samples_of


def test_each_kind_of_data_is_named(tmp_path: Path, poolctl: Run) -> None:
    faces = faces_in(tmp_path, 2).path
    assert "faces (XML of dlib and imglab), 2 images" in poolctl("dataset", "check", faces).out
    folder_of(tmp_path / "eyes", samples_of())
    assert "gaze (folder), 1 person" in poolctl("dataset", "check", tmp_path / "eyes").out
    write_clips(tmp_path / "clips", ClipSettings(persons=1, videos=2, seconds=1.5))
    shown = poolctl("dataset", "check", tmp_path / "clips")
    assert "clips (generic), 2 videos of 1 person" in shown.out
    (tmp_path / "clips/videos/P01-00.mp4").write_bytes(b"no video")
    broken = poolctl("dataset", "check", tmp_path / "clips", "--json")
    assert broken.code == 5
    assert "P01-00" in broken.error["message"]
    training = poolctl(
        "train", "network", "saliency", tmp_path / "clips", "-o", tmp_path / "look.safetensors"
    )
    assert training.code == 5
    assert "--despite-findings" in training.err


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
