"""``poolctl blink`` on all kinds of recordings, and with contradicting options."""

import csv
import json
from pathlib import Path

import pytest

from aggregators.formats import write_model
from site_agent.eyeblink import session
from site_agent.eyeblink.review.reviewed_session import find_model
from site_agent.own_folders import cache_folder
from site_agent.training import ert
from site_agent.training.ert import kept_starter
from tests.cli.conftest import Run
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
        (("room.mp4", "--landmarks", "points.dat", "--set", "filter=mean"), 2, "savgol"),
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
    silent = poolctl("blink", "room.mp4", "-o", "last")
    assert "starter" not in silent.err
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
    refused = poolctl(*arguments, "other.csv")
    assert refused.code == 2
    assert "out: holds the results of one.csv" in refused.err
    assert poolctl(*arguments, "one.csv").code == 0, "the same recording again"


def test_a_video_without_faces_gives_its_files(video: Path, tmp_path: Path, poolctl: Run) -> None:
    arguments = ("blink", video, "--landmarks", tmp_path / "points.dat", "-o", tmp_path / "out")
    outcome = poolctl(*arguments)
    assert outcome.code == 0
    assert "no blink can be found" in " ".join(outcome.err.split())
    assert (tmp_path / "out" / "frames.csv").is_file()


def test_a_fixed_region(video: Path, tmp_path: Path, poolctl: Run) -> None:
    arguments = ("blink", video, "--landmarks", tmp_path / "points.dat", "-o", tmp_path / "out")
    data = poolctl(*arguments, "--set", "region=20,10,80,80", "--json").data
    assert data["frames"] == 30
    provenance = json.loads((tmp_path / "out" / "provenance.json").read_text(encoding="utf-8"))
    assert provenance["settings"]["faces"]["region"] == [20, 10, 80, 80]
    with (tmp_path / "out" / "frames.csv").open(newline="") as file:
        assert {row["source"] for row in csv.DictReader(file)} == {"region"}
    frictionless = pytest.importorskip("frictionless", reason="frictionless is not installed")
    report = frictionless.validate(str(tmp_path / "out" / "datapackage.json"))
    assert report.valid, report.flatten(["rowNumber", "fieldNumber", "type", "note"])[:5]
