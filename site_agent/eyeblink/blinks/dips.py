"""Places where the EAR falls faster and deeper than it does by itself.

What tells a blink from a glance down, a turn of the head and landmark jitter (seen on webcam
recordings with annotated blinks): the lids fall within about 0.2 s, below everything that was
there in the last half second and mostly below everything within two seconds, and they start to
reopen at once, though not always to where they were. The depth alone does not tell.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from site_agent.eyeblink.openness.sampling import EvenTrace, percentile_of_known
from site_agent.eyeblink.records import Float64, Int64

CLOSING_S = (0.27, 0.065)
"""The level before a dip is the median over this time before its lowest point."""
SURROUND_S = (2.0, 0.3)
SURROUND_PERCENTILE = 8.0
"""The dip should go below the lower values of this time before and after it; the percentile leaves
room for the other blinks of somebody who blinks often."""
REOPENING_S = 0.15
"""The lids should begin to part within this time."""
REOPENED_S = 0.4
"""A blink's lids have mostly reopened within this time."""
SEPARATION_S = 0.1
"""Lowest points nearer than this belong to one dip."""
ARRIVAL_SHARE = 0.1
"""The lids have arrived where EAR falls on by less than this share of the fall so far."""
NOISE_S = 5.0
"""The noise is measured over this time before and after."""
DROP_SHARE, SURROUND_SHARE, REOPENING_SHARE = 0.5, 0.2, 0.3
"""Weights of the drop, the depth below the surround and the reopening. They add up to 1, so that
the evidence is in units of EAR."""
SUPPORT_SHARE, SUPPORT_RATE_HZ = 0.25, 22.0
"""A neighbouring sample must be down by this share of the drop too, or the dip is a single bad
frame. Slower recordings are exempt, for there a blink may be one sample long."""


@dataclass(frozen=True, eq=False)
class Dips:
    """Lowest points of a trace, in time order, and what speaks for a blink at each.

    Attributes
    ----------
    bins : int64, shape (m,)
    lowest_ear, level_before_ear : float64, shape (m,)
    evidence_ear : float64, shape (m,)
        Weighted depth, in units of EAR.
    reopened_ear : float64, shape (m,)
        EAR that the lids reach again within 0.4 s.
    noise_ear : float64, shape (m,)
        Standard deviation of the noise around the dip.
    """

    bins: Int64
    lowest_ear: Float64
    level_before_ear: Float64
    evidence_ear: Float64
    reopened_ear: Float64
    noise_ear: Float64

    @property
    def drop_ear(self) -> Float64:
        return self.level_before_ear - self.lowest_ear


def find_dips(trace: EvenTrace) -> Dips:
    """Measure every local minimum of `trace`; without support it has no evidence."""
    lowest = _lowest_points(trace)
    low_ear = trace.ear[lowest]
    before = _level_before(trace, lowest)
    surround = percentile_of_known(_surround(trace, lowest), SURROUND_PERCENTILE, before)
    at_once = _window(trace, lowest, trace.step_s, REOPENING_S)
    later = _window(trace, lowest, trace.step_s, REOPENED_S)
    reopening = percentile_of_known(at_once, 100.0, percentile_of_known(later, 50.0, before))
    evidence = (
        DROP_SHARE * (before - low_ear)
        + SURROUND_SHARE * (surround - low_ear)
        + REOPENING_SHARE * (reopening - low_ear)
    )
    supported = _is_supported(trace, lowest, before - low_ear)
    return Dips(
        bins=lowest,
        lowest_ear=low_ear,
        level_before_ear=before,
        evidence_ear=np.where(supported, evidence, 0.0),
        reopened_ear=percentile_of_known(later, 80.0, before),
        noise_ear=_noise(trace)[lowest],
    )


def _level_before(trace: EvenTrace, lowest: Int64) -> Float64:
    """EAR before the lids began to fall; where the face was lost, the last that is known."""
    usual = percentile_of_known(_window(trace, lowest, -2.0, 2.0), 60.0, trace.ear[lowest])
    last_known = percentile_of_known(_window(trace, lowest, -1.0, -trace.step_s), 50.0, usual)
    start_s, end_s = CLOSING_S
    return percentile_of_known(_window(trace, lowest, -start_s, -end_s), 50.0, last_known)


