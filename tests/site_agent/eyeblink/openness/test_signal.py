"""EAR, closure and calibration against values worked out by hand."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from site_agent.datasets.landmark_schemes import eye_aspect_ratio, eyes_of
from site_agent.eyeblink.openness.signal import calibrate, fraction_eyelid_closure
from tests.site_agent.eyeblink.drawn_traces import Drawing, draw_trace

EYE = np.array([[0, 0], [10, 4], [20, 4], [30, 0], [20, -5], [10, -5]], dtype=np.float64)


def test_ear_is_mean_height_over_width() -> None:
    assert eye_aspect_ratio(EYE) == pytest.approx((9.0 + 9.0) / (2 * 30.0))


def test_ear_does_not_depend_on_place_size_and_tilt() -> None:
    turn = np.array([[0.8, -0.6], [0.6, 0.8]])
    assert eye_aspect_ratio(3.0 * EYE @ turn + 50.0) == pytest.approx(float(eye_aspect_ratio(EYE)))


def test_left_is_43_to_48_and_right_37_to_42() -> None:
    landmarks = np.zeros((2, 68, 2))
    landmarks[:, 42:48] = EYE
    landmarks[:, 36:42] = EYE * [1.0, 0.5]
    left, right = map(eye_aspect_ratio, eyes_of(landmarks))
    assert left == pytest.approx([0.3, 0.3])
    assert right == pytest.approx([0.15, 0.15])


def test_calibration_finds_open_and_closed() -> None:
    trace, _ = draw_trace(0, Drawing(drift_ear=0.0, amplitude_fec=(1.0, 1.0)))
    calibration = calibrate(trace.ear)
    assert calibration.open_ear == pytest.approx(0.30, abs=0.005)
    assert calibration.closed_ear == pytest.approx(0.06, abs=0.02)
    assert calibration.reliable
    fec = fraction_eyelid_closure(np.array([0.30, 0.06, 0.18]), calibration)
    assert fec == pytest.approx([0.0, 1.0, 0.5], abs=0.05)


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
