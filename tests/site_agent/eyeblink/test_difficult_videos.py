"""Videos as laboratories have them, and inputs as people report them."""

import json
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import av
import numpy as np
import pytest

from site_agent.datasets.conversion import read_faces
from site_agent.datasets.egocentric import decode_video
from site_agent.datasets.synthetic.settings import VideoDrawing
from site_agent.datasets.synthetic.videos import write_blink_video
from site_agent.errors import InvalidInputError
from site_agent.eyeblink.batch.sessions import read_session_table
from site_agent.eyeblink.face.boxes import FaceSettings
from site_agent.eyeblink.openness.traces import read_trace
from site_agent.eyeblink.pipeline import run_blink_analysis
from site_agent.eyeblink.session import BlinkAnalysisSettings, BlinkSession
from site_agent.eyeblink.video.recording import Recording, read_frame_times
from site_agent.pictures.video import write_video
from site_agent.pictures.video_reading import VideoReader
from tests.site_agent.eyeblink.drawn_traces import rows_of, spans_of, true_spans
from tests.site_agent.eyeblink.matching import match_blinks

Picture = np.typing.NDArray[np.uint8]


def pictures_of(path: Path) -> list[tuple[float, Picture]]:
    with VideoReader(path, pixels="rgb") as reader:
        return [(frame.timestamp_s, frame.image) for frame in reader.frames()]


@pytest.fixture(scope="module")
def small(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A blinking person, 8 s."""
    path = tmp_path_factory.mktemp("small") / "person.mp4"
    write_blink_video(path, VideoDrawing(seconds=8.0, size=(320, 240), seed=3), subject=150)
    return path


@pytest.fixture(scope="module")
def two_persons(small: Path) -> Path:
    """The person and, from the third second on, a somewhat larger one to the right."""
    other = small.with_name("other.mp4")
    write_blink_video(other, VideoDrawing(seconds=8.0, size=(320, 240), seed=8), subject=160)
    frames = []
    for (time_s, left), (_, right) in zip(pictures_of(small), pictures_of(other), strict=True):
        tall = np.kron(right[30:210, 70:250], np.ones((4, 4, 1), dtype=np.uint8))[::3, ::3]
        place = np.full_like(left, 90) if time_s < 3 else tall
        frames.append((time_s, np.concatenate([left, place[:240, :240]], axis=1)))
    path = small.with_name("two.mp4")
    write_video(path, iter(frames))
    return path


def test_lost_frames_do_not_shift_times(small: Path, landmark_file: Path, tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    frames = pictures_of(small)
    kept = [frame for number, frame in enumerate(frames) if number == 0 or rng.random() > 0.08]
    video = tmp_path / "lossy.mp4"
    write_video(video, iter(kept))
    session = run_blink_analysis(video, landmarks=landmark_file, out_dir=tmp_path / "out")
    assert session.frames == len(kept)
    lost = len(frames) - len(kept)
    assert any(f"about {lost} frames are missing" in warning for warning in session.warnings)
    match = match_blinks(spans_of(session.files["blinks"]), true_spans(small), smallest_overlap=0.4)
    assert match.f1 > 0.6


@pytest.mark.slow
def test_which_of_two_faces(two_persons: Path, landmark_file: Path, tmp_path: Path) -> None:
    def lefts_px(faces: FaceSettings) -> tuple[list[float], BlinkSession]:
        session = run_blink_analysis(
            two_persons,
            landmarks=landmark_file,
            out_dir=tmp_path / "out",
            settings=BlinkAnalysisSettings(faces=faces),
        )
        texts = [row["face_left_px"] for row in rows_of(session.files["frames"])]
        return [float(text) if text else np.nan for text in texts], session

    largest, session = lefts_px(FaceSettings())
    # The larger one comes later; a face that is followed is not given up for it.
    assert max(largest) < 160
    assert any("up to 2 faces were visible at once" in warning for warning in session.warnings)
    second, _ = lefts_px(FaceSettings(face="2"))
    assert np.isnan(second[:80]).all()
    assert np.nanmin(second) > 300
    assert session.frames == len(second)


@pytest.mark.slow
def test_a_fixed_region(small: Path, landmark_file: Path, tmp_path: Path) -> None:
    by_detector = run_blink_analysis(small, landmarks=landmark_file, out_dir=tmp_path / "a")
    first = rows_of(by_detector.files["frames"])[0]
    left, top, right = (
        round(float(first[name])) for name in ("face_left_px", "face_top_px", "face_right_px")
    )
    region = (left + 4, top - 4, right - left + 6, right - left + 6)
    settings = BlinkAnalysisSettings(faces=FaceSettings(region=region))
    session = run_blink_analysis(
        small, landmarks=landmark_file, out_dir=tmp_path / "b", settings=settings
    )
    assert {row["source"] for row in rows_of(session.files["frames"])} == {"region"}
    assert match_blinks(spans_of(session.files["blinks"]), true_spans(small)).f1 > 0.6
    provenance = json.loads(session.files["provenance"].read_text(encoding="utf-8"))
    assert "fixed region" in provenance["sources"][1]["name"]
    outside = BlinkAnalysisSettings(faces=FaceSettings(region=(300, 0, 100, 100)))
    with pytest.raises(InvalidInputError, match="beyond the picture of 320x240"):
        run_blink_analysis(small, landmarks=landmark_file, out_dir=tmp_path / "c", settings=outside)
    assert not (tmp_path / "c").exists()


@pytest.mark.parametrize(
    "settings", [{"face": "smallest"}, {"region": (0, 0, 4, 4)}, {"starts": 0}]
)
def test_settings_out_of_range_are_refused(settings: dict[str, Any]) -> None:
    with pytest.raises(InvalidInputError, match="expected"):
        FaceSettings(**settings)


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
