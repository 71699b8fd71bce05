"""Both eyes of a blink."""

from dataclasses import replace

import numpy as np
import pytest

from site_agent.eyeblink.blinks.finding import find_blinks
from site_agent.eyeblink.records import EyeTrace, mean_of_valid_eyes
from tests.site_agent.eyeblink.drawn_traces import Drawing, draw_trace, trace_of


def two_eyes(lag_s: float, right_share: float = 1.0, rate_hz: float = 100.0) -> EyeTrace:
    """The right eye follows the left one after `lag_s`, by this share."""
    rng = np.random.default_rng(0)
    times_s = np.arange(int(30 * rate_hz)) / rate_hz
    eyes = []
    for delay_s, share in ((0.0, 1.0), (lag_s, right_share)):
        closure = np.zeros(len(times_s))
        for start_s in (4.0, 11.0, 19.5, 26.0):
            edges_s = np.array([0.0, 0.1, 0.13, 0.33]) + start_s + delay_s
            closure = np.maximum(closure, np.interp(times_s, edges_s, [0.0, 1.0, 1.0, 0.0]))
        eyes.append(0.3 - 0.24 * share * closure + rng.normal(0, 0.003, len(times_s)))
    left, right = eyes
    trace = trace_of(times_s, mean_of_valid_eyes(left, right))
    return replace(trace, ear_left=left, ear_right=right)


@pytest.mark.parametrize("lag_ms", [-40.0, 0.0, 60.0])
@pytest.mark.parametrize("rate_hz", [30.0, 250.0])
def test_the_lag_between_the_eyes(lag_ms: float, rate_hz: float) -> None:
    blinks = find_blinks(two_eyes(lag_ms / 1000.0, rate_hz=rate_hz))
    assert len(blinks) == 4
    assert {blink.eyes for blink in blinks} == {"both"}
    assert np.mean([blink.lag_ms for blink in blinks]) == pytest.approx(lag_ms, abs=4.0)


@pytest.mark.parametrize(("share", "eyes"), [(0.0, "left"), (0.1, "left"), (0.8, "both")])
def test_a_wink(share: float, eyes: str) -> None:
    blinks = find_blinks(two_eyes(0.0, share))
    assert {blink.eyes for blink in blinks} == {eyes}
    assert np.isnan(blinks[0].lag_ms) == (eyes != "both")


def test_eyes_that_are_not_known_apart() -> None:
    trace, _ = draw_trace(0, Drawing(seconds=30.0))
    assert {blink.eyes for blink in find_blinks(trace)} == {"unknown"}
    unseen = replace(trace, ear_right=np.full_like(trace.ear, np.nan))
    assert {blink.eyes for blink in find_blinks(unseen)} == {"unknown"}
