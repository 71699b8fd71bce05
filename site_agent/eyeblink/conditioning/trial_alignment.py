"""Closure of all trials on one time axis, for pictures and averages."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

from site_agent.eyeblink.conditioning.trial_results import TrialResult
from site_agent.eyeblink.conditioning.trial_signal import GAP_FACTOR, cut_trial
from site_agent.eyeblink.conditioning.trials import TrialType
from site_agent.eyeblink.records import Float64


@dataclass(frozen=True, eq=False)
class AlignedTrials:
    """FEC around the stimuli.

    Attributes
    ----------
    time_ms : float64, shape (k,)
        After the CS (the US in `us_only` trials).
    fec : float64, shape (trials, k)
        Less each trial's baseline; NaN where nothing is known.
    valid : bool, shape (trials,)
        Rejected trials are there too, for a picture; no average takes them.
    """

    time_ms: Float64
    fec: Float64
    trials: tuple[str, ...]
    trial_types: tuple[TrialType, ...]
    valid: NDArray[np.bool_]

    def mean_and_error(self, trial_type: TrialType) -> tuple[Float64, Float64, int]:
        """Mean and standard error over the valid trials of a type, and how many these are.

        NaN where no trial, for the error fewer than two trials, are known.
        """
        wanted = self.valid & np.array([found is trial_type for found in self.trial_types])
        rows = self.fec[wanted]
        known = np.isfinite(rows)
        count = known.sum(axis=0)
        filled = np.where(known, rows, 0.0)
        mean = np.where(count > 0, filled.sum(axis=0) / np.maximum(count, 1), np.nan)
        squares = (np.where(known, rows - mean, 0.0) ** 2).sum(axis=0)
        error = np.sqrt(squares / np.maximum(count - 1, 1) / np.maximum(count, 1))
        return mean, np.where(count > 1, error, np.nan), int(wanted.sum())


def align_trials(
    timestamps_s: ArrayLike,
    fec: ArrayLike,
    results: Sequence[TrialResult],
    *,
    window_ms: tuple[float, float] = (-500.0, 1000.0),
    step_ms: float = 5.0,
) -> AlignedTrials:
    """Read every trial at the same times; straight lines between frames, NaN within gaps.

    The window lies around each trial's time zero.
    """
    times_s, level = (np.asarray(values, dtype=np.float64) for values in (timestamps_s, fec))
    grid_ms = np.arange(window_ms[0], window_ms[1] + step_ms / 2.0, step_ms)
    rows = np.full((len(results), len(grid_ms)), np.nan)
    for row, result in zip(rows, results, strict=True):
        measures = result.measures
        is_us_only = measures.trial_type is TrialType.US_ONLY
        zero_s = measures.us_onset_s if is_us_only else measures.cs_onset_s
        signal = cut_trial(times_s, level, zero_s, window_ms[0] - 200.0, window_ms[1] + 200.0)
        if len(signal.time_ms) < 2:
            continue
        baseline = measures.baseline if np.isfinite(measures.baseline) else 0.0
        after = np.clip(np.searchsorted(signal.time_ms, grid_ms), 1, len(signal.time_ms) - 1)
        width_ms = signal.time_ms[after] - signal.time_ms[after - 1]
        known = width_ms <= 2 * GAP_FACTOR * signal.frame_ms
        known &= (grid_ms >= signal.time_ms[0]) & (grid_ms <= signal.time_ms[-1])
        values = np.interp(grid_ms, signal.time_ms, signal.fec) - baseline
        row[:] = np.where(known, values, np.nan)
    return AlignedTrials(
        grid_ms,
        rows,
        tuple(result.measures.trial for result in results),
        tuple(result.measures.trial_type for result in results),
        np.array([result.valid for result in results], dtype=bool),
    )
