"""The beginning and the end of a blink, and the speed of the falling lids.

Where lids fall slowly, the beginning is that of a ramp that is fitted to their closure.
"""

from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from site_agent.eyeblink.records import EyeTrace, Float64

BASE_S = 1.5
"""The lids start from the lower values of this time before they are shut."""
LEAST_BEFORE_S = 0.5
AFTER_OTHERS_S = 0.4
SHORTEST_S = 0.06
RISE_REACH = 4.5
"""A smooth ramp takes a sixth of its time from 20 to 50 %; half of it lies within this many."""
LENGTHS = np.geomspace(1.5, 7.0, 24)
SHIFTS = np.linspace(-0.15, 0.15, 13)


def start_of_ramp(
    times_s: Float64,
    fec: Float64,
    raw_fec: Float64,
    *,
    shut_s: float,
    depth_fec: float,
    latest_s: float,
) -> float:
    """Return when the closure began to rise to where the lids were shut at `shut_s`.

    Straight and half-cosine ramps of many lengths are fitted by least squares, each
    with a level before and a height of its own.

    `times_s`, `fec`, `raw_fec` (float64, shape (n,)): Known samples in time order; smoothed to find
    the ramp, raw to fit it. `depth_fec`: The closure that the lids keep up from then on.
    `latest_s`: Later samples are not fitted.
    """
    before = times_s <= shut_s
    recent = fec[before & (times_s > shut_s - BASE_S)]
    base = float(np.percentile(recent, 10.0)) if len(recent) else 0.0
    half = (base + depth_fec) / 2.0
    half_s = _last_below(times_s, fec, times_s <= min(shut_s + BASE_S, latest_s), half, shut_s)
    low_s = _last_below(
        times_s, fec, times_s <= half_s, 0.8 * base + 0.2 * depth_fec, float(times_s[0])
    )
    rise_s = max(half_s - low_s, SHORTEST_S / 3.0)
    reach_s = RISE_REACH * rise_s
    # A closure before the lids began to fall is another event.
    other = np.flatnonzero((times_s < low_s) & (fec > 0.7 * base + 0.3 * depth_fec))
    earliest_s = half_s - reach_s - LEAST_BEFORE_S
    if len(other):
        earliest_s = max(earliest_s, min(float(times_s[other[-1]]) + AFTER_OTHERS_S, low_s))
    fitted = (times_s >= earliest_s) & (times_s <= min(half_s + reach_s, latest_s))
    times, values = times_s[fitted], raw_fec[fitted]
    if len(times) < 4:
        return half_s - rise_s
    lengths, shifts = np.meshgrid(np.maximum(LENGTHS * rise_s, SHORTEST_S), SHIFTS)
    starts = half_s + (shifts * lengths - lengths / 2.0).ravel()
    share = np.clip((times - starts[:, None]) / lengths.ravel()[:, None], 0.0, 1.0)
    ramps = (share, 0.5 - 0.5 * np.cos(np.pi * share))
    left = np.sum((values - values.mean()) ** 2) - np.array(
        [_explained(ramp, values) for ramp in ramps]
    )
    # Where noise leaves the shape open, the beginnings are averaged by their likelihood.
    noise = max(float(left.min()) / max(len(values) - 4, 1), 1e-9)
    likelihood = np.exp(-(left - left.min()) / (2.0 * noise)).sum(axis=0)
    return float(np.sum(likelihood * starts) / np.sum(likelihood))


def _explained(ramps: Float64, values: Float64) -> Float64:
    """Return how much of the sum of squares each ramp, shape (k, n), accounts for; 0 if falling."""
    centred = ramps - ramps.mean(axis=1, keepdims=True)
    product = np.maximum(centred @ (values - values.mean()), 0.0)
    squares = np.sum(centred**2, axis=1)
    return np.where(squares > 1e-9, product**2 / np.maximum(squares, 1e-9), 0.0)


def _last_below(
    times_s: Float64, fec: Float64, among: NDArray[np.bool_], level: float, otherwise_s: float
) -> float:
    """Return the time of the last sample below a level, half a sample late, as the crossing is."""
    low = np.flatnonzero(among & (fec < level))
    if not len(low):
        return otherwise_s
    following = min(int(low[-1]) + 1, len(times_s) - 1)
    return float(times_s[low[-1]] + times_s[following]) / 2.0


LONGEST_CLOSING_S = 0.4
"""The beginning of a blink is looked for this far back."""
REOPENING_S = 0.5
"""How far the eye opens again is measured over this time after the lowest point."""
LONGEST_CLOSURE_S = 10.0
"""The end of a blink is looked for this far ahead."""
SHUT_SHARE = 0.8
"""Lids are shut from this share of their way down on, as in PERCLOS."""


