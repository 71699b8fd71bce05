"""Cameras; a video file stands in for the device, which OpenCV opens in the same way."""

from __future__ import annotations

import os
import signal
import threading
import time
from pathlib import Path

import numpy as np
import pytest

from site_agent.eyeblink.video.camera import CameraReader, stopped_by_interrupt
from site_agent.eyeblink.video.frames import VideoReader
from tests.site_agent.eyeblink.drawn_videos import write_video


@pytest.fixture
def device(tmp_path: Path) -> str:
    path = tmp_path / "device.mp4"
    write_video(path, [number / 30.0 for number in range(90)])
    return str(path)


def test_frames_have_the_times_of_their_arrival(device: str) -> None:
    camera = CameraReader(device)
    frames = list(camera.frames())
    camera.close()
    assert len(frames) == camera.report.decoded_frames == 90
    assert frames[0].timestamp_s == 0.0
    assert (np.diff([frame.timestamp_s for frame in frames]) > 0).all()
    assert frames[0].image.shape == (64, 96)
    assert "delivered no more pictures" in camera.report.warnings[0]


def test_the_recording_has_the_same_frames_and_times(device: str, tmp_path: Path) -> None:
    path = tmp_path / "kept" / "recording.mkv"
    camera = CameraReader(device, record=path)
    frames = []
    for frame in camera.frames():
        frames.append(frame)
        time.sleep(0.004)  # a camera takes its time, too
    camera.close()
    with VideoReader(path) as reader:
        recorded = list(reader.frames())
    assert len(recorded) == len(frames)
    # Matroska counts milliseconds.
    assert [frame.timestamp_s for frame in recorded] == pytest.approx(
        [frame.timestamp_s for frame in frames], abs=0.0025
    )
    assert np.abs(recorded[40].image.astype(int) - frames[40].image).mean() < 6


def interrupt() -> None:
    os.kill(os.getpid(), signal.SIGINT)
    threading.Event().wait(5.0)


def test_ctrl_c_ends_the_recording_and_not_the_program(device: str) -> None:
    before = signal.getsignal(signal.SIGINT)
    camera = CameraReader(device)
    with stopped_by_interrupt(camera):
        frames = camera.frames()
        next(frames)
        os.kill(os.getpid(), signal.SIGINT)
        assert len(list(frames)) == 0
        with pytest.raises(KeyboardInterrupt):
            interrupt()
    assert signal.getsignal(signal.SIGINT) == before
    camera.close()
