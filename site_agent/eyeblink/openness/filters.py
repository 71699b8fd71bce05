"""Smoothing of eye aspect ratios, on request; the raw values are always kept beside it."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Literal

import numpy as np

from site_agent.errors import BlinkAnalysisError
from site_agent.eyeblink.records import EyeTrace, Float64, mean_of_valid_eyes

LEAST_SAMPLES = 5


@dataclass(frozen=True)
class FilterSettings:
    """How eye aspect ratios are smoothed before anything is measured of them.

    Attributes
    ----------
    filter : str
        ``none``, or ``savgol``: local parabolas (Savitzky and Golay) over `filter_ms`. It looks
        ahead as far as back and so puts onsets earlier than a filter that cannot.
    filter_ms : float
        Window; where it holds fewer than five frames (below about 40 frames a second for
        120 ms) nothing is changed, for a parabola through fewer only bends.
    """

    filter: Literal["none", "savgol"] = "none"
    filter_ms: float = 120.0

    def check(self) -> None:
        """Raise an error for values out of range.

        Raises
        ------
        BlinkAnalysisError
        """
        if self.filter not in {"none", "savgol"}:
            raise BlinkAnalysisError(f"filter is {self.filter!r}, expected none or savgol")
        if not 0 < self.filter_ms <= 1000:
            raise BlinkAnalysisError(f"filter_ms is {self.filter_ms:g}, expected 0 to 1000 ms")


def filtered_trace(trace: EyeTrace, settings: FilterSettings) -> EyeTrace:
    """Return the trace with smoothed eyes; the trace itself without a filter."""
    if settings.filter == "none" or len(trace.timestamps_s) < LEAST_SAMPLES:
        return trace
    window_s = settings.filter_ms / 1000.0
    left = local_parabolas(trace.timestamps_s, trace.ear_left, window_s)
    right = local_parabolas(trace.timestamps_s, trace.ear_right, window_s)
    ear = mean_of_valid_eyes(left, right)
    if not np.isfinite(ear).any():  # a trace from a file that has only their mean
        ear = local_parabolas(trace.timestamps_s, trace.ear, window_s)
    return replace(trace, ear_left=left, ear_right=right, ear=ear)


def local_parabolas(timestamps_s: Float64, values: Float64, window_s: float) -> Float64:
    """Fit a parabola around each sample, by the samples' own times, and take it at the sample.

    On an even grid this is the filter of Savitzky and Golay (1964) of second order. NaN stays
    NaN, and does not spread: lost frames and uneven rates only leave fewer samples to fit.

    Parameters
    ----------
    timestamps_s, values : float64, shape (n,)
    """
    half_s = window_s / 2.0 + 1e-9
    known = np.isfinite(values)
    filled = np.where(known, values, 0.0)
    ends = np.searchsorted(timestamps_s, timestamps_s + half_s, side="right")
    reach = int((ends - np.arange(len(values))).max()) - 1
    moments = np.zeros((5, len(values)))  # sums of 1, t, t^2, t^3, t^4
    products = np.zeros((3, len(values)))  # sums of x, x t, x t^2
    for shift in range(-reach, reach + 1):
        here = slice(max(0, -shift), len(values) - max(0, shift))
        there = slice(max(0, shift), len(values) - max(0, -shift))
        offset_s = timestamps_s[there] - timestamps_s[here]
        # In units of half the window, for sums of like size.
        t = offset_s / half_s
        weight = (known[there] & (np.abs(offset_s) <= half_s)).astype(np.float64)
        for power in range(5):
            moments[power, here] += weight * t**power
        for power in range(3):
            products[power, here] += weight * filled[there] * t**power
    enough = known & (moments[0] >= LEAST_SAMPLES)
    result = values.copy()
    result[enough] = _constant_term(moments[:, enough], products[:, enough])
    return result


def _constant_term(moments: Float64, products: Float64) -> Float64:
    """Solve the normal equations of a parabola for its value at t = 0, by Cramer's rule."""
    s0, s1, s2, s3, s4 = moments
    b0, b1, b2 = products
    determinant = s0 * (s2 * s4 - s3**2) - s1 * (s1 * s4 - s2 * s3) + s2 * (s1 * s3 - s2**2)
    numerator = b0 * (s2 * s4 - s3**2) - s1 * (b1 * s4 - b2 * s3) + s2 * (b1 * s3 - b2 * s2)
    result: Float64 = numerator / determinant
    return result
