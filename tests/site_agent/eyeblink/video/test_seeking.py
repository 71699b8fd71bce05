"""Frames and their times: from the file, from tables, and when sought."""

import json
import random
from contextlib import closing
from pathlib import Path
from typing import Literal

import av
import numpy as np
import pytest

from aggregators.formats import write_model
from site_agent.errors import TableFileError, VideoFileError
from site_agent.eyeblink.pipeline import run_blink_analysis
from site_agent.eyeblink.records import Float64
from site_agent.eyeblink.review.review_session import open_review
from site_agent.eyeblink.video.recording import Recording, frame_timing, rate_remark
from site_agent.eyeblink.video.seeking import SeekableVideo
from site_agent.pictures.video_reading import VideoReader
from tests.site_agent.eyeblink.drawn_traces import rows_of
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
    written_s = [float(row["timestamp_s"]) for row in rows_of(session.files["frames"])]
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


STEADY_S = [n / 30 for n in range(95)]

UNEVEN_S = np.cumsum(np.random.default_rng(3).uniform(0.01, 0.09, 95)).tolist()


def decoded(path: Path) -> tuple[list[bytes], Float64]:
    with VideoReader(path, pixels="rgb") as reader:
        frames = [(frame.image.tobytes(), frame.timestamp_s) for frame in reader.frames()]
    pictures, times_s = zip(*frames, strict=True)
    # As frames.csv has them.
    return list(pictures), np.round(times_s, 6)


def assert_same(path: Path) -> None:
    pictures, times_s = decoded(path)
    video = SeekableVideo(path, times_s)
    count = len(pictures)
    random.seed(5)
    there_and_back = [*range(count), *reversed(range(count))]
    for frame in [*random.choices(range(count), k=40), *there_and_back]:
        assert video.picture(frame).tobytes() == pictures[frame], frame
    video.close()


@pytest.mark.parametrize("name", ["a.mp4", "a.mkv", "a.avi"])
def test_any_container(tmp_path: Path, name: str) -> None:
    path = tmp_path / name
    # AVI has no times of its own.
    write_video(path, STEADY_S if name == "a.avi" else UNEVEN_S)
    assert_same(path)


REORDERED = {"libx264": {"x264-params": "b-adapt=0:bframes=3"}, "mpeg4": {"bf": "3"}}

"""Options by which frames refer to later ones."""


@pytest.mark.parametrize("codec", REORDERED)
def test_frames_of_avi_are_evenly_spaced_in_the_order_of_showing(
    tmp_path: Path, codec: str
) -> None:
    path = tmp_path / "a.avi"
    write_video(path, STEADY_S, codec=codec, codec_options=REORDERED[codec], ticks_per_s=30)
    with VideoReader(path) as reader:
        frames = list(reader.frames())
        assert reader.report.warnings == []
    assert [frame.timestamp_s for frame in frames] == pytest.approx(STEADY_S)
    levels = [float(frame.image[:, :40].mean()) for frame in frames]
    assert levels == sorted(levels)
    assert_same(path)


