"""Fraction eyelid closure from the eye aspect ratio, its calibration, and frames without judgement.

Eyes are seen but cannot be judged at cuts, in fast turns and in profiles.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Literal

import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from site_agent.errors import InvalidInputError
from site_agent.eyeblink.records import EyeTrace, Float64, Gap, UInt8, mean_of_valid_eyes
from site_agent.settings import Settings

Bools = NDArray[np.bool_]

MOVE_WINDOW_S = 0.066
LARGEST_MOVE = 0.35
"""How far the eyes may move within the window, in distances between the eyes. A head that turns or
nods fast makes 0.1 to 0.2."""
LARGEST_GROWTH = 0.25
"""Largest change of the logarithm of the distance between the eyes within the window."""
MARGIN_S = 0.05
LONGEST_STEP_S = 0.3
"""Frames farther apart are not compared."""
SURE_WINDOW_S = 0.7
"""Confidence is judged by its median over this time: a blink lowers it for shorter."""
LEAST_CONFIDENCE = 0.35


def without_unjudged(trace: EyeTrace) -> EyeTrace:
    """Remove the frames of a video in which the eyes cannot be judged; `gaps` says why."""
    gaps: UInt8 = trace.gaps.copy()
    seen = gaps == Gap.NONE
    gaps[seen & is_unsure(trace.timestamps_s, trace.confidence, seen)] = Gap.NOT_SURE
    if trace.face is not None and trace.face.eyes_places is not None:
        gaps[seen & is_moving(trace.timestamps_s, trace.face.eyes_places)] = Gap.FACE_MOVING
    if np.array_equal(gaps, trace.gaps):
        return trace
    kept = gaps == Gap.NONE
    left, right, ear = (
        np.where(kept, values, np.nan) for values in (trace.ear_left, trace.ear_right, trace.ear)
    )
    return replace(trace, ear_left=left, ear_right=right, ear=ear, gaps=gaps)


def is_moving(timestamps_s: Float64, places: Float64) -> Bools:
    """Return where the eyes jump: from one place, or one distance, to another at once."""
    count = len(timestamps_s)
    moving = np.zeros(count, dtype=np.bool_)
    if count < 2:
        return moving
    first = np.arange(count - 1)
    last = np.searchsorted(timestamps_s, timestamps_s[:-1] + MOVE_WINDOW_S, side="right") - 1
    last = np.maximum(last, first + 1)
    elapsed_s = timestamps_s[last] - timestamps_s[first]
    allowed = np.maximum(1.0, elapsed_s / MOVE_WINDOW_S)
    # Landmarks that fall together have no distance.
    with np.errstate(divide="ignore", invalid="ignore"):
        distance = np.minimum(places[first, 2], places[last, 2])
        move = np.hypot(*(places[last, :2] - places[first, :2]).T) / distance
        growth = np.abs(np.log(places[last, 2] / places[first, 2]))
        jumped = (move > LARGEST_MOVE * allowed) | (growth > LARGEST_GROWTH * allowed)
    for index in np.flatnonzero(jumped & (elapsed_s <= LONGEST_STEP_S)):
        begin_s = timestamps_s[first[index]] - MARGIN_S
        end_s = timestamps_s[last[index]] + MARGIN_S
        moving[np.searchsorted(timestamps_s, begin_s) : np.searchsorted(timestamps_s, end_s)] = True
    return moving


def is_unsure(timestamps_s: Float64, confidence: Float64, seen: Bools) -> Bools:
    """Return the samples with landmarks that cannot be trusted for longer than a blink lasts."""
    # Help pages and settings are read where the extra [vision] is absent.
    from scipy.ndimage import median_filter

    unsure = np.zeros(len(timestamps_s), dtype=np.bool_)
    if seen.sum() < 2:
        return unsure
    frames = 2 * round(SURE_WINDOW_S / 2 / float(np.median(np.diff(timestamps_s)))) + 1
    usual = median_filter(confidence[seen], size=frames, mode="nearest")
    unsure[seen] = usual < LEAST_CONFIDENCE
    return unsure


POSE_WINDOW_S = 0.5
"""Poses are the median over this time: heads turn more slowly than landmarks tremble."""
YAW_DEG, PITCH_DEG = 20.0, 12.0
"""Angles are counted in these."""
POSE_SHRINKAGE = 1.5
"""Least squares draw each coefficient towards 0 as much as this number of independent frames of
angle 1 would; so a head that keeps still changes nothing."""
LID_SHARE = 0.12
"""Frames in which the logarithm of EAR lies lower than fitted by this show falling lids."""
FEWEST_POSES, POSES_PER_S, POSE_ROUNDS = 50, 5.0, 8


def at_usual_pose(trace: EyeTrace) -> EyeTrace:
    """Return the trace as seen with the head in its usual pose.

    A head that turns foreshortens one eye and widens the other, so that EAR changes by up to half
    while the lids rest. The logarithm of the open eye's EAR is a quadratic function of yaw and
    pitch, fitted to each eye of the recording by least squares without the frames in which the
    lids are lower. Open and shut lids change by the same factor.
    """
    if trace.pose_deg is None or len(trace.timestamps_s) < FEWEST_POSES:
        return trace
    angles = [_steady(trace, degrees) for degrees in trace.pose_deg.T]
    columns = [
        (degrees - np.nanmedian(degrees)) / unit
        for degrees, unit in zip(angles, (YAW_DEG, PITCH_DEG), strict=True)
        if np.isfinite(degrees).any()
    ]
    if not columns:
        return trace
    turn = np.nan_to_num(np.column_stack(columns))
    terms = np.column_stack([turn, turn**2])
    left, right = (ear / _gain(trace, ear, terms) for ear in (trace.ear_left, trace.ear_right))
    ear = mean_of_valid_eyes(left, right)
    if not np.isfinite(ear).any():
        ear = trace.ear / _gain(trace, trace.ear, terms)
    return replace(trace, ear_left=left, ear_right=right, ear=ear)


def _steady(trace: EyeTrace, degrees: Float64) -> Float64:
    """Return the median of angles over `POSE_WINDOW_S`; frames without one keep the last."""
    from scipy.ndimage import median_filter

    known = np.isfinite(degrees)
    if not known.any():
        return degrees
    frames = 2 * round(POSE_WINDOW_S / 2.0 * trace.frame_rate_hz) + 1
    steady = median_filter(degrees[known], size=frames, mode="nearest")
    at = np.maximum(np.cumsum(known) - 1, 0)
    usable: Float64 = np.clip(steady, *np.percentile(steady, [1.0, 99.0]))[at]
    return usable


def _gain(trace: EyeTrace, ear: Float64, terms: Float64) -> Float64:
    """Return the open eye's EAR as a multiple of that in the usual pose, shape (n,)."""
    known = np.flatnonzero(np.isfinite(ear) & (ear > 0))
    if len(known) < FEWEST_POSES:
        return np.ones(len(ear))
    height = np.log(ear[known])
    design = np.column_stack([np.ones(len(known)), terms[known]])
    # Neighbouring frames say the same.
    weight = min(1.0, POSES_PER_S / trace.frame_rate_hz)
    prior = np.diag([0.0, *[POSE_SHRINKAGE] * terms.shape[1]])
    is_open = ear[known] > np.percentile(ear[known], 50.0) * 0.7
    values = np.zeros(design.shape[1])
    for _ in range(POSE_ROUNDS):
        chosen = design[is_open]
        values = np.linalg.solve(
            weight * chosen.T @ chosen + prior, weight * chosen.T @ height[is_open]
        )
        left = height - design @ values
        noise = 1.4826 * float(np.median(np.abs(left[is_open])))
        is_open = left > -max(LID_SHARE, 2.5 * noise)
    gain: Float64 = np.exp(terms @ values[1:])
    return gain


