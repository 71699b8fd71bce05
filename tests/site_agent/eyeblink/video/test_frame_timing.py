"""Lost frames are counted from the times of the others."""

import numpy as np
import pytest

from site_agent.eyeblink.video.recording import frame_timing, rate_remark


def test_a_steady_recording_without_losses() -> None:
    rng = np.random.default_rng(0)
    timing = frame_timing(np.arange(300) / 30.0 + rng.uniform(-0.001, 0.001, 300))
    assert timing.steady
    assert timing.lost_frames == 0
    assert timing.remark() is None
    assert timing.frame_rate_hz == pytest.approx(30.0, rel=0.02)


def test_lost_frames() -> None:
    times_s = np.delete(np.arange(300) / 30.0, [50, 51, 52, 100, 200])
    timing = frame_timing(times_s)
    assert (timing.lost_frames, timing.losses) == (5, 3)
    assert timing.longest_gap_s == pytest.approx(4 / 30)
    assert "about 5 frames are missing in 3 places" in str(timing.remark())
    once = frame_timing(np.delete(np.arange(300) / 30.0, [50]))
    assert "about 1 frame is missing in 1 place" in str(once.remark())


@pytest.mark.parametrize(
    ("rate_hz", "plausible"), [(5, False), (25, True), (1000, True), (1e6, False)]
)
def test_implausible_rates_are_remarked_on(rate_hz: float, plausible: bool) -> None:
    assert (rate_remark(rate_hz) is None) == plausible


def test_a_varying_rate_has_no_losses_to_count() -> None:
    rng = np.random.default_rng(0)
    timing = frame_timing(np.cumsum(rng.uniform(0.01, 0.1, 300)))
    assert not timing.steady
    assert timing.lost_frames == 0


def test_too_few_frames() -> None:
    assert np.isnan(frame_timing(np.zeros(1)).frame_rate_hz)


def test_times_in_milliseconds_are_guessed() -> None:
    assert "milliseconds" in (rate_remark(0.03) or "")
    assert "milliseconds" not in (rate_remark(5000.0) or "")
