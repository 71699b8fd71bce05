"""Frames come with their own times, and damaged videos are told from good ones."""

import threading
import wave
from collections.abc import Iterator
from fractions import Fraction
from pathlib import Path

import av
import cv2
import numpy as np
import pytest

from site_agent.errors import VideoFileError
from site_agent.eyeblink.video.seeking import read_ahead
from site_agent.pictures.frame_pixels import grey_picture
from site_agent.pictures.video_reading import VideoReader
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


@pytest.mark.parametrize("suffix", ["jpg", "png", "tif", "bmp", "webp"])
def test_a_still_picture_is_no_video(tmp_path: Path, suffix: str) -> None:
    path = tmp_path / f"still.{suffix}"
    cv2.imwrite(str(path), np.zeros((64, 96, 3), dtype=np.uint8))
    with pytest.raises(VideoFileError, match="is a still picture, expected a video"):
        VideoReader(path)


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


def test_a_video_cut_off_gives_the_frames_before_the_cut(tmp_path: Path) -> None:
    path = tmp_path / "cut.mp4"
    write_video(path, [number / 30.0 for number in range(300)], faststart=True)
    data = path.read_bytes()
    path.write_bytes(data[: len(data) * 7 // 10])
    with VideoReader(path) as reader:
        decoded = sum(1 for _ in reader.frames())
    assert 50 < decoded < 300
    assert any("declares 300 frames" in warning for warning in reader.report.warnings)


@pytest.mark.parametrize(
    ("aspect", "rotation_deg", "size"),
    [(Fraction(4, 3), 0, (128, 64)), (Fraction(3, 4), 90, (85, 96)), (Fraction(1), 0, (96, 64))],
)
def test_pictures_have_square_pixels(
    tmp_path: Path, aspect: Fraction, rotation_deg: int, size: tuple[int, int]
) -> None:
    path = tmp_path / "anamorphic.mp4"
    write_video(path, STEADY_S[:5], rotation_deg=rotation_deg, pixel_aspect=aspect)
    with VideoReader(path) as reader:
        shapes = {frame.image.shape[:2] for frame in reader.frames()}
    assert shapes == {size[::-1]}
    assert any("stretched" in warning for warning in reader.report.warnings) == (aspect != 1)


def test_files_that_are_not_videos(tmp_path: Path) -> None:
    text = tmp_path / "text.mp4"
    text.write_text("no video" * 100)
    cut = tmp_path / "cut.mp4"
    write_video(cut, STEADY_S)
    cut.write_bytes(cut.read_bytes()[:-200])  # the index stands at the end
    sound = tmp_path / "sound.wav"
    with wave.open(str(sound), "wb") as file:
        file.setparams((1, 2, 8000, 0, "NONE", "not compressed"))
        file.writeframes(bytes(16000))
    for path, message in (
        (text, "cannot be opened as a video"),
        (cut, "cannot be opened as a video"),
        (sound, "found audio, expected a video stream"),
        (tmp_path / "missing.mp4", "no such file"),
    ):
        with pytest.raises(VideoFileError, match=message) as error:
            VideoReader(path)
        assert str(path) in str(error.value)


def test_reading_ahead_passes_errors_on_after_the_items_before() -> None:
    def numbers() -> Iterator[int]:
        yield 1
        raise VideoFileError("broken")

    ahead = read_ahead(numbers)
    assert next(ahead) == 1
    with pytest.raises(VideoFileError, match="broken"):
        next(ahead)


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


@pytest.mark.parametrize("pixel_format", ["yuv420p", "yuvj420p", "nv12", "gray", "rgb24"])
@pytest.mark.parametrize("full_range", [False, True])
def test_grey_is_what_the_general_conversion_gives(pixel_format: str, full_range: bool) -> None:
    rng = np.random.default_rng(0)
    # 50 pixels: lines with padding at their ends.
    picture = cv2.resize(rng.integers(0, 256, (12, 10, 3), dtype=np.uint8), (50, 36))
    frame = av.VideoFrame.from_ndarray(picture, format="rgb24").reformat(format=pixel_format)
    if (
        full_range
        and pixel_format.startswith(("yuv4", "nv"))
        and not pixel_format.startswith("yuvj")
    ):
        frame.color_range = 2
    grey = grey_picture(frame)
    assert grey.shape == (36, 50)
    assert grey.flags.c_contiguous
    expected = frame.to_ndarray(format="gray").astype(int)
    assert np.abs(grey.astype(int) - expected).max() <= 1