OPEN_PERCENTILE = 98.0
"""Percentile of EAR that bounds the open range from above."""
SMALLEST_SPAN = 0.05
"""A session is flagged as not calibrated if its open and closed level differ by less."""
PUFF_REFLEX_S = 0.3
"""An air puff has closed the eye within this time."""


def closure_paper_pct(ear: Float64) -> Float64:
    """Return the closure in percent as the paper normalises it over a trial.

    ``100 - (EAR - MIN) * (100 / MAX)``. It does not reach 0 for an open eye (27 % where EAR runs
    from 0.08 to 0.30); it is kept for comparison with earlier results.
    """
    if not np.isfinite(ear).any():
        return np.full_like(ear, np.nan)
    lowest, highest = float(np.nanmin(ear)), float(np.nanmax(ear))
    if highest <= 0:
        return np.full_like(ear, np.nan)
    return 100.0 - (ear - lowest) * (100.0 / highest)


class CalibrationSettings(Settings, error=InvalidInputError):
    """Settings of finding the open and the closed eye of a session."""

    closed_from: Literal["percentile", "air-puffs", "model", "as-given"] = "percentile"
    """percentile: the percentile of EAR that closed_percentile says. model: where the landmark
    model shows closed eyes, by its evaluation ('poolctl evaluate --save'); for persons that hardly
    blink, but squint, laugh or roll their eyes, and wear no glasses. air-puffs: the median of the
    lowest EAR in the 0.3 s after each air puff (US) of the trials, which closes the eye by reflex;
    for sessions without full blinks. Trials of the CS alone do not count, even where they say when
    a puff would have come. as-given: a trace of closures keeps its scale, 0 open and 1 shut."""
    closed_percentile: float = Field(default=0.2, ge=0, lt=50)
    """Percentile of EAR taken as the closed eye. People blink 10-20 times a minute with the lids
    together for some 50 ms, hence about 1 % of the time."""
    at_usual_pose: bool = True
    """If true, EAR is first freed of the turns and nods of the head, by how that of the open eye
    changes with yaw and pitch in this recording."""


