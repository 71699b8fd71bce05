"""Aspect ratios, closure, calibration and smoothing, against values worked out by hand."""

from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.signal import savgol_filter

from site_agent.datasets.landmark_schemes import eye_aspect_ratio, eyes_of
from site_agent.eyeblink.conditioning.cr_onset import local_parabolas
from site_agent.eyeblink.face.landmarks import head_pose, pose_confidence
from site_agent.eyeblink.openness.signal import (
    at_usual_pose,
    calibrate,
    closed_ear_at_puffs,
    closure_paper_pct,
    fraction_eyelid_closure,
    is_moving,
    is_unsure,
    without_unjudged,
)
from site_agent.eyeblink.records import EyeTrace, FaceColumns, FaceSource, Float64, Gap
from tests.site_agent.eyeblink.drawn_traces import Drawing, draw_trace, find_blinks, trace_of

EYE = np.array([[0, 0], [10, 4], [20, 4], [30, 0], [20, -5], [10, -5]], dtype=np.float64)


def test_ear_is_mean_height_over_width_at_any_place_size_and_tilt() -> None:
    turn = np.array([[0.8, -0.6], [0.6, 0.8]])
    for eye in (EYE, 3.0 * EYE @ turn + 50.0):
        assert eye_aspect_ratio(eye) == pytest.approx((9.0 + 9.0) / (2 * 30.0))
    assert np.isnan(eye_aspect_ratio(np.zeros((6, 2))))


def test_left_is_43_to_48_and_right_37_to_42() -> None:
    landmarks = np.zeros((2, 68, 2))
    landmarks[:, 42:48] = EYE
    landmarks[:, 36:42] = EYE * [1.0, 0.5]
    left, right = map(eye_aspect_ratio, eyes_of(landmarks))
    assert left == pytest.approx([0.3, 0.3])
    assert right == pytest.approx([0.15, 0.15])


def test_the_papers_closure_leaves_an_open_eye_at_27_percent() -> None:
    closure = closure_paper_pct(np.array([0.08, 0.30, np.nan]))
    assert closure[0] == pytest.approx(100.0)
    assert closure[1] == pytest.approx(100.0 * 0.08 / 0.30)
    assert np.isnan(closure[2])


def test_calibration_finds_open_and_closed() -> None:
    trace, _ = draw_trace(0, Drawing(drift_ear=0.0, amplitude_fec=(1.0, 1.0)))
    calibration = calibrate(trace.ear)
    assert calibration.open_ear == pytest.approx(0.30, abs=0.005)
    assert calibration.closed_ear == pytest.approx(0.06, abs=0.02)
    assert calibration.reliable
    fec = fraction_eyelid_closure(np.array([0.30, 0.06, 0.18]), calibration)
    assert fec == pytest.approx([0.0, 1.0, 0.5], abs=0.05)


def test_a_session_without_blinks_is_flagged() -> None:
    rng = np.random.default_rng(0)
    assert not calibrate(0.3 + rng.normal(0, 0.005, 3000)).reliable


@pytest.mark.parametrize("ear", [[], [np.nan], [0.3, 0.3]])
def test_calibration_of_nothing(ear: list[float]) -> None:
    values = np.array(ear, dtype=np.float64)
    calibration = calibrate(values)
    assert not calibration.reliable
    assert np.isnan(fraction_eyelid_closure(values, calibration)).all()


def test_the_closed_eye_by_air_puffs() -> None:
    times_s = np.arange(3000) / 100.0
    puffs_s = [5.0, 12.0, 20.0, 28.0, 99.0]
    ear = np.full(3000, 0.30)
    for puff_s, depth in zip(puffs_s, (0.20, 0.21, 0.22, 0.10, 0.0), strict=True):
        ear -= depth * np.interp(times_s - puff_s, [0.03, 0.08, 0.15, 0.4], [0, 1, 1, 0])
    assert closed_ear_at_puffs(times_s, ear, puffs_s) == pytest.approx(0.095, abs=0.002)
    assert closed_ear_at_puffs(times_s, ear, [99.0]) is None
    calibration = calibrate(ear, closed_ear=0.095)
    assert calibration.open_ear == pytest.approx(0.30)
    assert calibration.closed_ear == 0.095


