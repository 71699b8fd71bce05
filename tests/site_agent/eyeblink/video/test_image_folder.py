"""Folders of images: order, times, and what is wrong with them."""

from __future__ import annotations

from pathlib import Path

import cv2
import numpy as np
import pytest

from site_agent.eyeblink.video.image_folder import ImageFolderReader, SeekableImages


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Twelve images whose grey level tells their number."""
    folder = tmp_path / "pictures"
    folder.mkdir()
    for number in range(12):
        cv2.imwrite(str(folder / f"frame{number}.png"), np.full((20, 30), 10 * number, np.uint8))
    return folder


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
    found = [int(frame.image[10, 10]) for frame in reader.frames()]
    assert found == [(100 * number) >> 4 for number in range(3)]
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