@dataclass(frozen=True)
class Calibration:
    """EAR of the open and of the closed eye."""

    open_ear: float
    closed_ear: float
    reliable: bool
    """False where the two are so close that no eye closure can have been seen."""
    model_share: float | None = None
    """EAR of closed eyes as a share of that of open ones, by the landmark model's evaluation."""

    @property
    def span(self) -> float:
        return self.open_ear - self.closed_ear


def calibrate(
    ear: Float64,
    settings: CalibrationSettings = CalibrationSettings(),
    closed_ear: float | None = None,
) -> Calibration:
    """Find the open and the closed level of one session's EAR, shape (n,), NaN where unknown.

    The open level is the median of the samples above the middle between the extremes: the state of
    the eye most of the time, free of the noise that an upper percentile would add to it.

    `closed_ear`: the closed level where it is known otherwise (see `closed_ear_at_puffs`).
    """
    known = ear[np.isfinite(ear)]
    if len(known) == 0:
        return Calibration(float("nan"), float("nan"), False)
    low, high = np.percentile(known, [settings.closed_percentile, OPEN_PERCENTILE])
    closed = float(low) if closed_ear is None else closed_ear
    upper = known[known >= (closed + high) / 2.0]
    open_ear = float(np.median(upper)) if len(upper) else float(high)
    span = open_ear - closed
    return Calibration(open_ear, closed, bool(span >= SMALLEST_SPAN))


def closed_ear_at_puffs(
    timestamps_s: Float64, ear: Float64, puffs_s: Sequence[float]
) -> float | None:
    """Return the median of the lowest EAR after each air puff; None where no eye was seen."""
    lowest = []
    for puff_s in puffs_s:
        first, last = np.searchsorted(timestamps_s, [puff_s, puff_s + PUFF_REFLEX_S])
        after = ear[first:last]
        if np.isfinite(after).any():
            lowest.append(float(np.nanmin(after)))
    return float(np.median(lowest)) if lowest else None


def fraction_eyelid_closure(ear: Float64, calibration: Calibration) -> Float64:
    """Return FEC = (open - EAR) / (open - closed): 0 open, 1 closed; NaN without a span."""
    if not calibration.span > 0:
        return np.full_like(ear, np.nan)
    return (calibration.open_ear - ear) / calibration.span
