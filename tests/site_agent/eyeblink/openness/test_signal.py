"""EAR, closure and calibration against values worked out by hand."""

from dataclasses import replace

import numpy as np
import pytest

from site_agent.datasets.landmark_schemes import eye_aspect_ratio, eyes_of
from site_agent.eyeblink.blinks.finding import find_blinks
from site_agent.eyeblink.openness.signal import (
    at_usual_pose,
    calibrate,
    closed_ear_at_puffs,
    closure_paper_pct,
    fraction_eyelid_closure,
)
from site_agent.eyeblink.records import EyeTrace
from tests.site_agent.eyeblink.drawn_traces import Drawing, draw_trace, trace_of

EYE = np.array([[0, 0], [10, 4], [20, 4], [30, 0], [20, -5], [10, -5]], dtype=np.float64)


def test_ear_is_mean_height_over_width() -> None:
    assert eye_aspect_ratio(EYE) == pytest.approx((9.0 + 9.0) / (2 * 30.0))


def test_ear_does_not_depend_on_place_size_and_tilt() -> None:
    turn = np.array([[0.8, -0.6], [0.6, 0.8]])
    assert eye_aspect_ratio(3.0 * EYE @ turn + 50.0) == pytest.approx(float(eye_aspect_ratio(EYE)))


def test_an_eye_of_no_width_has_no_ear() -> None:
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
