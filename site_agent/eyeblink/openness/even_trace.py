"""A trace on an even time axis of 30 to 60 samples a second, whatever the camera did."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from site_agent.eyeblink.records import Float64, Int64

LONGEST_PAUSE_S = 5.0
"""A longer pause between two frames is shortened to this: nothing is looked for in it."""


@dataclass(frozen=True, eq=False)
class EvenTrace:
    """Mean EAR in bins of equal length, NaN in empty ones, and the bin of every sample."""

    step_s: float
    ear: Float64
    bin_of_sample: Int64

    def bins(self, duration_s: float) -> int:
        """Return the nearest number of bins to a duration; of two equally near ones the larger.

        Timestamps carry rounding errors: 50 ms are 1.4999999 or 1.5000001 bins of 33.3 ms
        depending on when the clock started, and must be the same number for both.
        """
        return math.floor(duration_s / self.step_s + 0.5 + 1e-6)


def evenly_spaced(timestamps_s: Float64, ear: Float64, longest_bin_s: float) -> EvenTrace:
    """Put samples into bins of one or several frames, at most about `longest_bin_s` long.

    Many frames a second carry more noise each; the mean over a bin brings recordings of 30 and
    of 500 frames a second to the same footing. Slower recordings keep each frame as it is.
    Lost frames and variable frame rates leave empty bins, not shifted ones.
    """
    if len(timestamps_s) < 2:
        return EvenTrace(longest_bin_s, ear.copy(), np.zeros(len(ear), dtype=np.int64))
    steps_s = np.diff(timestamps_s)
    frame_s = float(np.median(steps_s))
    frames_per_bin = max(1, int(longest_bin_s / frame_s + 1e-6))
    step_s = frame_s * frames_per_bin
    time_s = np.concatenate([[0.0], np.cumsum(np.minimum(steps_s, LONGEST_PAUSE_S))])
    position = time_s / step_s
    # Half a frame of tolerance keeps jittering timestamps of a steady camera in separate bins.
    shift = 0.5 / frames_per_bin
    index = np.floor(position + shift).astype(np.int64)
    known = np.isfinite(ear)
    count = np.bincount(index[known], minlength=int(index[-1]) + 1)
    total = np.bincount(index[known], weights=ear[known], minlength=int(index[-1]) + 1)
    binned = np.where(count > 0, total / np.maximum(count, 1), np.nan)
    return EvenTrace(step_s, binned, index)


def percentile_of_known(values: Float64, percentile: float, otherwise: Float64) -> Float64:
    """Return the percentile of the known values of each row of `values`, shape (m, n).

    `otherwise`, shape (m,), stands in where fewer than two are known.
    """
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
