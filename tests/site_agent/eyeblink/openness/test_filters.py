"""Smoothing of eye aspect ratios."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.signal import savgol_filter

from site_agent.eyeblink.blinks.finding import find_blinks
from site_agent.eyeblink.conditioning.cr_onset import local_parabolas
from site_agent.eyeblink.openness.sampling import FilterSettings, filtered_trace
from tests.site_agent.eyeblink.drawn_traces import Drawing, draw_trace
from tests.site_agent.eyeblink.matching import match_blinks

FILTER = FilterSettings(filter="savgol", filter_ms=120.0)


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


def test_noise_shrinks_and_blinks_stay() -> None:
    drawing = Drawing(seconds=40.0, frame_rate_hz=200.0, noise_ear=0.02)
    trace, intervals = draw_trace(0, drawing)
    smooth = filtered_trace(trace, FILTER)
    still = np.abs(np.diff(smooth.ear)).mean() / np.abs(np.diff(trace.ear)).mean()
    assert still < 0.25
    blinks = [(blink.onset_s, blink.offset_s) for blink in find_blinks(smooth)]
    assert match_blinks(blinks, intervals).f1 == 1.0


def test_slow_recordings_stay_as_they_are() -> None:
    trace, _ = draw_trace(0, Drawing(seconds=20.0, frame_rate_hz=30.0))
    assert np.array_equal(filtered_trace(trace, FILTER).ear, trace.ear)
    assert filtered_trace(trace, FilterSettings()) is trace
