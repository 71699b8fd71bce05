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

from site_agent.eyeblink.openness.even_trace import EvenTrace
from site_agent.eyeblink.records import Float64, Int64


@dataclass(frozen=True)
class DipSettings:
    """Windows (ms) and shares of the evidence for a blink.

    Attributes
    ----------
    closing_ms : tuple of float
        The level before the dip is the median over this time before its lowest point.
    surround_ms : tuple of float
        The dip should go below the lower values of this time before and after it.
    surround_percentile : float
        Percentile of the surround that counts as its lower values; it leaves room for the
        other blinks of somebody who blinks often.
    reopening_ms : float
        The lids should begin to part within this time.
    separation_ms : float
        Lowest points nearer than this belong to one dip.
    arrival_share : float
        The lids have arrived where EAR falls on by less than this share of the fall so far.
    noise_ms : float
        The noise is measured over this time before and after.
    drop_share, surround_share, reopening_share : float
        How much the drop, the depth below the surround and the reopening count; they add up
        to 1, so that the evidence is in units of EAR.
    support_share : float
        A neighbouring sample must be down by this share of the drop too, or the dip is a single
        bad frame. Not asked of recordings below `support_rate_hz`, where a blink may be one
        sample long.
    support_rate_hz : float
    """

    closing_ms: tuple[float, float] = (270.0, 65.0)
    surround_ms: tuple[float, float] = (2000.0, 300.0)
    surround_percentile: float = 8.0
    reopening_ms: float = 150.0
    separation_ms: float = 100.0
    arrival_share: float = 0.1
    noise_ms: float = 5000.0
    drop_share: float = 0.5
    surround_share: float = 0.2
    reopening_share: float = 0.3
    support_share: float = 0.25
    support_rate_hz: float = 22.0


@dataclass(frozen=True, eq=False)
class Dips:
    """Lowest points of a trace, in time order, and what speaks for a blink at each.

    Attributes
    ----------
    bins : int64, shape (m,)
    lowest_ear, level_before_ear : float64, shape (m,)
    evidence_ear : float64, shape (m,)
        Weighted depth, in units of EAR.
    noise_ear : float64, shape (m,)
        Standard deviation of the noise around the dip.
    """

    bins: Int64
    lowest_ear: Float64
    level_before_ear: Float64
    evidence_ear: Float64
    noise_ear: Float64


def find_dips(trace: EvenTrace, settings: DipSettings) -> Dips:
    """Measure every local minimum of `trace`; without support it has no evidence."""
    lowest = _lowest_points(trace, settings)
    low_ear = trace.ear[lowest]
    before = _level_before(trace, lowest, settings)
    surround = _percentile(_surround(trace, lowest, settings), settings.surround_percentile, before)
    at_once = _window(trace, lowest, trace.step_s, settings.reopening_ms / 1000.0)
    later = _window(trace, lowest, trace.step_s, 0.4)
    reopened = _percentile(at_once, 100.0, _percentile(later, 50.0, before))
    evidence = (
        settings.drop_share * (before - low_ear)
        + settings.surround_share * (surround - low_ear)
        + settings.reopening_share * (reopened - low_ear)
    )
    supported = _is_supported(trace, lowest, before - low_ear, settings)
    noise = _noise(trace, settings)[lowest]
    return Dips(lowest, low_ear, before, np.where(supported, evidence, 0.0), noise)


def _level_before(trace: EvenTrace, lowest: Int64, settings: DipSettings) -> Float64:
    """EAR before the lids began to fall; where the face was lost, the last that is known."""
    usual = _percentile(_window(trace, lowest, -2.0, 2.0), 60.0, trace.ear[lowest])
    last_known = _percentile(_window(trace, lowest, -1.0, -trace.step_s), 50.0, usual)
    start_s, end_s = (ms / 1000.0 for ms in settings.closing_ms)
    return _percentile(_window(trace, lowest, -start_s, -end_s), 50.0, last_known)


