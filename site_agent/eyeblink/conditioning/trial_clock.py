"""Trials that were logged on another clock, put on the clock of the video."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
from numpy.typing import ArrayLike

from site_agent.errors import ConditioningError
from site_agent.eyeblink.conditioning.trials import Trial, TrialList, TrialType
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
    trials : sequence of Trial
        On their own clock.
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
