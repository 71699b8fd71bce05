"""Frame k is the k-th frame that the reader decodes, in any order of requests."""

import random
from pathlib import Path

import numpy as np
import pytest

from site_agent.errors import VideoFileError
from site_agent.eyeblink.records import Float64
from site_agent.eyeblink.video.seeking import SeekableVideo
from site_agent.pictures.video_reading import VideoReader
from tests.site_agent.eyeblink.drawn_videos import write_video

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
