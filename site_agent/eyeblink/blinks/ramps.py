"""When lids that fall slowly began to: the beginning of a ramp that is fitted to their closure.

A blink may be timed where it passes a fifth of its depth. Lids that take two seconds pass it half a
second late, and the later the more smoothly they start.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from site_agent.eyeblink.records import Float64

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

    Parameters
    ----------
    times_s, fec, raw_fec : float64, shape (n,)
        Known samples in time order; smoothed to find the ramp, raw to fit it.
    depth_fec : float
        The closure that the lids keep up from then on.
    latest_s : float
        What comes later is not fitted.
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
    # What closed before the lids began to fall is another event.
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
