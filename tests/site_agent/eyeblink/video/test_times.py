"""Times that are given for a video, because those in its file are wrong."""

import csv
import json
from contextlib import closing
from pathlib import Path

import pytest

from aggregators.formats import write_model
from site_agent.errors import TableFileError, VideoFileError
from site_agent.eyeblink.pipeline import run_blink_analysis
from site_agent.eyeblink.review.review_session import open_review
from site_agent.eyeblink.video.recording import Recording
from tests.site_agent.eyeblink.drawn_videos import write_video
from tests.site_agent.faces.test_prediction import small_detector, small_predictor

FRAMES = 60
STORED_S = [number / 30.0 for number in range(FRAMES)]
TAKEN_S = [10.0 + number / 500.0 + (0.1 if number >= 20 else 0.0) for number in range(FRAMES)]


@pytest.fixture
def slow_motion(tmp_path: Path) -> Path:
    """500 frames/s that the file plays at 30; the camera's own times and models lie next to it."""
    write_video(tmp_path / "slow.mp4", STORED_S)
    write_times(tmp_path / "times.csv", TAKEN_S)
    write_model(small_predictor(68), tmp_path / "points.dat")
    write_model(small_detector(None), tmp_path / "faces.svm")
    return tmp_path / "slow.mp4"


def write_times(path: Path, times_s: list[float]) -> None:
    rows = ["frame;time_ms", *(f"{n};{time_s * 1000:.3f}" for n, time_s in enumerate(times_s))]
    path.write_text("\n".join(rows) + "\n")


def test_a_table_goes_before_a_rate_which_is_more_than_zero(slow_motion: Path) -> None:
    recording = Recording(slow_motion, slow_motion.with_name("times.csv"), 25.0)
    with closing(recording.open()) as source:
        assert [frame.timestamp_s for frame in source.frames()] == pytest.approx(TAKEN_S, abs=1e-9)
    with pytest.raises(VideoFileError, match="expected frames per second, more than 0"):
        Recording(slow_motion, frame_rate_hz=0.0).open()


@pytest.mark.parametrize(
    ("rows", "message"),
    [
        (["timestamp_s", *map(str, TAKEN_S[:-1])], "has 59 times, slow.mp4 has 60 frames"),
        (
            ["timestamp_s", "0", "0.1", "0.1"],
            "line 4: has no time, or one that does not come after",
        ),
    ],
)
def test_tables_that_do_not_fit(slow_motion: Path, rows: list[str], message: str) -> None:
    table = slow_motion.with_name("bad.csv")
    table.write_text("\n".join(rows) + "\n")
    with pytest.raises((TableFileError, VideoFileError), match=message) as raised:
        Recording(slow_motion, table).open()
    assert "bad.csv" in str(raised.value)


def test_all_outputs_and_the_review_use_the_given_times(slow_motion: Path) -> None:
    folder = slow_motion.parent
    table = folder / "times.csv"
    session = run_blink_analysis(
        Recording(slow_motion, table),
        landmarks=folder / "points.dat",
        detector=folder / "faces.svm",
        out_dir=folder / "out",
    )
    assert session.seconds == pytest.approx(TAKEN_S[-1] - TAKEN_S[0], abs=0.003)
    assert any("not from the video file, which says 30 frames/s" in w for w in session.warnings)
    with session.files["frames"].open(newline="") as file:
        written_s = [float(row["timestamp_s"]) for row in csv.DictReader(file)]
    assert written_s == pytest.approx(TAKEN_S, abs=1e-6)
    provenance = json.loads(session.files["provenance"].read_text(encoding="utf-8"))
    assert provenance["recording"]["times_from"] == "table times.csv"
    assert provenance["recording"]["lost_frames"] == 50
    assert [source["role"] for source in provenance["sources"][:2]] == ["video", "timestamps"]
    assert len(provenance["sources"][1]["sha256"]) == 64
    assert "table times.csv" in provenance["notes"][0]
    with open_review(folder / "out") as review:
        assert review.video is not None
        for frame in (45, 3, 59):
            grey = review.video.picture(frame)[:, 5:40].mean()
            assert grey == pytest.approx(40 + 2 * frame, abs=3)
