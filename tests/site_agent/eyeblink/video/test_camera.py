"""Cameras; a video file stands in for the device, which OpenCV opens in the same way."""

import os
import signal
import threading
import time
from pathlib import Path

import numpy as np
import pytest

from site_agent.errors import FaceModelError, InvalidInputError, VideoFileError
from site_agent.eyeblink.pipeline import run_blink_analysis
from site_agent.eyeblink.video.camera import CameraReader, stopped_by_interrupt
from site_agent.pictures.video_reading import VideoReader
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


def test_it_stops_when_told_and_after_a_time(device: str) -> None:
    camera = CameraReader(device)
    frames = camera.frames()
    next(frames)
    camera.stop()
    assert list(frames) == []
    camera.close()
    brief = CameraReader(device, seconds=0.0)
    assert len(list(brief.frames())) == 1
    brief.close()


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


def test_an_earlier_recording_stays_until_there_is_a_picture(device: str, tmp_path: Path) -> None:
    kept = tmp_path / "kept.mkv"
    kept.write_bytes(b"an hour of a participant")
    camera = CameraReader(device, record=kept)
    (tmp_path / "broken.dat").write_text("no model")
    with pytest.raises(FaceModelError):
        run_blink_analysis(camera, landmarks=tmp_path / "broken.dat", out_dir=tmp_path / "out")
    assert kept.read_bytes() == b"an hour of a participant"
    assert camera.recording is None
    again = CameraReader(device, record=kept)
    next(again.frames())
    again.close()
    assert again.recording == kept
    with VideoReader(kept) as reader:
        assert len(list(reader.frames())) == 1
    assert {path.name for path in tmp_path.iterdir()} == {"kept.mkv", "broken.dat", "device.mp4"}


def test_cameras_that_are_not_there(tmp_path: Path, device: str) -> None:
    with pytest.raises(InvalidInputError, match="camera 99 cannot be opened"):
        CameraReader(99)
    with pytest.raises(VideoFileError, match="cannot be written as a video"):
        CameraReader(device, record=tmp_path / "recording.nothing")
