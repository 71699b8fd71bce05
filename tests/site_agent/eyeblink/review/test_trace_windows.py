"""Views of a trace keep every extreme."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from site_agent.eyeblink.review.endpoints import gap_runs, trace_window


@given(st.integers(2, 400), st.integers(16, 60), st.floats(-1.0, 9.0), st.floats(0.1, 12.0))
def test_no_extreme_is_lost(count: int, points: int, from_s: float, length_s: float) -> None:
    rng = np.random.default_rng(count)
    times_s = np.cumsum(rng.uniform(0.01, 0.05, count))
    signal = rng.normal(size=count)
    signal[rng.uniform(size=count) < 0.2] = np.nan
    to_s = from_s + length_s
    window = trace_window(times_s, {"x": signal}, from_s, to_s, points)
    inside = signal[(times_s >= from_s) & (times_s < to_s)]
    known = inside[np.isfinite(inside)]
    assert len(window.times_s) <= max(points, 2)
    if len(known):
        assert np.nanmax(window.highs["x"]) >= known.max()
        assert np.nanmin(window.lows["x"]) <= known.min()
    if window.is_exact:
        assert np.array_equal(signal[window.frames], window.highs["x"], equal_nan=True)


def test_where_the_eyes_were_not_seen() -> None:
    times_s = np.arange(4, dtype=np.float64)
    gaps = gap_runs(times_s, np.array([1, 1, 0, 2], dtype=np.uint8))
    assert gaps == [(0.0, 1.0, 1), (3.0, 3.0, 2)]
