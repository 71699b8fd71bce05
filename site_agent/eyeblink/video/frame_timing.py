"""Whether frames came steadily, and how many are missing between them."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from site_agent.eyeblink.records import Float64
from site_agent.wording import count_words

PLAUSIBLE_RATES_HZ = (10.0, 2000.0)


def rate_remark(frame_rate_hz: float) -> str | None:
    """Say, for people, that blinks cannot have been filmed at such a rate; None where they can."""
    lowest, highest = PLAUSIBLE_RATES_HZ
    if not (frame_rate_hz < lowest or frame_rate_hz > highest):
        return None
    return (
        f"{frame_rate_hz:.4g} frames/s is implausible for blinks, which last 0.1 to 0.4 s "
        f"(expected {lowest:g} to {highest:g}): all durations and rates depend on it; give the "
        "true one with --frame-rate-hz, or the times of the frames with --timestamps"
    )


@dataclass(frozen=True)
class FrameTiming:
    """How a recording's frames follow each other.

    Attributes
    ----------
    steady : bool
        At least four of five intervals are within 15 % of the median.
    lost_frames, losses : int
        Frames that are missing from a steady recording, and in how many places: intervals near
        a whole multiple of the usual one. Not counted (0) where the rate varies.
    """

    frame_rate_hz: float
    steady: bool
    lost_frames: int
    losses: int
    longest_gap_s: float

    def remark(self) -> str | None:
        """Say what is missing, for people; None where nothing is."""
        if not self.lost_frames:
            return None
        return (
            f"about {count_words(self.lost_frames, 'frame is', 'frames are')} missing in "
            f"{count_words(self.losses, 'place')} (longest gap {self.longest_gap_s:.2f} s); "
            "times are the frames' own and stay right"
        )


def frame_timing(timestamps_s: Float64) -> FrameTiming:
    """Look at the intervals between frames, shape (n,) in, strictly increasing."""
    if len(timestamps_s) < 2:
        return FrameTiming(float("nan"), True, 0, 0, 0.0)
    steps_s = np.diff(timestamps_s)
    usual_s = float(np.median(steps_s))
    relative = steps_s / usual_s
    steady = bool(np.mean(np.abs(relative - 1.0) < 0.15) >= 0.8)
    multiple = np.round(relative)
    lost = (multiple >= 2) & (np.abs(relative - multiple) < 0.3)
    missing = int(np.sum(multiple[lost] - 1)) if steady else 0
    places = int(np.sum(lost)) if steady else 0
    return FrameTiming(1.0 / usual_s, steady, missing, places, float(steps_s.max()))
