"""Where a blink begins and ends, and how fast the lids fall."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from site_agent.eyeblink.records import Float64


@dataclass(frozen=True)
class ExtentSettings:
    """How beginning and end are measured.

    Attributes
    ----------
    smoothing_ms : float
        Running mean over at most this time (single frames of slow cameras stay as they are).
        It is centred: onsets of fast recordings may come out early by up to half of it.
    edge_share : float
        A blink begins and ends where this share of its depth is passed.
    longest_closing_ms : float
        The beginning is looked for this far back.
    reopening_ms : float
        How far the eye opens again is measured over this time after the lowest point.
    longest_closure_ms : float
        The end is looked for this far ahead.
    """

    smoothing_ms: float = 20.0
    edge_share: float = 0.2
    longest_closing_ms: float = 400.0
    reopening_ms: float = 500.0
    longest_closure_ms: float = 10_000.0


@dataclass(frozen=True)
class Extent:
    """Times (s) of one blink, its sample of least EAR, its depth and its closing speed."""

    onset_s: float
    peak_s: float
    offset_s: float
    peak: int
    depth_ear: float
    closing_ear_per_s: float


def smoothed(timestamps_s: Float64, ear: Float64, window_s: float) -> Float64:
    """Return the centred running mean over known samples; NaN stays NaN."""
    if len(ear) < 3:
        return ear
    width = int(window_s / float(np.median(np.diff(timestamps_s))))
    width -= 1 - width % 2  # odd, so that nothing shifts
    if width < 3:
        return ear
    known = np.isfinite(ear)
    kernel = np.ones(width)
    total = np.convolve(np.where(known, ear, 0.0), kernel, mode="same")
    count = np.convolve(known.astype(np.float64), kernel, mode="same")
    return np.where(known, total / np.maximum(count, 1.0), np.nan)


def measure_extent(
    timestamps_s: Float64,
    ear: Float64,
    lowest: int,
    level_before_ear: float,
    settings: ExtentSettings,
) -> Extent:
    """Measure the blink whose lowest sample is `lowest`.

    Parameters
    ----------
    timestamps_s, ear : float64, shape (n,)
    level_before_ear : float
        EAR before the lids began to fall.
    """
    low_ear = float(ear[lowest])
    depth_ear = max(level_before_ear - low_ear, 1e-6)
    edge_ear = level_before_ear - settings.edge_share * depth_ear
    onset_s = _crossing_back(timestamps_s, ear, lowest, edge_ear, settings.longest_closing_ms)
    offset_s = _offset(timestamps_s, ear, lowest, level_before_ear, settings)
    return Extent(
        onset_s=onset_s,
        peak_s=float(timestamps_s[lowest]),
        offset_s=offset_s,
        peak=lowest,
        depth_ear=depth_ear,
        closing_ear_per_s=_closing_speed(timestamps_s, ear, lowest, onset_s),
    )


def _offset(
    timestamps_s: Float64,
    ear: Float64,
    lowest: int,
    level_before_ear: float,
    settings: ExtentSettings,
) -> float:
    """Return the time at which the eye is as open again as it gets.

    Often people look down as they blink and the eye stays narrower: then the end is measured
    against the level that it reaches. An eye that does not open by 30 % stays closed until it
    has opened by half.
    """
    low_ear = float(ear[lowest])
    depth_ear = level_before_ear - low_ear
    soon = _ahead(timestamps_s, lowest, settings.reopening_ms)
    known = ear[lowest:soon][np.isfinite(ear[lowest:soon])]
    reached = float(np.percentile(known, 80.0)) if len(known) else low_ear
    if reached - low_ear >= 0.3 * depth_ear:
        target = min(level_before_ear, reached)
        edge = low_ear + (1.0 - settings.edge_share) * (target - low_ear)
        return _crossing_ahead(timestamps_s, ear, lowest, edge, settings.reopening_ms)
    half = low_ear + 0.5 * depth_ear
    return _crossing_ahead(timestamps_s, ear, lowest, half, settings.longest_closure_ms)


def _ahead(timestamps_s: Float64, start: int, duration_ms: float) -> int:
    """Return the end (exclusive) of the samples within `duration_ms` after `start`."""
    limit_s = timestamps_s[start] + duration_ms / 1000.0
    return int(np.searchsorted(timestamps_s, limit_s, side="right"))


def _crossing_ahead(
    timestamps_s: Float64, ear: Float64, start: int, level: float, longest_ms: float
) -> float:
    """First time after `start` at which EAR rises to `level`, between samples by a line.

    Where the eyes are lost first, or it does not happen in time: the last known sample.
    """
    last = start
    for index in range(start + 1, _ahead(timestamps_s, start, longest_ms)):
        if np.isnan(ear[index]):
            continue
        if ear[index] >= level:
            return _between(timestamps_s, ear, last, index, level)
        last = index
    return float(timestamps_s[last])


def _crossing_back(
    timestamps_s: Float64, ear: Float64, start: int, level: float, longest_ms: float
) -> float:
    """Last time before `start` at which EAR was at `level`, between samples by a line."""
    limit_s = timestamps_s[start] - longest_ms / 1000.0
    last = start
    for index in range(start - 1, -1, -1):
        if timestamps_s[index] < limit_s:
            break
        if np.isnan(ear[index]):
            continue
        if ear[index] >= level:
            return _between(timestamps_s, ear, last, index, level)
        last = index
    return float(timestamps_s[last])


def _between(timestamps_s: Float64, ear: Float64, below: int, above: int, level: float) -> float:
    share = (level - ear[below]) / max(ear[above] - ear[below], 1e-12)
    share = min(max(float(share), 0.0), 1.0)
    return float(timestamps_s[below] + share * (timestamps_s[above] - timestamps_s[below]))


def _closing_speed(timestamps_s: Float64, ear: Float64, lowest: int, onset_s: float) -> float:
    """Return the steepest fall of EAR per second between onset and lowest point."""
    first = max(0, int(np.searchsorted(timestamps_s, onset_s)) - 1)
    span = slice(first, lowest + 1)
    known = np.isfinite(ear[span])
    times, values = timestamps_s[span][known], ear[span][known]
    if len(times) < 2:
        return float("nan")
    return max(0.0, float(np.max(-np.diff(values) / np.diff(times))))