def _is_supported(
    trace: EvenTrace, lowest: Int64, drop: Float64, settings: DipSettings
) -> NDArray[np.bool_]:
    """Say which dips are more than a single bad sample."""
    if trace.step_s * settings.support_rate_hz > 1.0:
        return np.ones(len(lowest), dtype=np.bool_)
    padded = np.pad(trace.ear, 1, constant_values=np.nan)
    neighbour = np.fmin(padded[lowest], padded[lowest + 2])
    rise = neighbour - trace.ear[lowest]
    return np.isnan(neighbour) | (rise <= (1.0 - settings.support_share) * drop)


def _lowest_points(trace: EvenTrace, settings: DipSettings) -> Int64:
    """Bins that no earlier bin within the separation undercuts, and no later one by much.

    "Not by much" is a share of the fall that led there, so that a closure that goes on
    deepening a little is met where the lids arrive, not only at its very lowest point.
    """
    reach = max(1, trace.bins(settings.separation_ms / 1000.0))
    ear = np.where(np.isfinite(trace.ear), trace.ear, np.inf)
    padded = np.pad(ear, reach, constant_values=np.inf)
    windows = np.lib.stride_tricks.sliding_window_view(padded, reach)
    before, after = windows[: len(ear)].min(axis=1), windows[reach + 1 :].min(axis=1)
    back = max(1, trace.bins(settings.closing_ms[0] / 1000.0))
    known = np.pad(np.where(np.isfinite(trace.ear), trace.ear, -np.inf), (back, 0))
    known[:back] = -np.inf
    highest = np.lib.stride_tricks.sliding_window_view(known, back)[: len(ear)].max(axis=1)
    fall = np.where(np.isfinite(highest), highest, 0.0) - np.where(np.isfinite(ear), ear, 0.0)
    allowed = settings.arrival_share * np.maximum(fall, 0.0)
    low = np.isfinite(ear) & (ear < before) & (ear <= after + allowed)
    return np.flatnonzero(low).astype(np.int64)


def _window(trace: EvenTrace, centres: Int64, from_s: float, to_s: float) -> Float64:
    """Values of the bins from `from_s` to `to_s` around each centre, NaN beyond the ends."""
    first, last = trace.bins(from_s), trace.bins(to_s)
    offsets = np.arange(first, max(first, last) + 1)
    index = centres[:, None] + offsets
    inside = (index >= 0) & (index < len(trace.ear))
    return np.where(inside, trace.ear[np.clip(index, 0, len(trace.ear) - 1)], np.nan)


def _surround(trace: EvenTrace, centres: Int64, settings: DipSettings) -> Float64:
    far_s, near_s = (ms / 1000.0 for ms in settings.surround_ms)
    return np.concatenate(
        [_window(trace, centres, -far_s, -near_s), _window(trace, centres, near_s, far_s)], axis=1
    )


def _percentile(values: Float64, percentile: float, otherwise: Float64) -> Float64:
    """Percentile of the known values of each row; `otherwise` where fewer than two are known."""
    if values.shape[0] == 0:
        return otherwise
    ordered = np.sort(values, axis=1)  # NaN last
    count = np.isfinite(ordered).sum(axis=1)
    position = np.maximum(count - 1, 0) * (percentile / 100.0)
    low = np.floor(position).astype(np.int64)
    high = np.minimum(low + 1, np.maximum(count - 1, 0))
    rows = np.arange(len(ordered))
    low_value, high_value = ordered[rows, low], ordered[rows, high]
    value = low_value + (position - low) * (high_value - low_value)
    return np.where(count >= 2, value, otherwise)


def _noise(trace: EvenTrace, settings: DipSettings) -> Float64:
    """Standard deviation of the noise by bin, from the median of absolute differences."""
    difference = np.abs(np.diff(trace.ear))
    known = difference[np.isfinite(difference)]
    if len(known) == 0:
        return np.zeros(len(trace.ear))
    to_deviation = 1.4826 / np.sqrt(2.0)
    whole = float(np.median(known)) * to_deviation
    block = max(8, trace.bins(settings.noise_ms / 1000.0))
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
