"""Reading a trace of uneven samples: windows, coverage, local slopes. Times are milliseconds.

Nothing here assumes a grid. Samples are moments; between two neighbours the trace is a straight
line, and where frames were lost or no eye was seen nothing is known.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from site_agent.eyeblink.records import Float64, Int64

GAP_FACTOR = 1.5
"""Neighbours further apart than this many frame intervals have a gap between them."""


@dataclass(frozen=True, eq=False)
class TrialSignal:
    """The valid samples around one trial, on the trial's clock, strictly increasing.

    `frame_ms` is the usual interval between frames around it; NaN where there are no two.
    """

    time_ms: Float64
    fec: Float64
    frame_ms: float

    def until(self, end_ms: float) -> TrialSignal:
        """The samples at or before `end_ms`."""
        count = int(np.searchsorted(self.time_ms, end_ms, side="right"))
        return TrialSignal(self.time_ms[:count], self.fec[:count], self.frame_ms)

    def within(self, start_ms: float, end_ms: float) -> slice:
        """Indices of the samples in ``[start_ms, end_ms)``."""
        first, last = np.searchsorted(self.time_ms, [start_ms, end_ms])
        return slice(int(first), int(last))


def cut_trial(
    timestamps_s: Float64, fec: Float64, reference_s: float, start_ms: float, end_ms: float
) -> TrialSignal:
    """Take the samples from `start_ms` to `end_ms` around a moment of the recording.

    The frame interval is the median around the trial, of all frames: it follows a variable frame
    rate, and neither missing eyes nor some lost frames change it.
    """
    first, last = np.searchsorted(
        timestamps_s, [reference_s + start_ms / 1000.0, reference_s + end_ms / 1000.0]
    )
    around = timestamps_s[max(0, int(first) - 2) : int(last) + 2]
    frame_ms = float(np.median(np.diff(around))) * 1000.0 if len(around) > 1 else float("nan")
    time_ms = (timestamps_s[first:last] - reference_s) * 1000.0
    values = fec[first:last]
    known = np.isfinite(values)
    return TrialSignal(time_ms[known], values[known], frame_ms)


def missing_share(signal: TrialSignal, start_ms: float, end_ms: float) -> float:
    """Return the share of a window that no valid sample speaks for, 0..1.

    Each sample speaks for half a frame interval on both sides, and neighbours within
    `GAP_FACTOR` intervals for all the time between them.
    """
    time_ms = signal.time_ms
    if len(time_ms) == 0 or not np.isfinite(signal.frame_ms):
        return 1.0
    half_ms = signal.frame_ms / 2.0
    gap = np.diff(time_ms) > GAP_FACTOR * signal.frame_ms
    middle = (time_ms[1:] + time_ms[:-1]) / 2.0
    left = np.concatenate([[time_ms[0] - half_ms], np.where(gap, time_ms[1:] - half_ms, middle)])
    right = np.concatenate([np.where(gap, time_ms[:-1] + half_ms, middle), [time_ms[-1] + half_ms]])
    covered = np.maximum(np.minimum(right, end_ms) - np.maximum(left, start_ms), 0.0).sum()
    return float(min(max(1.0 - covered / (end_ms - start_ms), 0.0), 1.0))


def mean_between(signal: TrialSignal, start_ms: float, end_ms: float) -> float:
    """Return the time-weighted mean FEC of a window.

    The integral of the straight lines between samples over the window's length, so that a window
    of a few milliseconds has a mean at 30 frames a second as well; before the first and after
    the last sample the trace is taken as constant. NaN without samples.
    """
    if len(signal.time_ms) == 0:
        return float("nan")
    inside = signal.time_ms[(signal.time_ms > start_ms) & (signal.time_ms < end_ms)]
    knots = np.concatenate([[start_ms], inside, [end_ms]])
    values = np.interp(knots, signal.time_ms, signal.fec)
    area = float((np.diff(knots) * (values[1:] + values[:-1]) / 2.0).sum())
    return area / (end_ms - start_ms)


def local_slopes(signal: TrialSignal, width_ms: float) -> Float64:
    """Return the velocity in FEC per second at each sample, shape (n,).

    Slope of the least-squares line through the samples within half of `width_ms` on both sides,
    but at least through the sample and its two neighbours; NaN where fewer than two samples are
    near enough.
    """
    gathered, known, offset_ms = _neighbours(signal, width_ms)
    count = known.sum(axis=1)
    mean_t = (offset_ms * known).sum(axis=1) / np.maximum(count, 1)
    mean_x = (gathered * known).sum(axis=1) / np.maximum(count, 1)
    dt = (offset_ms - mean_t[:, None]) * known
    spread = (dt**2).sum(axis=1)
    slope = (dt * (gathered - mean_x[:, None])).sum(axis=1) / np.where(spread > 0, spread, 1.0)
    return np.where((count >= 2) & (spread > 0), slope * 1000.0, np.nan)


def smoothed(signal: TrialSignal, width_ms: float) -> Float64:
    """Return FEC smoothed by local parabolas (Savitzky-Golay for uneven samples), shape (n,).

    Where fewer than five samples lie within the width, the sample itself: at low frame rates
    there is nothing to average that would not flatten a peak.
    """
    gathered, known, offset_ms = _neighbours(signal, width_ms)
    result = signal.fec.copy()
    enough = known.sum(axis=1) >= 5
    if not enough.any():
        return result
    t = offset_ms[enough] / width_ms
    weight = known[enough].astype(np.float64)
    basis = np.stack([np.ones_like(t), t, t**2], axis=-1)
    normal = np.einsum("ni,nij,nik->njk", weight, basis, basis)
    right = np.einsum("ni,nij,ni->nj", weight, basis, gathered[enough])
    solvable = np.linalg.cond(normal) < 1e10
    fitted = result[enough]
    fitted[solvable] = np.linalg.solve(normal[solvable], right[solvable][..., None])[:, 0, 0]
    result[enough] = fitted
    return result


def peak_between(
    signal: TrialSignal, start_ms: float, end_ms: float, width_ms: float
) -> tuple[float, float]:
    """Return time and FEC of the highest point in a window, NaN twice without samples there.

    Of the smoothed trace; the vertex of the parabola through the highest sample and its
    neighbours, which at 30 frames a second lies up to half a frame away from the sample.
    """
    window = signal.within(start_ms, np.nextafter(end_ms, np.inf))
    if window.start >= window.stop:
        return float("nan"), float("nan")
    level = smoothed(signal, width_ms)
    index = window.start + int(np.argmax(level[window]))
    time_ms, height = float(signal.time_ms[index]), float(level[index])
    if 0 < index < len(level) - 1:
        t = signal.time_ms[index - 1 : index + 2] - time_ms
        near = (t[1] - t[0] <= 2 * GAP_FACTOR * signal.frame_ms) and (
            t[2] - t[1] <= 2 * GAP_FACTOR * signal.frame_ms
        )
        a, b, _ = _parabola(t, level[index - 1 : index + 2])
        if near and a < 0:
            shift_ms = min(max(-b / (2 * a), float(t[0]) / 2), float(t[2]) / 2)
            if start_ms <= time_ms + shift_ms <= end_ms:
                return time_ms + shift_ms, height + (a * shift_ms + b) * shift_ms
    return time_ms, height


def runs_of(condition: NDArray[np.bool_], least: int) -> list[tuple[int, int]]:
    """Return the half-open index ranges of at least `least` True values in a row."""
    padded = np.concatenate([[False], condition, [False]]).astype(np.int8)
    edges = np.diff(padded)
    starts, ends = np.flatnonzero(edges == 1), np.flatnonzero(edges == -1)
    return [
        (int(start), int(end))
        for start, end in zip(starts, ends, strict=True)
        if end - start >= least
    ]


def _parabola(t: Float64, x: Float64) -> tuple[float, float, float]:
    """Coefficients of ``a t^2 + b t + c`` through three points, the middle one at t = 0."""
    left, right = (x[0] - x[1]) / t[0], (x[2] - x[1]) / t[2]
    a = float((right - left) / (t[2] - t[0]))
    return a, float(left - a * t[0]), float(x[1])


def _neighbours(signal: TrialSignal, width_ms: float) -> tuple[Float64, NDArray[np.bool_], Float64]:
    """Samples near each sample: values, which of them count, and their time offsets in ms."""
    time_ms, n = signal.time_ms, len(signal.time_ms)
    first = np.searchsorted(time_ms, time_ms - width_ms / 2.0)
    last = np.searchsorted(time_ms, time_ms + width_ms / 2.0, side="right")
    own = np.arange(n)
    first, last = np.minimum(first, own - 1), np.maximum(last, own + 2)
    index: Int64 = first[:, None] + np.arange(int((last - first).max()) if n else 0)
    inside = (index >= 0) & (index < n) & (index < last[:, None])
    index = np.clip(index, 0, max(n - 1, 0))
    offset_ms = time_ms[index] - time_ms[:, None]
    # Across a gap nothing is known of the movement.
    reach_ms = max(width_ms / 2.0, 2 * GAP_FACTOR * signal.frame_ms)
    known = inside & (np.abs(offset_ms) <= reach_ms)
    return signal.fec[index], known, offset_ms
