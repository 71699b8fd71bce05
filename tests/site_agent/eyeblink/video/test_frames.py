"""Frames come with their own times, and damaged videos are told from good ones."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from pathlib import Path

import cv2
import numpy as np
import pytest

from site_agent.eyeblink.video.frames import VideoReader
from site_agent.eyeblink.video.seeking import read_ahead
from tests.site_agent.eyeblink.drawn_videos import write_video

STEADY_S = [number / 30.0 for number in range(60)]


def test_times_and_pictures(tmp_path: Path) -> None:
    path = tmp_path / "steady.mp4"
    write_video(path, STEADY_S)
    with VideoReader(path) as reader:
        frames = list(reader.frames())
    assert [frame.index for frame in frames] == list(range(60))
    assert [frame.timestamp_s for frame in frames] == pytest.approx(STEADY_S, abs=1e-4)
    assert frames[0].image.shape == (64, 96)
    assert frames[10].image[:, 5:40].mean() < frames[50].image[:, 5:40].mean() - 30
    assert reader.info.declared_frames == reader.report.decoded_frames == 60
    assert (reader.info.width_px, reader.info.height_px) == (96, 64)
    assert reader.report.warnings == []


def test_the_pictures_are_those_that_opencv_decodes(tmp_path: Path) -> None:
    path = tmp_path / "steady.mp4"
    write_video(path, STEADY_S)
    with VideoReader(path, pixels="rgb") as reader:
        frames = list(reader.frames())
    capture = cv2.VideoCapture(str(path))
    for frame in frames:
        decoded, picture = capture.read()
        assert decoded
        difference = np.abs(picture[:, :, ::-1].astype(int) - frame.image)
        assert difference.mean() < 2.0
    assert not capture.read()[0]
    capture.release()


def test_variable_frame_rate_keeps_its_times(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    times_s = np.concatenate([[0.0], np.cumsum(rng.uniform(0.01, 0.3, 80))])
    path = tmp_path / "variable.mp4"
    write_video(path, times_s.tolist())
    with VideoReader(path) as reader:
        found_s = [frame.timestamp_s for frame in reader.frames()]
    assert found_s == pytest.approx(times_s.tolist(), abs=1e-4)


def test_a_video_cut_off_gives_the_frames_before_the_cut(tmp_path: Path) -> None:
    path = tmp_path / "cut.mp4"
    write_video(path, [number / 30.0 for number in range(300)], faststart=True)
    data = path.read_bytes()
    path.write_bytes(data[: len(data) * 7 // 10])
    with VideoReader(path) as reader:
        decoded = sum(1 for _ in reader.frames())
    assert 50 < decoded < 300
    assert any("declares 300 frames" in warning for warning in reader.report.warnings)


def test_reading_ahead_stops_with_its_reader_and_is_bounded() -> None:
    made: list[int] = []

    def numbers() -> Iterator[int]:
        for number in range(10**9):
            made.append(number)
            yield number

    ahead = read_ahead(numbers, depth=4)
    assert next(ahead) == 0
    ahead.close()
    assert len(made) < 20
    assert not any(thread.name == "read-ahead" for thread in threading.enumerate())
