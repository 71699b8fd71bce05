"""What the blinks of a session have in common: rates, sizes, times."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from itertools import pairwise

import numpy as np

from site_agent.eyeblink.blinks.finding import Blink
from site_agent.eyeblink.records import EyeTrace, Float64

BIN_S = 60.0
LEAST_SEEN_S = 10.0
"""A minute in which the eyes were seen for less says nothing about the rate."""


@dataclass(frozen=True)
class Distribution:
    """Count, mean, SD, median and quartiles of a measure; NaN where no blink tells."""

    n: int
    mean: float
    sd: float
    median: float
    lower_quartile: float
    upper_quartile: float


@dataclass(frozen=True)
class RateBin:
    """Blinks of one minute.

    Attributes
    ----------
    start_s, end_s : float
    blinks : int
        With their peak in this time; longer closures are not counted.
    seen_s : float
        How long the eyes were seen.
    blinks_per_minute : float
        Of the time in which they were seen; NaN where that is less than 10 s.
    """

    start_s: float
    end_s: float
    blinks: int
    seen_s: float
    blinks_per_minute: float


@dataclass(frozen=True)
class BlinkStatistics:
    """Statistics of a session's blinks; `measures` by the name of the column in blinks.csv."""

    blinks: int
    closures: int
    complete: int
    partial: int
    seen_s: float
    blinks_per_minute: float
    measures: dict[str, Distribution]
    rate: tuple[RateBin, ...]

    def to_dict(self) -> dict[str, object]:
        """Return plain types; NaN stays NaN."""
        return asdict(self)


MEASURES = (
    "duration_ms",
    "closing_ms",
    "opening_ms",
    "amplitude_fec",
    "peak_velocity_fec_per_s",
)


def blink_statistics(trace: EyeTrace, blinks: Sequence[Blink]) -> BlinkStatistics:
    """Count and describe; closures longer than a blink are counted apart."""
    proper = [blink for blink in blinks if blink.kind == "blink"]
    shares_s = seen_time_s(trace)
    seen_s = float(shares_s.sum())
    measures = {
        name: _distribution([getattr(blink, name) for blink in proper]) for name in MEASURES
    }
    peaks_s = [blink.peak_s for blink in proper]
    between_s = [later - earlier for earlier, later in pairwise(peaks_s)]
    measures["interval_s"] = _distribution(between_s)
    complete = sum(blink.completeness == "complete" for blink in proper)
    return BlinkStatistics(
        blinks=len(proper),
        closures=len(blinks) - len(proper),
        complete=complete,
        partial=len(proper) - complete,
        seen_s=seen_s,
        blinks_per_minute=60.0 * len(proper) / seen_s if seen_s > 0 else math.nan,
        measures=measures,
        rate=_rates(trace, shares_s, proper),
    )


def seen_time_s(trace: EyeTrace) -> Float64:
    """Return for each frame the time it stands for, 0 where the eyes are not seen.

    A frame stands for the time to the next one, at most for twice the usual time: what was lost
    between two frames was not seen.
    """
    times_s = trace.timestamps_s
    if len(times_s) < 2:
        return np.zeros(len(times_s))
    steps_s = np.diff(times_s)
    usual_s = float(np.median(steps_s))
    each_s = np.minimum(np.append(steps_s, usual_s), 2.0 * usual_s)
    return np.where(trace.valid, each_s, 0.0)


def _rates(trace: EyeTrace, shares_s: Float64, blinks: Sequence[Blink]) -> tuple[RateBin, ...]:
    if len(trace.timestamps_s) < 2:
        return ()
    start_s = float(trace.timestamps_s[0])
    end_s = start_s + trace.duration_s
    edges_s = start_s + BIN_S * np.arange(math.ceil(trace.duration_s / BIN_S) + 1)
    seen_s, _ = np.histogram(trace.timestamps_s, edges_s, weights=shares_s)
    counts, _ = np.histogram([blink.peak_s for blink in blinks], edges_s)
    return tuple(
        RateBin(
            float(edges_s[place]),
            min(float(edges_s[place + 1]), end_s),
            int(counts[place]),
            float(seen_s[place]),
            60.0 * int(counts[place]) / float(seen_s[place])
            if seen_s[place] >= LEAST_SEEN_S
            else math.nan,
        )
        for place in range(len(counts))
    )


def _distribution(values: Sequence[float]) -> Distribution:
    known = np.array([value for value in values if math.isfinite(value)], dtype=np.float64)
    if not len(known):
        return Distribution(0, *([math.nan] * 5))
    lower, median, upper = (float(value) for value in np.percentile(known, [25, 50, 75]))
    sd = float(known.std(ddof=1)) if len(known) > 1 else math.nan
    return Distribution(len(known), float(known.mean()), sd, median, lower, upper)
