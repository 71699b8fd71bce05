"""Trials that were logged on another clock, put on that of the video; their closures aligned."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import ArrayLike, NDArray

from site_agent.datasets.trials import Trial, TrialType
from site_agent.errors import ConditioningError
from site_agent.eyeblink.conditioning.summary import TrialResult
from site_agent.eyeblink.conditioning.trial_signal import GAP_FACTOR, cut_trial
from site_agent.eyeblink.conditioning.trials import TrialList
from site_agent.eyeblink.records import Float64

_LEAST_SHARE_MATCHED = 0.5
# Largest distance of an onset from the line.
_TOLERANCE_S = 0.1


def place_on_video_clock(trials: Sequence[Trial], cs_onsets_s: ArrayLike) -> TrialList:
    """Find the trials of a list in the CS onsets that the video shows.

    A stimulus program knows the types of the trials, the video when the light went on; their
    clocks have different zeros and run at slightly different speeds. The shift is found that
    brings most trials to an onset, then a straight line through these pairs. Trials with an
    onset take its time, the others (`us_only`, or a light that was hidden) the line's.

    Parameters
    ----------
    cs_onsets_s : float, shape (n,)
        On the video's clock, as from `detect_led_onsets`.

    Raises
    ------
    ConditioningError
        Fewer than half of the trials with a CS, or fewer than two, fit to the onsets.
    """
    seen = np.sort(np.asarray(cs_onsets_s, dtype=np.float64).ravel())
    with_cs = [trial for trial in trials if trial.trial_type is not TrialType.US_ONLY]
    listed = np.array([trial.cs_onset_s for trial in with_cs], dtype=np.float64)
    if len(seen) < 2 or len(listed) < 2:
        raise ConditioningError(
            f"{len(listed)} trials with a CS and {len(seen)} onsets in the video: two of each are "
            "needed to put them on one clock"
        )
    rate, shift = 1.0, _best_shift(listed, seen)
    # The first match is wide, as the clocks' speeds are not known yet.
    for reach_s in (4.0 * _TOLERANCE_S, 2.0 * _TOLERANCE_S, _TOLERANCE_S):
        nearest = _nearest(rate * listed + shift, seen)
        matched = np.abs(seen[nearest] - (rate * listed + shift)) <= reach_s
        if matched.sum() >= 2 and np.ptp(listed[matched]) > 0:
            rate, shift = (
                float(part) for part in np.polyfit(listed[matched], seen[nearest][matched], 1)
            )
    count = int(matched.sum())
    if count < max(2, _LEAST_SHARE_MATCHED * len(listed)):
        raise ConditioningError(
            f"only {count} of {len(listed)} trials with a CS fit to the {len(seen)} onsets in the "
            "video; check that the list belongs to this video and that the light is the CS"
        )
    own = {
        trial.trial: float(seen[index])
        for trial, index, is_matched in zip(with_cs, nearest, matched, strict=True)
        if is_matched
    }
    moved = tuple(_moved(trial, rate, shift, own.get(trial.trial)) for trial in trials)
    remarks = [
        f"{count} of {len(listed)} trials with a CS were found in the video; its clock shows "
        f"{shift:.3f} s at the list's zero and runs {(rate - 1) * 1e6:+.0f} millionths faster"
    ]
    if len(seen) > count:
        remarks.append(f"{len(seen) - count} onsets in the video belong to no trial of the list")
    return TrialList(moved, tuple(remarks))


def _best_shift(listed: Float64, seen: Float64) -> float:
    """The shift that brings most listed onsets near to a seen one."""
    shifts = np.sort((seen[:, None] - listed[None, :]).ravel())
    upper = np.searchsorted(shifts, shifts + 2.0 * _TOLERANCE_S, side="right")
    best = int(np.argmax(upper - np.arange(len(shifts))))
    return float(np.median(shifts[best : upper[best]]))


def _nearest(times_s: Float64, seen: Float64) -> np.ndarray:
    after = np.clip(np.searchsorted(seen, times_s), 1, len(seen) - 1)
    return np.where(times_s - seen[after - 1] <= seen[after] - times_s, after - 1, after)


def _moved(trial: Trial, rate: float, shift: float, cs_onset_s: float | None) -> Trial:
    on_line_s = rate * trial.cs_onset_s + shift
    cs_s = on_line_s if cs_onset_s is None else cs_onset_s
    us_s = rate * trial.us_onset_s + shift
    # The interval between the stimuli stays as it was listed.
    us_s = us_s if trial.trial_type is TrialType.US_ONLY else us_s + (cs_s - on_line_s)
    return replace(trial, cs_onset_s=cs_s, us_onset_s=us_s)


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