DRAWINGS = {
    "30/s": Drawing(),
    "much noise": Drawing(noise_ear=0.011),
    "60/s": Drawing(frame_rate_hz=60.0),
    "200/s": Drawing(frame_rate_hz=200.0),
    "partial": Drawing(amplitude_fec=(0.5, 1.0)),
    "uneven": Drawing(variable_rate=True, gaps=5),
    "small eyes": Drawing(open_ear=0.22, closed_ear=0.08, noise_ear=0.005, drift_ear=0.0),
}


@pytest.mark.parametrize("drawing", DRAWINGS.values(), ids=DRAWINGS)
def test_fec_is_the_closure_that_was_drawn(drawing: Drawing) -> None:
    still = replace(drawing, drift_ear=0.0)
    for seed in range(3):
        trace, _ = draw_trace(seed, still)
        quiet, _ = draw_trace(seed, replace(still, noise_ear=0.0, spikes=0))
        closure = (still.open_ear - quiet.ear) / (still.open_ear - still.closed_ear)
        fec = fraction_eyelid_closure(trace.ear, calibrate(trace.ear))
        assert np.sqrt(np.nanmean((fec - closure) ** 2)) < 0.05


def turning_head(swing_deg: float, rate_hz: float = 30.0) -> EyeTrace:
    """Draw blinks of a full closure each 2 s while the head turns, as the eyes then look."""
    times_s = np.arange(int(60.0 * rate_hz)) / rate_hz
    yaw = swing_deg * np.sin(times_s / 4.0)
    blink = np.exp(-((((times_s + 1.0) % 2.0) - 1.0) ** 2) / 0.003)
    left, right = (
        0.3 * (1.0 - 0.75 * blink) * np.cos(np.radians(side * 18.0)) / np.cos(angle)
        for side, angle in ((1, np.radians(yaw + 18.0)), (-1, np.radians(yaw - 18.0)))
    )
    trace = trace_of(times_s, (left + right) / 2.0)
    rng = np.random.default_rng(1)
    pose_deg = np.column_stack([yaw + rng.normal(0.0, 1.5, len(yaw)), np.full(len(yaw), 4.0)])
    return replace(trace, ear_left=left, ear_right=right, pose_deg=pose_deg)


@pytest.mark.parametrize("rate_hz", [30.0, 120.0])
def test_blinks_of_a_turned_head_are_as_deep_as_those_of_a_straight_one(rate_hz: float) -> None:
    def slope(trace: EyeTrace) -> float:
        assert turned.pose_deg is not None
        blinks = find_blinks(trace)
        assert len(blinks) >= 29
        yaw_deg = np.abs(turned.pose_deg[[blink.peak_frame for blink in blinks], 0])
        return float(10 * np.polyfit(yaw_deg, [blink.amplitude_fec for blink in blinks], 1)[0])

    turned = turning_head(25.0, rate_hz)
    assert slope(turned) > 0.03
    assert abs(slope(at_usual_pose(turned))) < 0.01


def test_a_head_that_keeps_still_or_is_not_known_changes_nothing() -> None:
    still = turning_head(0.5)
    assert np.allclose(at_usual_pose(still).ear, still.ear, rtol=0.01)
    unknown = replace(turning_head(25.0), pose_deg=None)
    assert at_usual_pose(unknown) is unknown


def test_on_an_even_grid_it_is_the_filter_of_savitzky_and_golay() -> None:
    rng = np.random.default_rng(0)
    values = rng.normal(size=300)
    filtered = local_parabolas(np.arange(300) / 100.0, values, 0.12)
    expected = savgol_filter(values, 13, 2)
    assert filtered[6:-6] == pytest.approx(expected[6:-6], abs=1e-9)


@given(a=st.floats(-1, 1), b=st.floats(-1, 1), c=st.floats(-1, 1), seed=st.integers(0, 100))
def test_parabolas_pass_unchanged_whatever_the_times(
    a: float, b: float, c: float, seed: int
) -> None:
    rng = np.random.default_rng(seed)
    times_s = np.cumsum(rng.uniform(0.002, 0.02, 100))
    values = a * times_s**2 + b * times_s + c
    values[rng.integers(0, 100, 10)] = np.nan
    filtered = local_parabolas(times_s, values, 0.12)
    assert np.array_equal(np.isnan(filtered), np.isnan(values))
    assert np.nan_to_num(filtered) == pytest.approx(np.nan_to_num(values), abs=1e-6)


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
