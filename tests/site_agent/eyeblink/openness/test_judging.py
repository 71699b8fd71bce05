"""Frames with eyes that are seen but cannot be judged."""

from collections.abc import Callable

import numpy as np
import pytest

from site_agent.eyeblink.face.landmarks import head_pose, pose_confidence
from site_agent.eyeblink.openness.signal import is_moving, is_unsure, without_unjudged
from site_agent.eyeblink.records import EyeTrace, FaceColumns, FaceSource, Float64, Gap


def places_of(times: Float64, x_px: Callable[[Float64], Float64]) -> Float64:
    """Eyes 60 px apart; their middle moves along `x_px`."""
    noise = np.random.default_rng(1).normal(0, 0.6, (len(times), 3))
    return np.stack([x_px(times), np.full_like(times, 200.0), np.full_like(times, 60.0)], 1) + noise


@pytest.mark.parametrize("rate_hz", [10, 30, 200])
def test_a_cut_is_found_and_a_fast_turn_is_not(rate_hz: int) -> None:
    times = np.arange(0, 4, 1 / rate_hz)
    turning = places_of(times, lambda t: 300 + 40 * np.sin(2 * np.pi * 0.7 * t))
    assert not is_moving(times, turning).any()
    cut = places_of(times, lambda t: np.where(t < 2, 300.0, 420.0))
    assert set(np.flatnonzero(is_moving(times, cut))) >= set(
        np.flatnonzero(np.abs(times - 2) < 0.04)
    )
    assert not is_moving(times, cut)[np.abs(times - 2) > 0.25].any()
    cut[5:7], cut[8] = 0.0, np.nan
    is_moving(times, cut)  # without a warning
    zoomed = cut.copy()
    zoomed[:, 0], zoomed[times >= 2, 2] = 300.0, 95.0
    assert is_moving(times, zoomed).any()


def test_only_lasting_doubt_counts() -> None:
    times = np.arange(0, 6, 1 / 30)
    confidence = np.ones(len(times))
    confidence[(times > 1) & (times < 1.25)] = 0.1  # a blink
    turned = (times > 3) & (times < 5)
    confidence[turned] = 0.2
    unsure = is_unsure(times, confidence, np.ones(len(times), dtype=bool))
    assert not unsure[times < 2.5].any()
    assert unsure[(times > 3.1) & (times < 4.9)].all()


def test_what_cannot_be_judged_has_no_ratio_and_a_reason() -> None:
    times = np.arange(0, 4, 1 / 30)
    ear = np.full(len(times), 0.3)
    trace = EyeTrace(
        frames=np.arange(len(times)),
        timestamps_s=times,
        ear_left=ear,
        ear_right=ear,
        ear=ear,
        confidence=np.where(times > 3, 0.1, 1.0),
        gaps=np.where(times < 0.5, Gap.NO_FACE, Gap.NONE).astype(np.uint8),
        face=FaceColumns(
            np.full((len(times), 4), 9.0),
            ear,
            np.full(len(times), FaceSource.FOLLOW, np.uint8),
            places_of(times, lambda t: np.where(t < 2, 0.0, 300.0)),
        ),
    )
    judged = without_unjudged(trace)
    assert set(judged.gaps) == {Gap.NO_FACE, Gap.NONE, Gap.FACE_MOVING, Gap.NOT_SURE}
    assert np.isnan(judged.ear[judged.gaps >= Gap.FACE_MOVING]).all()
    assert np.array_equal(judged.ear[judged.gaps == Gap.NONE], ear[judged.gaps == Gap.NONE])


def test_eyes_of_unlike_width_belong_to_a_turned_head() -> None:
    eye = np.array([(0, 0), (1, -1), (2, -1), (3, 0), (2, 1), (1, 1)], dtype=np.float64)

    def eyes(share: float) -> Float64:
        return np.concatenate([eye * [share, 1.0], np.add(eye, [6.0, 0.0])])

    assert head_pose(eyes(1.0)).yaw_deg == pytest.approx(0.0)
    # cos(45 + 18) / cos(45 - 18) degrees
    assert abs(head_pose(eyes(0.5095)).yaw_deg) == pytest.approx(45.0, abs=0.1)
    assert pose_confidence(head_pose(eyes(0.7))) == 1.0
    assert pose_confidence(head_pose(eyes(0.3))) < 0.35