SMOOTHING_S = 0.02
"""Running mean over at most this time (single frames of slow cameras stay as they are). It is
centred: onsets of fast recordings may come out early by up to half of it."""
EDGE_SHARE = 0.2
"""A blink begins and ends where this share of its depth is passed."""


@dataclass(frozen=True)
class Extent:
    """Times (s) of one blink or closure, its sample of least EAR, its depth and closing speed."""

    onset_s: float
    peak_s: float
    offset_s: float
    peak: int
    depth_ear: float
    closing_ear_per_s: float
    half_s: float
    """Time for which the lids are at least half way down."""
    shut_from_s: float
    """The lids are shut, at least 80 % of the way down, from here to `shut_until_s`."""
    shut_until_s: float


def smoothed(timestamps_s: Float64, ear: Float64) -> Float64:
    """Return the centred running mean over known samples; NaN stays NaN."""
    if len(ear) < 3:
        return ear
    width = int(SMOOTHING_S / float(np.median(np.diff(timestamps_s))))
    width -= 1 - width % 2  # odd, so that nothing shifts
    if width < 3:
        return ear
    known = np.isfinite(ear)
    kernel = np.ones(width)
    total = np.convolve(np.where(known, ear, 0.0), kernel, mode="same")
    count = np.convolve(known.astype(np.float64), kernel, mode="same")
    return np.where(known, total / np.maximum(count, 1.0), np.nan)


def measure_extent(
    timestamps_s: Float64, ear: Float64, lowest: int, level_before_ear: float
) -> Extent:
    """Measure the blink with its lowest sample at `lowest`.

    `level_before_ear`: EAR before the lids began to fall.
    """
    depth_ear = max(level_before_ear - float(ear[lowest]), 1e-6)
    edge_ear = level_before_ear - EDGE_SHARE * depth_ear
    onset_s, _ = _crossing(timestamps_s, ear, lowest, edge_ear, within_s=LONGEST_CLOSING_S, step=-1)
    offset_s = _offset(timestamps_s, ear, lowest, level_before_ear)
    return extent_between(timestamps_s, ear, lowest, level_before_ear, (onset_s, offset_s))


def extent_between(
    timestamps_s: Float64,
    ear: Float64,
    lowest: int,
    level_before_ear: float,
    edges_s: tuple[float, float],
) -> Extent:
    """Measure the blink with its lowest sample at `lowest` between its onset and offset."""
    (onset_s, offset_s), peak_s = edges_s, float(timestamps_s[lowest])
    depth_ear = max(level_before_ear - float(ear[lowest]), 1e-6)

    def down(share: float) -> tuple[float, float]:
        level = level_before_ear - share * depth_ear
        return (
            _crossing(timestamps_s, ear, lowest, level, within_s=peak_s - onset_s, step=-1)[0],
            _crossing(timestamps_s, ear, lowest, level, within_s=offset_s - peak_s, step=1)[0],
        )

    half, shut = down(0.5), down(SHUT_SHARE)
    return Extent(
        onset_s=onset_s,
        peak_s=peak_s,
        offset_s=offset_s,
        peak=lowest,
        depth_ear=depth_ear,
        closing_ear_per_s=closing_speed(timestamps_s, ear, lowest, onset_s),
        half_s=half[1] - half[0],
        shut_from_s=shut[0],
        shut_until_s=shut[1],
    )


def _offset(timestamps_s: Float64, ear: Float64, lowest: int, level_before_ear: float) -> float:
    """Return the time at which the eye is as open again as it gets.

    Often people look down as they blink and the eye stays narrower: then the end is measured
    against the level that it reaches. An eye that does not open by 30 % stays closed until it
    has opened by half.
    """
    low_ear = float(ear[lowest])
    depth_ear = level_before_ear - low_ear
    soon = np.searchsorted(timestamps_s, timestamps_s[lowest] + REOPENING_S, side="right")
    known = ear[lowest:soon][np.isfinite(ear[lowest:soon])]
    reached = float(np.percentile(known, 80.0)) if len(known) else low_ear
    if reached - low_ear >= 0.3 * depth_ear:
        target = min(level_before_ear, reached)
        edge = low_ear + (1.0 - EDGE_SHARE) * (target - low_ear)
        return _crossing(timestamps_s, ear, lowest, edge, within_s=REOPENING_S, step=1)[0]
    half = low_ear + 0.5 * depth_ear
    return _crossing(timestamps_s, ear, lowest, half, within_s=LONGEST_CLOSURE_S, step=1)[0]


