"""Stretches in which the lids are down for longer than in a blink, however slowly they fell.

A dip is judged by how fast the lids fall, a closure by how far they stay down. The open eye is
followed over a minute, so slowly that closures of ten seconds do not pull it down, and shut lids
are those of the session's clear blinks. Glances down and turns of the head narrow the eyes, too,
but seldom by two thirds.
"""

from collections.abc import Iterator
from dataclasses import dataclass, fields
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from site_agent.eyeblink.blinks.extents import SHUT_SHARE, Extent, closing_speed, start_of_ramp
from site_agent.eyeblink.blinks.likelihood import ClearBlinks, closure_probability
from site_agent.eyeblink.openness.sampling import EvenTrace, percentile_of_known
from site_agent.eyeblink.records import Float64, Int64

Cut = Literal["", "begin", "end", "both"]

SMOOTHING_S = 0.1
SHUT_FEC, OPEN_FEC = 0.65, 0.5
LONGEST_BRIDGE_S = 0.5
"""Lids that part for less, and do not open, or are not seen for less, stay in one closure."""
REACH_S = 15.0
"""Lids begin to fall at most this long before they are shut."""
LEVEL_WINDOW_S = 60
LEVEL_PERCENTILES = 75.0, 75.0
"""The open eye: of the samples of a second, and of the seconds around it. Closures may take up most
of the minute."""
LEVEL_RANGE = 0.85, 1.25
"""Limits of the open eye, as shares of the session's."""


@dataclass(frozen=True)
class Closure:
    """A stretch in which the lids are at least half way down for longer than in a blink."""

    extent: Extent
    probability: float
    kept_up_ear: float
    """Median EAR in it."""
    cut: Cut
    """Where the eyes were not seen as the lids fell (begin) or rose (end)."""


@dataclass(frozen=True, eq=False)
class _KnownBins:
    """The bins with a value; FEC runs from the open eye around (0) to shut lids (1)."""

    times_s: Float64
    ear: Float64
    open_ear: Float64
    fec: Float64
    raw_fec: Float64
    samples: Int64

    def part(self, begin: int, end: int) -> "_KnownBins":
        return _KnownBins(*(getattr(self, field.name)[begin:end] for field in fields(self)))


def find_closures(
    trace: EvenTrace, timestamps_s: Float64, clear: ClearBlinks, shortest_s: float
) -> list[Closure]:
    """Find the stretches in which the lids are half way down for longer than `shortest_s`.

    `timestamps_s` (float64, shape (n,)): Of the samples that went into `trace`.
    """
    if not clear.span_ear > 0:
        return []
    bins = _known_bins(trace, timestamps_s, clear)
    closures = []
    for first, last in _stretches(bins):
        begin_s, end_s = bins.times_s[first] - REACH_S, bins.times_s[last] + REACH_S
        begin, end = np.searchsorted(bins.times_s, [begin_s, end_s])
        near = bins.part(int(begin), int(end))
        closure = _measure(near, timestamps_s, first - int(begin), last - int(begin), shortest_s)
        if closure is not None:
            closures.append(closure)
    return closures


