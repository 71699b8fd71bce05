"""Which eye closed first, and whether both did."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np

from site_agent.eyeblink.records import EyeTrace, Float64

Eyes = Literal["both", "left", "right", "unknown"]

MATCH_S = 0.125
"""Lowest points of the two eyes belong to one blink within this time."""
CLOSING_S = (0.27, 0.065)
LONGEST_CLOSING_S = 0.4
BEFORE_S = 1.0
LEAST_DEPTH_SHARE = 0.35
"""An eye takes part when it falls by this share of the other one's fall."""


@dataclass(frozen=True)
class EyePair:
    """How the two eyes of one blink relate.

    Attributes
    ----------
    eyes : str
        ``both``, ``left``, ``right``; ``unknown`` where the eyes are not known apart.
    lag_ms : float
        When the right eye was half closed minus when the left one was; NaN but for ``both``.
    """

    eyes: Eyes
    lag_ms: float


@dataclass(frozen=True)
class _Fall:
    depth_ear: float
    half_s: float


def compare_eyes(trace: EyeTrace, peak_s: float) -> EyePair:
    """Compare the falls of both eyes around the lowest point of a blink."""
    unknown = EyePair("unknown", float("nan"))
    if np.array_equal(trace.ear_left, trace.ear_right, equal_nan=True):
        return unknown
    left = _fall(trace.timestamps_s, trace.ear_left, peak_s)
    right = _fall(trace.timestamps_s, trace.ear_right, peak_s)
    if left is None or right is None:
        return unknown
    if right.depth_ear < LEAST_DEPTH_SHARE * left.depth_ear:
        return EyePair("left", float("nan"))
    if left.depth_ear < LEAST_DEPTH_SHARE * right.depth_ear:
        return EyePair("right", float("nan"))
    lag_s = right.half_s - left.half_s
    if not abs(lag_s) <= MATCH_S:
        return EyePair("both", float("nan"))
    return EyePair("both", lag_s * 1000.0)


def eyes_of_closure(trace: EyeTrace, onset_s: float, shut_s: tuple[float, float]) -> Eyes:
    """Say which eyes were shut, by how far they were from where they had been before."""
    if np.array_equal(trace.ear_left, trace.ear_right, equal_nan=True):
        return "unknown"
    depths = []
    for ear in (trace.ear_left, trace.ear_right):
        before = _between(trace.timestamps_s, ear, onset_s - BEFORE_S, onset_s)
        shut = _between(trace.timestamps_s, ear, *shut_s)
        if len(before) == 0 or len(shut) == 0:
            return "unknown"
        depths.append(float(np.median(before) - np.median(shut)))
    left, right = depths
    if right < LEAST_DEPTH_SHARE * left:
        return "left"
    return "right" if left < LEAST_DEPTH_SHARE * right else "both"


def _fall(timestamps_s: Float64, ear: Float64, peak_s: float) -> _Fall | None:
    """Measure how far one eye falls, and when it is half down; None where it was not seen."""
    before = _between(timestamps_s, ear, peak_s - CLOSING_S[0], peak_s - CLOSING_S[1])
    first, last = np.searchsorted(timestamps_s, [peak_s - MATCH_S, peak_s + MATCH_S])
    around = ear[first : last + 1]
    if len(before) == 0 or not np.isfinite(around).any():
        return None
    lowest = int(first) + int(np.nanargmin(around))
    level, low = float(np.median(before)), float(ear[lowest])
    half = (level + low) / 2.0
    last_below = lowest
    for index in range(lowest - 1, -1, -1):
        if timestamps_s[index] < timestamps_s[lowest] - LONGEST_CLOSING_S:
            break
        if np.isnan(ear[index]):
            continue
        if ear[index] >= half:
            share = (half - ear[last_below]) / max(float(ear[index] - ear[last_below]), 1e-12)
            step_s = timestamps_s[index] - timestamps_s[last_below]
            return _Fall(level - low, float(timestamps_s[last_below] + share * step_s))
        last_below = index
    return _Fall(max(level - low, 0.0), float("nan"))


def _between(timestamps_s: Float64, values: Float64, start_s: float, end_s: float) -> Float64:
    first, last = np.searchsorted(timestamps_s, [start_s, end_s + 1e-9])
    inside = values[first:last]
    return inside[np.isfinite(inside)]
