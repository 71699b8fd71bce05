"""Rates, sizes and times of a session's blinks."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from site_agent.eyeblink.blinks.finding import Blink
from site_agent.eyeblink.records import EyeTrace, Float64

BIN_S = 60.0
SHUT_FEC = 0.8
LONGEST_BRIDGED_S = 0.1
LEAST_SEEN_S = 10.0
"""A minute in which the eyes were seen for less says nothing about the rate."""


@dataclass(frozen=True)
class Distribution:
    """Count, mean, SD, median and quartiles of a measure; NaN where no blink shows it."""

    n: int
    mean: float
    sd: float
    median: float
    lower_quartile: float
    upper_quartile: float


@dataclass(frozen=True)
class RateBin:
    """Blinks of one minute."""

    start_s: float
    end_s: float
    blinks: int
    seen_s: float
    blinks_per_minute: float
    perclos_pct: float


@dataclass(frozen=True)
class BlinkStatistics:
    """Statistics of a session's blinks."""

    blinks: int
    closures: int
    closures_s: float
    """Duration of all closures."""
    complete: int
    partial: int
    seen_s: float
    blinks_per_minute: float
    perclos_pct: float
    """Share of the time seen in which the lids were at least 80 % shut (PERCLOS, P80), blinks
    included."""
    measures: dict[str, Distribution]
    """By the name of the column in blinks.csv."""
    rate: tuple[RateBin, ...]


MEASURES = ("duration_ms", "closing_ms", "opening_ms", "amplitude_fec", "peak_velocity_fec_per_s")


def blink_statistics(trace: EyeTrace, blinks: Sequence[Blink], fec: Float64) -> BlinkStatistics:
    """Count and describe; closures longer than a blink are counted apart.

    `fec` (float64, shape (n,)): Closure in each frame of the trace, NaN where not known.
    """
    proper = [blink for blink in blinks if blink.kind == "blink"]
    shares_s = seen_time_s(trace)
    seen_s = float(shares_s.sum())
    shut_s = np.where(fec >= SHUT_FEC, shares_s, 0.0)
    is_known = seen_s > 0 and np.isfinite(fec).any()
    measures = {
        name: _distribution([getattr(blink, name) for blink in proper]) for name in MEASURES
    }
    peaks_s = np.array([blink.peak_s for blink in proper])
    between_s = np.diff(peaks_s)
    # Blinks may hide where the eyes were not seen.
    at = np.searchsorted(trace.timestamps_s, peaks_s, side="right") - 1
    hidden_s = between_s - np.diff(np.cumsum(shares_s)[at])
    measures["interval_s"] = _distribution(between_s[hidden_s <= LONGEST_BRIDGED_S])
    complete = sum(blink.completeness == "complete" for blink in proper)
    return BlinkStatistics(
        blinks=len(proper),
        closures=len(blinks) - len(proper),
        closures_s=sum(blink.duration_ms for blink in blinks if blink.kind == "closure") / 1000.0,
        complete=complete,
        partial=len(proper) - complete,
        seen_s=seen_s,
        blinks_per_minute=60.0 * len(proper) / seen_s if seen_s > 0 else math.nan,
        perclos_pct=100.0 * float(shut_s.sum()) / seen_s if is_known else math.nan,
        measures=measures,
        rate=_rates(trace, shut_s, shares_s, proper),
    )


def seen_time_s(trace: EyeTrace) -> Float64:
    """Return for each frame the time it stands for, 0 where the eyes are not seen.

    Blinks are found across gaps of a frame or two, which therefore count as seen.
    """
    shares_s = np.zeros(len(trace.timestamps_s))
    if len(trace.timestamps_s) > 1 and trace.valid.any():
        usual_s = 1.0 / trace.frame_rate_hz
        steps_s = np.append(np.diff(trace.timestamps_s[trace.valid]), usual_s)
        bridged = steps_s <= max(2.0 * usual_s, LONGEST_BRIDGED_S)
        shares_s[trace.valid] = np.where(bridged, steps_s, usual_s)
    return shares_s


def _rates(
    trace: EyeTrace, shut_s: Float64, shares_s: Float64, blinks: Sequence[Blink]
) -> tuple[RateBin, ...]:
    if len(trace.timestamps_s) < 2:
        return ()
    start_s = float(trace.timestamps_s[0])
    end_s = start_s + trace.duration_s
    edges_s = start_s + BIN_S * np.arange(math.ceil(trace.duration_s / BIN_S) + 1)
    seen_s, _ = np.histogram(trace.timestamps_s, edges_s, weights=shares_s)
    shut_in_bin_s, _ = np.histogram(trace.timestamps_s, edges_s, weights=shut_s)
    counts, _ = np.histogram([blink.peak_s for blink in blinks], edges_s)
    return tuple(
        RateBin(
            float(edges_s[place]),
            min(float(edges_s[place + 1]), end_s),
            int(counts[place]),
            float(seen_s[place]),
            _ratio(60.0 * counts[place], seen_s[place]),
            _ratio(100.0 * shut_in_bin_s[place], seen_s[place]),
        )
        for place in range(len(counts))
    )


def _ratio(amount: float, seen_s: float) -> float:
    return float(amount / seen_s) if seen_s >= LEAST_SEEN_S else math.nan


def _distribution(values: Sequence[float] | Float64) -> Distribution:
    known = np.array([value for value in values if math.isfinite(value)], dtype=np.float64)
    if not len(known):
        return Distribution(0, *([math.nan] * 5))
    lower, median, upper = (float(value) for value in np.percentile(known, [25, 50, 75]))
    sd = float(known.std(ddof=1)) if len(known) > 1 else math.nan
    return Distribution(len(known), float(known.mean()), sd, median, lower, upper)