def _crossing(
    timestamps_s: Float64, ear: Float64, start: int, level: float, *, within_s: float, step: int
) -> tuple[float, bool]:
    """Go from a sample to where EAR has risen to a level, by a line, and say whether it has.

    Where the eyes are lost first, or it does not happen in time: the last known sample.
    """
    last, index = start, start + step
    while 0 <= index < len(ear) and abs(timestamps_s[index] - timestamps_s[start]) <= within_s:
        if ear[index] >= level:
            share = (level - ear[last]) / max(float(ear[index] - ear[last]), 1e-12)
            way_s = float(timestamps_s[index] - timestamps_s[last])
            return float(timestamps_s[last]) + min(max(float(share), 0.0), 1.0) * way_s, True
        last = last if np.isnan(ear[index]) else index
        index += step
    return float(timestamps_s[last]), False


def closing_speed(timestamps_s: Float64, ear: Float64, lowest: int, onset_s: float) -> float:
    """Return the steepest fall of EAR per second between onset and lowest point."""
    first = max(0, int(np.searchsorted(timestamps_s, onset_s)) - 1)
    span = slice(first, lowest + 1)
    known = np.isfinite(ear[span])
    times, values = timestamps_s[span][known], ear[span][known]
    if len(times) < 2:
        return float("nan")
    return max(0.0, float(np.max(-np.diff(values) / np.diff(times))))


Eyes = Literal["both", "left", "right", "unknown"]

MATCH_S = 0.125
"""Lowest points of the two eyes belong to one blink within this time."""
CLOSING_S = (0.27, 0.065)
BEFORE_S = 1.0
LEAST_DEPTH_SHARE = 0.35
"""An eye takes part when it falls by this share of the other one's fall."""


def compare_eyes(trace: EyeTrace, peak_s: float) -> tuple[Eyes, float]:
    """Return which eyes take part in a blink, and the lag of the right one in milliseconds.

    The lag is from when the left eye was half closed to when the right one was; NaN where not
    known.
    """
    unknown: tuple[Eyes, float] = ("unknown", float("nan"))
    if np.array_equal(trace.ear_left, trace.ear_right, equal_nan=True):
        return unknown
    left = _fall(trace.timestamps_s, trace.ear_left, peak_s)
    right = _fall(trace.timestamps_s, trace.ear_right, peak_s)
    if left is None or right is None:
        return unknown
    if right[0] < LEAST_DEPTH_SHARE * left[0]:
        return "left", float("nan")
    if left[0] < LEAST_DEPTH_SHARE * right[0]:
        return "right", float("nan")
    lag_s = right[1] - left[1]
    return "both", lag_s * 1000.0 if abs(lag_s) <= MATCH_S else float("nan")


def eyes_of_closure(trace: EyeTrace, onset_s: float, shut_s: tuple[float, float]) -> Eyes:
    """Tell which eyes were shut, by their change from before."""
    if np.array_equal(trace.ear_left, trace.ear_right, equal_nan=True):
        return "unknown"
    depths = []
    for ear in (trace.ear_left, trace.ear_right):
        before = _known_between(trace.timestamps_s, ear, onset_s - BEFORE_S, onset_s)
        shut = _known_between(trace.timestamps_s, ear, *shut_s)
        if len(before) == 0 or len(shut) == 0:
            return "unknown"
        depths.append(float(np.median(before) - np.median(shut)))
    left, right = depths
    if right < LEAST_DEPTH_SHARE * left:
        return "left"
    return "right" if left < LEAST_DEPTH_SHARE * right else "both"


def _fall(timestamps_s: Float64, ear: Float64, peak_s: float) -> tuple[float, float] | None:
    """Return how far one eye falls, and when it is half down; None where it was not seen."""
    before = _known_between(timestamps_s, ear, peak_s - CLOSING_S[0], peak_s - CLOSING_S[1])
    first, last = np.searchsorted(timestamps_s, [peak_s - MATCH_S, peak_s + MATCH_S])
    around = ear[first : last + 1]
    if len(before) == 0 or not np.isfinite(around).any():
        return None
    lowest = int(first) + int(np.nanargmin(around))
    level, low = float(np.median(before)), float(ear[lowest])
    half = (level + low) / 2.0
    half_s, passed = _crossing(timestamps_s, ear, lowest, half, within_s=LONGEST_CLOSING_S, step=-1)
    return (level - low, half_s) if passed else (max(level - low, 0.0), float("nan"))


def _known_between(timestamps_s: Float64, values: Float64, start_s: float, end_s: float) -> Float64:
    first, last = np.searchsorted(timestamps_s, [start_s, end_s + 1e-9])
    inside = values[first:last]
    return inside[np.isfinite(inside)]
