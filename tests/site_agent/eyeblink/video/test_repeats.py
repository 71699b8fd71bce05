"""Frames for which a camera or a recorder had no new picture."""

from pathlib import Path

import numpy as np
import pytest

from aggregators.formats import write_model
from site_agent.eyeblink.pipeline import run_blink_analysis
from site_agent.eyeblink.video.recording import RepeatedPictures, repeated_pictures
from site_agent.pictures.video import write_video
from tests.site_agent.faces.test_prediction import small_detector, small_predictor

FRAMES, RATE_HZ = 240, 30.0


def found(changes: np.ndarray) -> RepeatedPictures:
    changes = np.concatenate([[np.nan], changes[1:]])
    return repeated_pictures(changes, np.arange(len(changes)) / RATE_HZ)


def noisy(seed: int = 0) -> np.ndarray:
    """Changes of a face before a camera with noise that moves now and then."""
    rng = np.random.default_rng(seed)
    moves = np.repeat(rng.uniform(0, 6, FRAMES // 12), 12)
    return 1.2 + rng.uniform(0, 0.3, FRAMES) + moves


@pytest.mark.parametrize(("new", "every"), [(1, 2), (1, 3), (4, 5)])
def test_pictures_of_a_slower_camera_are_counted(new: int, every: int) -> None:
    changes = noisy()
    changes[np.arange(FRAMES) % every >= new] *= 0.03
    repeats = found(changes)
    assert repeats.frames == pytest.approx(FRAMES * (every - new) / every, abs=24)
    assert repeats.rate_hz == pytest.approx(RATE_HZ * new / every, rel=0.2)
    assert f"in effect there are {repeats.rate_hz:.1f} frames/s" in repeats.remark


@pytest.mark.parametrize("end", [75, FRAMES])
def test_freezes_are_named(end: int) -> None:
    changes = noisy()
    changes[61:end] = 0.02
    changes[100] = np.nan  # damaged
    changes[end : end + 1] = 9.0
    repeats = found(changes)
    assert repeats.rate_hz == RATE_HZ
    if end < FRAMES:
        assert "14 of 240 frames (6 %)" in repeats.remark
        assert "freezes 1 time, the longest for 0.5 s at 2.0 s" in repeats.remark


def spiked() -> np.ndarray:
    changes = np.full(FRAMES, 0.02)
    changes[::30] = 1.0
    return changes


def still() -> np.ndarray:
    changes = np.zeros(FRAMES)
    for begin in range(20, FRAMES, 40):
        changes[begin : begin + 8] = (0.1, 0.2, 0.2, 0.0, 0.0, 0.2, 0.1, 0.1)
    return changes


@pytest.mark.parametrize(
    "changes",
    [noisy(), noisy(1) * 0.02, spiked(), still(), np.zeros(FRAMES), np.full(3, np.nan)],
    ids=["camera", "much coded away", "key frames", "no noise", "one picture", "damaged"],
)
def test_new_pictures_are_not_doubted(changes: np.ndarray) -> None:
    assert found(changes) == RepeatedPictures(0, pytest.approx(RATE_HZ))


@pytest.mark.parametrize("copies", [1, 2])
def test_a_recorder_of_a_slower_camera_is_named_with_its_rate(tmp_path: Path, copies: int) -> None:
    rng = np.random.default_rng(0)
    scene = np.kron(rng.integers(60, 180, (16, 24, 3)), np.ones((8, 8, 1)))

    def picture(number: int) -> np.ndarray:
        grain = np.random.default_rng(number).normal(0, 2, scene.shape)
        return np.clip(np.roll(scene, number, axis=1) + grain, 0, 255).astype(np.uint8)

    frames = ((number / RATE_HZ, picture(number // copies)) for number in range(90))
    write_video(tmp_path / "a.mp4", frames, RATE_HZ, quality_crf=23)
    write_model(small_predictor(68), tmp_path / "points.dat")
    write_model(small_detector(None), tmp_path / "faces.svm")
    session = run_blink_analysis(
        tmp_path / "a.mp4",
        landmarks=tmp_path / "points.dat",
        detector=tmp_path / "faces.svm",
        out_dir=tmp_path / "out",
    )
    text = " ".join(session.warnings)
    assert ("repeat the picture before them" in text) == (copies == 2)
    assert ("the count is too low" in text) == (copies == 2)
