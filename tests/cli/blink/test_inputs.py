"""``poolctl blink`` on all kinds of recordings, with trials, labels and wrong options."""

import hashlib
import json
from pathlib import Path
from typing import BinaryIO

import numpy as np
import pytest

from aggregators.formats import write_model
from site_agent.eyeblink import session
from site_agent.eyeblink.review.reviewed_session import find_model
from site_agent.own_folders import cache_folder
from site_agent.training import ert
from site_agent.training.ert import kept_starter
from tests.cli.conftest import Run
from tests.site_agent.eyeblink.drawn_traces import write_trace
from tests.site_agent.eyeblink.drawn_videos import write_video
from tests.site_agent.faces.test_prediction import small_predictor


@pytest.fixture
def video(tmp_path: Path) -> Path:
    """One second without a face; a landmark model lies next to it."""
    path = tmp_path / "room.mp4"
    write_video(path, [number / 30.0 for number in range(30)], size=(160, 120))
    write_model(small_predictor(68), tmp_path / "points.dat")
    return path


@pytest.mark.parametrize(
    ("arguments", "code", "message"),
    [
        ((), 2, "Missing argument 'VIDEO'"),
        ((".", "--landmarks", "points.dat"), 5, "is a folder, expected a video; make one of its"),
        (("none.mp4",), 4, "none.mp4: no such file"),
        (("room.mp4", "--remember"), 2, "--remember goes with --landmarks only"),
        (("room.mp4", "--landmarks", "points.dat", "--set=closed_from=mean"), 2, "air-puffs"),
    ],
)
def test_what_does_not_go_together(
    video: Path,
    poolctl: Run,
    *,
    arguments: tuple[str, ...],
    code: int,
    message: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.chdir(video.parent)
    outcome = poolctl("blink", *arguments, "-o", "out")
    assert outcome.code == code, outcome
    assert message in " ".join(outcome.err.split())
    assert not Path("out").exists()


def test_a_video_alone_is_analysed_with_the_starter_or_the_remembered_model(
    video: Path, poolctl: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(video.parent)

    def train(path: Path, **_options: object) -> None:
        write_model(small_predictor(68), path)
        trained.append(path)

    trained: list[Path] = []
    monkeypatch.setattr(ert, "train_starter", train)
    monkeypatch.setattr(session, "_training_doubt", lambda _: "has seen drawn faces only")
    Path("empty").mkdir()
    Path("notes.mp4").write_text("not a video")
    for wrong in ("empty", "notes.mp4"):
        assert wrong in poolctl("blink", wrong, "-o", "out").err
        assert not trained, "a mistaken input is named before the training"
    first = poolctl("blink", "room.mp4", "-o", "out")
    assert first.code == 0, first.err
    told = " ".join(first.err.split())
    assert "training a starter on drawn faces, once" in told
    assert told.count("drawn faces only") == 1
    assert poolctl("blink", "room.mp4", "-o", "again").code == 0
    [path] = trained
    assert path == kept_starter(cache_folder())

    arguments = ("--landmarks", "points.dat", "--remember", "-o", "other")
    assert poolctl("blink", "room.mp4", *arguments).code == 0
    assert "starter" not in poolctl("blink", "room.mp4", "-o", "last").err
    sources = json.loads(Path("last/provenance.json").read_text())["sources"]
    assert {source["role"]: source["name"] for source in sources}["landmarks"] == "points.dat"


def test_a_review_finds_the_local_model_again_by_its_digest(
    video: Path, poolctl: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(video.parent)
    model = Path("models/points.dat")
    model.parent.mkdir()
    Path("points.dat").rename(model)
    assert poolctl("blink", "room.mp4", "--landmarks", model, "-o", "out/one").code == 0
    provenance = Path("out/one/provenance.json").read_text()
    assert str(video.parent) not in provenance, "paths often hold names of persons"
    assert find_model(Path("out/one"), "landmarks") == model.absolute()
    assert find_model(Path("out/one"), "detector") is None

    def warned() -> str:
        shown = poolctl("blink", "review", "out/one", "--video", video, "--export", "x.xml")
        return " ".join(shown.err.split())

    assert "no landmarks will be shown" not in warned()
    moved = Path("out/points.dat")
    model.rename(moved)
    assert find_model(Path("out/one"), "landmarks") == moved.absolute(), "next to the results"
    moved.rename("else.dat")
    message = warned()
    assert "no landmarks will be shown: points.dat (sha256" in message
    assert f"is neither at {model.absolute()} nor next to the results" in message
    assert "--landmarks FILE" in message


def test_a_folder_keeps_the_results_of_its_recording(
    tmp_path: Path, poolctl: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    for name in ("one.csv", "other.csv"):
        rows = "".join(f"{number / 30:.4f},0.3\n" for number in range(90))
        Path(name).write_text("timestamp_s,ear\n" + rows)
    arguments = ("blink", "-o", "out")
    assert poolctl(*arguments, "one.csv").code == 0
    poolctl(*arguments, "other.csv").fails(2, "out: holds the results of one.csv")
    assert poolctl(*arguments, "one.csv").code == 0, "the same recording again"


def test_a_video_of_the_same_name_is_another_recording(
    video: Path, poolctl: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(video.parent)
    arguments = ("--landmarks", "points.dat", "-o", "same")
    assert poolctl("blink", "room.mp4", *arguments).code == 0
    Path("second").mkdir()
    Path("second/room.mp4").write_bytes(video.read_bytes() + bytes(8))
    poolctl("blink", "second/room.mp4", *arguments).fails(2, "the results of another room.mp4")
    read: list[str] = []
    digest = hashlib.file_digest

    def counted(file: BinaryIO, name: str) -> object:
        read.append(file.name)
        return digest(file, name)

    monkeypatch.setattr(hashlib, "file_digest", counted)
    assert poolctl("blink", "room.mp4", *arguments).code == 0, "the same recording again"
    assert read.count("room.mp4") == 1, "a long video takes minutes to read"


@pytest.fixture
def trace(tmp_path: Path) -> Path:
    """Fifty seconds with a closure 200 ms after each of five CS."""
    times_s = np.arange(3000) / 60.0
    ear = np.full(3000, 0.30) + np.random.default_rng(0).normal(0.0, 0.003, 3000)
    for onset_s in range(5, 50, 10):
        ear -= 0.22 * np.exp(-(((times_s - onset_s - 0.42) / 0.09) ** 2))
    rows = [f"{onset_s},{onset_s + 0.45}" for onset_s in range(5, 50, 10)]
    (tmp_path / "trials.csv").write_text("cs_onset_s,us_onset_s\n" + "\n".join(rows) + "\n")
    return write_trace(tmp_path / "ear.csv", times_s, ear)


def test_trials_and_labels(trace: Path, tmp_path: Path, poolctl: Run) -> None:
    arguments = ("blink", trace, "--trials", tmp_path / "trials.csv")
    data = poolctl(*arguments, "-o", tmp_path / "out", "--json").data
    assert data["conditioning"]["n_cr"] == 5
    assert {"trials", "report", "session", "datapackage"} <= set(data["files"])
    strict = poolctl(*arguments, "-o", tmp_path / "two", "--set=cr_threshold=2").out
    assert strict.startswith("5 blinks with those of the trials, 6.0 a minute; conditioned resp")
    labels = ("--set=subject=01", "--set=labels.start=2024-05-06T07:08:00+00:00")
    named = poolctl(*arguments, "-o", tmp_path / "named", *labels, "--json").data
    facts = json.loads(Path(named["files"]["session"]).read_text())
    assert (facts["subject"], facts["start"]["time"][:10]) == ("01", "2024-05-06")


def test_what_does_not_do(trace: Path, tmp_path: Path, poolctl: Run) -> None:
    arguments = ("blink", trace, "-o", tmp_path / "out", "--json")
    assert poolctl(*arguments, "--trials", tmp_path / "none.csv").code == 4
    assert poolctl(*arguments, "--trials", trace).code == 5
    assert poolctl(*arguments, "--set=start=yesterday").code == 2
    assert poolctl(*arguments, "--set=task=rest").code == 2
    assert not (tmp_path / "out").exists()