def open_level(trace: EvenTrace, session_open_ear: float) -> Float64:
    """Return the EAR of the open eye around each bin, shape (n,)."""
    per_second = max(1, trace.bins(1.0))
    seconds = -(-len(trace.ear) // per_second)
    padding = seconds * per_second - len(trace.ear)
    blocks = np.pad(trace.ear, (0, padding), constant_values=np.nan).reshape(seconds, per_second)
    unknown = np.full(seconds, np.nan)
    levels = percentile_of_known(blocks, LEVEL_PERCENTILES[0], unknown)
    half = LEVEL_WINDOW_S // 2
    padded = np.pad(levels, half, constant_values=np.nan)
    windows = np.lib.stride_tricks.sliding_window_view(padded, 2 * half + 1)
    usual = np.full(seconds, session_open_ear)
    level = percentile_of_known(windows, LEVEL_PERCENTILES[1], usual)
    lowest, highest = LEVEL_RANGE
    level = np.clip(level, lowest * session_open_ear, highest * session_open_ear)
    centres = (np.arange(seconds) + 0.5) * per_second
    return np.interp(np.arange(len(trace.ear)), centres, level)


def _known_bins(trace: EvenTrace, timestamps_s: Float64, clear: ClearBlinks) -> _KnownBins:
    known = np.flatnonzero(np.isfinite(trace.ear))
    width = max(1, trace.bins(SMOOTHING_S) // 2 * 2 - 1)
    weight = np.convolve(np.isfinite(trace.ear).astype(np.float64), np.ones(width), "same")
    total = np.convolve(np.nan_to_num(trace.ear), np.ones(width), "same")
    ear = (total / np.maximum(weight, 1.0))[known]
    open_ear = open_level(trace, clear.open_ear)[known]
    # Shut lids are a share of open ones: a face that comes nearer or turns scales both.
    shut_share = 1.0 - clear.shut_ear / clear.open_ear
    fec = (1.0 - ear / open_ear) / shut_share
    raw_fec = (1.0 - trace.ear[known] / open_ear) / shut_share
    first = np.searchsorted(trace.bin_of_sample, known)
    last = np.searchsorted(trace.bin_of_sample, known, side="right") - 1
    times_s = (timestamps_s[first] + timestamps_s[last]) / 2.0
    return _KnownBins(times_s, ear, open_ear, fec, raw_fec, first.astype(np.int64))


def _stretches(bins: _KnownBins) -> Iterator[tuple[int, int]]:
    """Yield first and last bin (inclusive) of each stretch in which the lids are half way down."""
    down = np.flatnonzero(bins.fec >= SHUT_FEC)
    if len(down) == 0:
        return
    first = last = int(down[0])
    for place in map(int, down[1:]):
        parted = bins.fec[last : place + 1].min() < OPEN_FEC
        if parted or bins.times_s[place] - bins.times_s[last] > LONGEST_BRIDGE_S:
            yield first, last
            first = place
        last = place
    yield first, last


def _measure(
    bins: _KnownBins, timestamps_s: Float64, first: int, last: int, shortest_s: float
) -> Closure | None:
    """Measure a stretch; None where the lids are not shut for longer than `shortest_s`."""
    times_s, fec = bins.times_s, bins.fec
    cut_before = first == 0 or times_s[first] - times_s[first - 1] > LONGEST_BRIDGE_S
    cut_after = last + 1 == len(fec) or times_s[last + 1] - times_s[last] > LONGEST_BRIDGE_S
    from_s = times_s[first] if cut_before else _crossing(times_s, fec, first - 1)
    until_s = times_s[last] if cut_after else _crossing(times_s, fec, last)
    if until_s - from_s <= shortest_s:
        return None
    inside = fec[first : last + 1]
    depth = float(np.median(inside))
    middle_s = (from_s + until_s) / 2.0
    onset_s, offset_s = from_s, until_s
    if not cut_before:
        onset_s = start_of_ramp(
            times_s, fec, bins.raw_fec, shut_s=from_s, depth_fec=depth, latest_s=middle_s
        )
    if not cut_after:  # the same, backwards in time
        offset_s = -start_of_ramp(
            -times_s[::-1],
            fec[::-1],
            bins.raw_fec[::-1],
            shut_s=-until_s,
            depth_fec=depth,
            latest_s=-middle_s,
        )
    shut = first + np.flatnonzero(inside >= SHUT_SHARE * depth)
    half = _around(fec >= 0.5 * depth, first, last)
    lowest = first + int(inside.argmax())
    before = max(0, int(np.searchsorted(times_s, onset_s)) - 1)
    extent = Extent(
        onset_s=float(onset_s),
        peak_s=float(timestamps_s[bins.samples[lowest]]),
        offset_s=float(offset_s),
        peak=int(bins.samples[lowest]),
        depth_ear=float(bins.open_ear[lowest] - bins.ear[lowest]),
        closing_ear_per_s=closing_speed(times_s, bins.ear, lowest, float(times_s[before])),
        half_s=float(times_s[half[-1]] - times_s[half[0]]),
        shut_from_s=float(times_s[shut[0]]),
        shut_until_s=float(times_s[shut[-1]]),
    )
    cuts: dict[tuple[bool, bool], Cut] = {
        (False, False): "",
        (True, False): "begin",
        (False, True): "end",
        (True, True): "both",
    }
    cut = cuts[bool(cut_before), bool(cut_after)]
    kept_up_ear = float(np.median(bins.ear[first : last + 1]))
    return Closure(extent, closure_probability(depth), kept_up_ear, cut)


def _around(down: NDArray[np.bool_], first: int, last: int) -> range:
    """Return the stretch with all that is down directly before and after it."""
    up = np.flatnonzero(~down)
    before, after = up[up < first], up[up > last]
    return range(
        int(before[-1]) + 1 if len(before) else 0, int(after[0]) if len(after) else len(down)
    )


def _crossing(times_s: Float64, fec: Float64, before: int, level: float = SHUT_FEC) -> float:
    """Return when FEC passes a level between a bin and the next, by a line."""
    rise = fec[before + 1] - fec[before]
    share = (level - fec[before]) / rise if rise else 0.0
    share = min(max(float(share), 0.0), 1.0)
    return float(times_s[before] + share * (times_s[before + 1] - times_s[before]))
