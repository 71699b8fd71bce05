"""Folders of images: order, times, and faults."""

from pathlib import Path

import cv2
import numpy as np
import pytest

from site_agent.errors import TableFileError, VideoFileError
from site_agent.eyeblink.video.image_folder import ImageFolderReader, SeekableImages
from site_agent.eyeblink.video.recording import Recording


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Twelve images; their grey levels tell their numbers."""
    folder = tmp_path / "pictures"
    folder.mkdir()
    for number in range(12):
        cv2.imwrite(str(folder / f"frame{number}.png"), np.full((20, 30), 10 * number, np.uint8))
    return folder


def levels(reader: ImageFolderReader) -> list[int]:
    return [round(float(frame.image.mean()) / 10) for frame in reader.frames()]


def test_a_rate_and_the_numbers_in_the_names(folder: Path) -> None:
    reader = ImageFolderReader(folder, frame_rate_hz=50.0)
    frames = list(reader.frames())
    assert [round(float(frame.image.mean()) / 10) for frame in frames] == list(range(12))
    assert [frame.timestamp_s for frame in frames] == pytest.approx(np.arange(12) / 50)
    assert (reader.info.width_px, reader.info.height_px) == (30, 20)
    assert frames[0].image.shape == (20, 30)
    assert reader.report.warnings == []


def test_images_of_12_bits(tmp_path: Path) -> None:
    for number in range(3):
        cv2.imwrite(
            str(tmp_path / f"frame{number}.png"), np.full((20, 30), 100 * number, np.uint16)
        )
    reader = ImageFolderReader(tmp_path, frame_rate_hz=50.0, bits=12)
    greys = [int(frame.image[10, 10]) for frame in reader.frames()]
    assert greys == [(100 * number) >> 4 for number in range(3)]
    seen = SeekableImages(tmp_path, np.arange(3) / 50.0, 50.0, 12)
    assert seen.picture(2)[10, 10].tolist() == [200 >> 4] * 3


@pytest.mark.parametrize(("header", "scale"), [("file,timestamp_s", 1.0), ("file;time_ms", 1000.0)])
def test_a_table_of_times(folder: Path, header: str, scale: float) -> None:
    comma = ";" if ";" in header else ","
    times_s = {3: 0.0, 1: 0.04, 7: 0.1, 0: 0.5}
    lines = [f"frame{number}.png{comma}{time * scale}" for number, time in times_s.items()]
    (folder / "timestamps.csv").write_text("\n".join([header, *reversed(lines)]))
    reader = ImageFolderReader(folder)
    frames = list(reader.frames())
    assert [round(float(frame.image.mean()) / 10) for frame in frames] == [3, 1, 7, 0]
    assert [frame.timestamp_s for frame in frames] == pytest.approx(list(times_s.values()))


def test_what_is_missing_or_damaged_is_counted(folder: Path) -> None:
    table = folder / "times.csv"
    rows = [f"frame{number}.png,{number / 10}" for number in range(12)]
    table.write_text("\n".join(["file,timestamp_s", *rows, "frame99.png,9.9"]))
    data = (folder / "frame5.png").read_bytes()
    (folder / "frame5.png").write_bytes(data[: len(data) // 2])
    reader = ImageFolderReader(folder, timestamps=table)
    assert levels(reader) == [0, 1, 2, 3, 4, 6, 7, 8, 9, 10, 11]
    assert reader.report.decoding_errors == 1
    missing, damaged = reader.report.warnings
    assert "frame99.png" in missing
    assert "1 of 12 images cannot be read" in damaged
    assert "frame5.png" in damaged


@pytest.mark.parametrize(
    ("table", "message"),
    [
        ("a,b\nframe0.png,1\n", "expected file and timestamp_s"),
        (
            "file,timestamp_s\nframe0.png,1\nframe1.png,1\n",
            "line 3: has no time, or that of another",
        ),
        ("file,timestamp_s\nother.png,1\n", "none of its 1 images"),
    ],
)
def test_tables_that_do_not_fit(folder: Path, table: str, message: str) -> None:
    (folder / "timestamps.csv").write_text(table)
    with pytest.raises(TableFileError, match=message):
        ImageFolderReader(folder)


def test_folders_without_images_or_times(folder: Path, tmp_path: Path) -> None:
    with pytest.raises(VideoFileError, match="images without times"):
        ImageFolderReader(folder)
    with pytest.raises(VideoFileError, match="no such file"):
        ImageFolderReader(tmp_path / "nowhere", frame_rate_hz=30.0)
    for path in folder.iterdir():
        path.write_bytes(b"no image")
    with pytest.raises(VideoFileError, match="no image can be read"):
        ImageFolderReader(folder, frame_rate_hz=30.0)


def test_the_digest_depends_on_every_image(folder: Path) -> None:
    recording = Recording(folder, frame_rate_hz=30.0)
    before = recording.source()
    assert (before.role, before.name) == ("images", "pictures")
    assert recording.source() == before
    cv2.imwrite(str(folder / "frame11.png"), np.full((20, 30), 7, np.uint8))
    assert recording.source().sha256 != before.sha256