def test_a_damaged_video(tmp_path: Path) -> None:
    path = tmp_path / "a.mkv"
    write_video(path, STEADY_S)
    data = bytearray(path.read_bytes())
    for place in range(len(data) // 2, len(data) // 2 + 40):
        data[place] ^= 0x5A
    path.write_bytes(data)
    _, times_s = decoded(path)
    video = SeekableVideo(path, times_s)
    for frame in range(0, len(times_s), 7):
        assert video.picture(frame).shape == (64, 96, 3)


def test_what_cannot_be_had_is_told(tmp_path: Path) -> None:
    path = tmp_path / "a.mp4"
    write_video(path, STEADY_S[:20])
    video = SeekableVideo(path, np.array(STEADY_S))
    with pytest.raises(VideoFileError, match="no frame 95"):
        video.picture(95)
    with pytest.raises(VideoFileError, match="frame 60 cannot be decoded"):
        video.picture(60)
    assert video.picture(3).shape == (64, 96, 3)


LAYOUTS = [("a.avi", "ffv1", "gray16le"), ("a.mov", "png", "rgb48be")]


def write_deep(path: Path, codec: str, layout: str, pictures: list[np.ndarray]) -> None:
    """Write grey pictures, uint16, in a format of 16 bits."""
    with av.open(str(path), "w") as container:
        stream = container.add_stream(codec, rate=30)
        stream.height, stream.width = pictures[0].shape
        stream.pix_fmt = layout
        for picture in pictures:
            pixels = np.dstack([picture] * 3) if layout.startswith("rgb") else picture
            made_as = "rgb48le" if layout.startswith("rgb") else "gray16le"
            frame = av.VideoFrame.from_ndarray(pixels, format=made_as)
            container.mux(stream.encode(frame.reformat(format=layout)))
        container.mux(stream.encode(None))


@pytest.mark.parametrize("kind", LAYOUTS)
@pytest.mark.parametrize("pixels", ["grey", "rgb"])
def test_the_upper_8_bits_are_kept(
    kind: tuple[str, str, str], pixels: Literal["grey", "rgb"], tmp_path: Path
) -> None:
    name, codec, layout = kind
    rng = np.random.default_rng(0)
    pictures = [rng.integers(0, 65536, (48, 64), dtype=np.uint16) for _ in range(10)]
    write_deep(tmp_path / name, codec, layout, pictures)
    with VideoReader(tmp_path / name, pixels=pixels) as reader:
        frames = list(reader.frames())
    for frame, picture in zip(frames, pictures, strict=True):
        grey = frame.image if pixels == "grey" else frame.image[:, :, 1]
        np.testing.assert_allclose(grey.astype(int), picture >> 8, atol=1)
    assert frames[0].image.shape == ((48, 64) if pixels == "grey" else (48, 64, 3))


def test_a_steady_recording_without_losses() -> None:
    rng = np.random.default_rng(0)
    timing = frame_timing(np.arange(300) / 30.0 + rng.uniform(-0.001, 0.001, 300))
    assert timing.steady
    assert timing.lost_frames == 0
    assert timing.remark() is None
    assert timing.frame_rate_hz == pytest.approx(30.0, rel=0.02)


def test_lost_frames() -> None:
    times_s = np.delete(np.arange(300) / 30.0, [50, 51, 52, 100, 200])
    timing = frame_timing(times_s)
    assert (timing.lost_frames, timing.losses) == (5, 3)
    assert timing.longest_gap_s == pytest.approx(4 / 30)
    assert "about 5 frames are missing in 3 places" in str(timing.remark())
    once = frame_timing(np.delete(np.arange(300) / 30.0, [50]))
    assert "about 1 frame is missing in 1 place" in str(once.remark())


@pytest.mark.parametrize(
    ("rate_hz", "plausible", "is_in_ms"),
    [
        (0.03, False, True),
        (5, False, False),
        (25, True, False),
        (1000, True, False),
        (5000, False, False),
        (1e6, False, False),
    ],
)
def test_implausible_rates_are_remarked_on(rate_hz: float, plausible: bool, is_in_ms: bool) -> None:
    remark = rate_remark(rate_hz)
    assert (remark is None, "milliseconds" in str(remark)) == (plausible, is_in_ms)


def test_a_varying_rate_has_no_losses_to_count() -> None:
    rng = np.random.default_rng(0)
    timing = frame_timing(np.cumsum(rng.uniform(0.01, 0.1, 300)))
    assert not timing.steady
    assert timing.lost_frames == 0


def test_bursts_of_frames_have_the_rate_of_the_median_interval() -> None:
    with np.errstate(all="raise"):
        timing = frame_timing(np.cumsum(np.tile([0.001, 0.066], 50)[1:]))
    assert timing.frame_rate_hz == pytest.approx(1 / 0.0335)
    assert np.isnan(frame_timing(np.zeros(1)).frame_rate_hz)
