"""Inputs as people report them (../shared/data/public_reports), each with its right value.

``pytest -rA -k reported`` prints the table: input, measure, and the value that comes out.
"""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import av
import numpy as np
import pytest

from site_agent.datasets.conversion import read_faces
from site_agent.datasets.egocentric import decode_video
from site_agent.eyeblink.batch.sessions import read_session_table
from site_agent.eyeblink.openness.traces import read_trace
from site_agent.eyeblink.pipeline import run_blink_analysis
from site_agent.eyeblink.video.recording import Recording, read_frame_times
from site_agent.pictures.video_reading import VideoReader


def measure_video(path: Path) -> tuple[int, float, str, int, list[str]]:
    """Return frames, the last one's time, the times' origin, hidden frames, and warnings."""
    with VideoReader(path) as reader:
        times_s = [frame.timestamp_s for frame in reader.frames()]
    report = reader.report
    warnings = [warning.split(":")[0] for warning in report.warnings]
    return len(times_s), round(times_s[-1], 2), report.times_from, report.hidden_frames, warnings


def measure_faces(path: Path) -> tuple[int, int, bool]:
    """Return images, boxes, and whether a name has a backslash."""
    faces = read_faces(path)
    slashes = any("\\" in str(image.path) for image in faces.images)
    return len(faces.images), sum(1 for _ in faces.boxes()), slashes


def measure_times(path: Path) -> tuple[int, float, float]:
    times_s = read_frame_times(path)
    return len(times_s), float(times_s[0]), round(float(times_s[-1]), 2)


def measure_session(path: Path) -> tuple[str, float | None]:
    session = read_session_table(path).sessions[0]
    return str(session.source.relative_to(path.parent)), session.frame_rate_hz


def is_upright(path: Path) -> bool:
    """Return whether a clip that is stored lying is read as players show it."""
    with av.open(str(path)) as container:
        stored = next(container.decode(video=0))
        turned = np.rot90(stored.to_ndarray(format="rgb24"), stored.rotation // 90)
    assert stored.rotation % 180 == 90
    return np.array_equal(next(iter(decode_video(path))), turned)


REPORTS: dict[str, tuple[Callable[[Path], Any], Any]] = {
    "video/base.mp4": (measure_video, (600, 19.97, "container", 0, [])),
    "video/slowmo.mp4": (measure_video, (2400, 10.0, "rate of filming", 0, ["slow motion"])),
    "video/pi.h264": (measure_video, (900, 9.99, "rate of the stream", 0, [])),
    "video/trimmed.mp4": (measure_video, (272, 9.1, "container", 195, [])),
    "tables/times_de2.csv": (measure_times, (600, 0.0, 19.97)),
    "tables/times_sep.csv": (measure_times, (600, 0.0, 19.97)),
    "tables/ear_sep.csv": (
        lambda path: read_trace(path, frame_rate_hz=30.0).ear[:2].tolist(),
        [0.3012, 0.3033],
    ),
    "tables/sessions_de.csv": (measure_session, ("a.mp4", 29.97)),
    "tables/sessions_win.csv": (measure_session, ("videos/s1.mp4", None)),
    "tables/coco_bom.json": (measure_faces, (4, 18, False)),
    "tables/coco_win.json": (measure_faces, (4, 18, False)),
    "egocentric/videos/P01-00.mp4": (is_upright, True),
}


@pytest.mark.parametrize("name", REPORTS)
def test_reported_files_give_their_right_values(shared_data: Path, name: str) -> None:
    measure, right = REPORTS[name]
    value = measure(shared_data / "public_reports" / name)
    print(f"{name} | {value}")
    assert value == right


@dataclass(frozen=True)
class ReportedBlinks:
    name: str
    peaks_s: tuple[float, ...]
    seconds: float


BLINKS = (
    ReportedBlinks("base.mp4", (2.306, 7.850, 13.206, 18.211), 20.0),
    ReportedBlinks("slowmo.mp4", (2.306, 7.850), 10.0),
    ReportedBlinks("pi.h264", (2.306, 7.850), 10.0),
    ReportedBlinks("trimmed.mp4", (1.350, 6.706), 9.13),
)


@pytest.mark.slow
@pytest.mark.parametrize("report", BLINKS, ids=lambda report: report.name)
def test_reported_videos_give_their_right_blinks(
    shared_data: Path, good_eyes_file: Path, tmp_path: Path, report: ReportedBlinks
) -> None:
    path = shared_data / "public_reports/video" / report.name
    session = run_blink_analysis(Recording(path), landmarks=good_eyes_file, out_dir=tmp_path / "o")
    table = np.genfromtxt(session.files["blinks"], delimiter=",", names=True, dtype=None)
    print(f"{report.name} | {session.blinks} blinks | {table['peak_s']}")
    assert session.seconds == pytest.approx(report.seconds, abs=0.05)
    assert table["peak_s"].tolist() == pytest.approx(report.peaks_s, abs=0.1)