def _is_supported(trace: EvenTrace, lowest: Int64, drop: Float64) -> NDArray[np.bool_]:
    """Say which dips are more than a single bad sample."""
    if trace.step_s * SUPPORT_RATE_HZ > 1.0:
        return np.ones(len(lowest), dtype=np.bool_)
    padded = np.pad(trace.ear, 1, constant_values=np.nan)
    neighbour = np.fmin(padded[lowest], padded[lowest + 2])
    rise = neighbour - trace.ear[lowest]
    return np.isnan(neighbour) | (rise <= (1.0 - SUPPORT_SHARE) * drop)


def _lowest_points(trace: EvenTrace) -> Int64:
    """Bins that no earlier bin within the separation undercuts, and no later one by much.

    "Not by much" is a share of the fall that led there, so that a closure that goes on
    deepening a little is met where the lids arrive, not only at its very lowest point.
    """
    reach = max(1, trace.bins(SEPARATION_S))
    ear = np.where(np.isfinite(trace.ear), trace.ear, np.inf)
    padded = np.pad(ear, reach, constant_values=np.inf)
    windows = np.lib.stride_tricks.sliding_window_view(padded, reach)
    before, after = windows[: len(ear)].min(axis=1), windows[reach + 1 :].min(axis=1)
    back = max(1, trace.bins(CLOSING_S[0]))
    known = np.pad(np.where(np.isfinite(trace.ear), trace.ear, -np.inf), (back, 0))
    known[:back] = -np.inf
    highest = np.lib.stride_tricks.sliding_window_view(known, back)[: len(ear)].max(axis=1)
    fall = np.where(np.isfinite(highest), highest, 0.0) - np.where(np.isfinite(ear), ear, 0.0)
    allowed = ARRIVAL_SHARE * np.maximum(fall, 0.0)
    low = np.isfinite(ear) & (ear < before) & (ear <= after + allowed)
    return np.flatnonzero(low).astype(np.int64)


def _window(trace: EvenTrace, centres: Int64, from_s: float, to_s: float) -> Float64:
    """Values of the bins from `from_s` to `to_s` around each centre, NaN beyond the ends."""
    first, last = trace.bins(from_s), trace.bins(to_s)
    offsets = np.arange(first, max(first, last) + 1)
    index = centres[:, None] + offsets
    inside = (index >= 0) & (index < len(trace.ear))
    return np.where(inside, trace.ear[np.clip(index, 0, len(trace.ear) - 1)], np.nan)


def _surround(trace: EvenTrace, centres: Int64) -> Float64:
    far_s, near_s = SURROUND_S
    return np.concatenate(
        [_window(trace, centres, -far_s, -near_s), _window(trace, centres, near_s, far_s)], axis=1
    )


def _noise(trace: EvenTrace) -> Float64:
    """Standard deviation of the noise by bin, from the median of absolute differences."""
    difference = np.abs(np.diff(trace.ear))
    known = difference[np.isfinite(difference)]
    if len(known) == 0:
        return np.zeros(len(trace.ear))
    to_deviation = 1.4826 / np.sqrt(2.0)
    whole = float(np.median(known)) * to_deviation
    block = max(8, trace.bins(NOISE_S))
    starts = np.arange(0, len(difference), block)
    local = np.array([_median_of_known(difference[at : at + 2 * block]) for at in starts])
    # Where little is known the whole recording stands in; no stretch counts as free of noise.
    deviation = np.maximum(np.nan_to_num(local * to_deviation, nan=whole), 0.7 * whole)
    centres = np.minimum(starts + block, len(trace.ear) - 1)
    noise: Float64 = np.interp(np.arange(len(trace.ear)), centres, deviation)
    return noise


def _median_of_known(values: Float64) -> float:
    known = values[np.isfinite(values)]
    return float(np.median(known)) if len(known) >= 8 else float("nan")
