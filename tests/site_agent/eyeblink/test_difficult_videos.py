"""Videos as laboratories have them: a clear message, and the outputs that can be had."""

import csv
import json
from fractions import Fraction
from pathlib import Path
from typing import Any

import av
import numpy as np
import pytest

from site_agent.datasets.synthetic.videos import write_blink_video
from site_agent.errors import InvalidInputError
from site_agent.eyeblink.face.boxes import FaceSettings
from site_agent.eyeblink.pipeline import run_blink_analysis
from site_agent.eyeblink.session import BlinkAnalysisSettings, BlinkSession
from site_agent.pictures.video_reading import VideoReader
from tests.site_agent.eyeblink.matching import match_blinks

Picture = np.typing.NDArray[np.uint8]
TICKS_PER_S = 90_000


def pictures_of(path: Path) -> list[tuple[float, Picture]]:
    with VideoReader(path, pixels="rgb") as reader:
        return [(frame.timestamp_s, frame.image) for frame in reader.frames()]


def rewrite(path: Path, frames: list[tuple[float, Picture]]) -> None:
    height, width = frames[0][1].shape[:2]
    with av.open(str(path), "w") as container:
        stream = container.add_stream("libx264", rate=30, options={"preset": "ultrafast"})
        stream.width, stream.height, stream.pix_fmt = width, height, "yuv420p"
        stream.codec_context.time_base = stream.time_base = Fraction(1, TICKS_PER_S)
        stream.codec_context.gop_size = 15
        for time_s, picture in frames:
            frame = av.VideoFrame.from_ndarray(np.ascontiguousarray(picture), format="rgb24")
            frame.pts, frame.time_base = round(time_s * TICKS_PER_S), Fraction(1, TICKS_PER_S)
            container.mux(stream.encode(frame))
        container.mux(stream.encode(None))


@pytest.fixture(scope="module")
def small(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A blinking person, 8 s."""
    path = tmp_path_factory.mktemp("small") / "person.mp4"
    write_blink_video(path, 8.0, 30.0, seed=3, subject=150, size=(320, 240))
    return path


@pytest.fixture(scope="module")
def two_persons(small: Path) -> Path:
    """The person and, from the third second on, a somewhat larger one to the right."""
    other = small.with_name("other.mp4")
    write_blink_video(other, 8.0, 30.0, seed=8, subject=160, size=(320, 240))
    frames = []
    for (time_s, left), (_, right) in zip(pictures_of(small), pictures_of(other), strict=True):
        tall = np.kron(right[30:210, 70:250], np.ones((4, 4, 1), dtype=np.uint8))[::3, ::3]
        place = np.full_like(left, 90) if time_s < 3 else tall
        frames.append((time_s, np.concatenate([left, place[:240, :240]], axis=1)))
    path = small.with_name("two.mp4")
    rewrite(path, frames)
    return path


def rows_of(session: BlinkSession) -> list[dict[str, str]]:
    with session.files["frames"].open(encoding="utf-8", newline="") as file:
        return list(csv.DictReader(file))


def intervals(session: BlinkSession) -> list[tuple[float, float]]:
    with session.files["blinks"].open(encoding="utf-8", newline="") as file:
        return [(float(row["onset_s"]), float(row["offset_s"])) for row in csv.DictReader(file)]


def true_intervals(video: Path) -> list[tuple[float, float]]:
    content = json.loads(video.with_name(f"{video.stem}_truth.json").read_text(encoding="utf-8"))
    return [(blink["onset_s"], blink["offset_s"]) for blink in content["blinks"]]


def test_lost_frames_do_not_shift_times(small: Path, landmark_file: Path, tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    frames = pictures_of(small)
    kept = [frame for number, frame in enumerate(frames) if number == 0 or rng.random() > 0.08]
    video = tmp_path / "lossy.mp4"
    rewrite(video, kept)
    session = run_blink_analysis(video, landmarks=landmark_file, out_dir=tmp_path / "out")
    assert session.frames == len(kept)
    lost = len(frames) - len(kept)
    assert any(f"about {lost} frames are missing" in warning for warning in session.warnings)
    match = match_blinks(intervals(session), true_intervals(small), smallest_overlap=0.4)
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
        texts = [row["face_left_px"] for row in rows_of(session)]
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
    first = rows_of(by_detector)[0]
    left, top, right = (
        round(float(first[name])) for name in ("face_left_px", "face_top_px", "face_right_px")
    )
    region = (left + 4, top - 4, right - left + 6, right - left + 6)
    settings = BlinkAnalysisSettings(faces=FaceSettings(region=region))
    session = run_blink_analysis(
        small, landmarks=landmark_file, out_dir=tmp_path / "b", settings=settings
    )
    assert {row["source"] for row in rows_of(session)} == {"region"}
    assert match_blinks(intervals(session), true_intervals(small)).f1 > 0.6
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
