"""Frames in which the eyes are seen but cannot be judged: cuts, fast turns, profiles.

Landmarks of the eyes lag behind a face that jumps, and guess where an eye is turned away: the eye
aspect ratio then falls without a blink. Such frames count like frames without a face.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from numpy.typing import NDArray
from scipy.ndimage import median_filter

from site_agent.eyeblink.records import EyeTrace, Float64, Gap, UInt8

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


def without_unjudged(trace: EyeTrace, places: Float64) -> EyeTrace:
    """Take out the frames whose eyes cannot be judged; `gaps` says why.

    Parameters
    ----------
    places : float64, shape (n, 3)
        Middle between the eyes (x, y) and distance of the eyes in px, NaN where not known.
    """
    gaps: UInt8 = trace.gaps.copy()
    seen = gaps == Gap.NONE
    gaps[seen & is_unsure(trace.timestamps_s, trace.confidence, seen)] = Gap.NOT_SURE
    gaps[seen & is_moving(trace.timestamps_s, places)] = Gap.FACE_MOVING
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
    """Return where the landmarks are not to be trusted for longer than a blink lasts."""
    unsure = np.zeros(len(timestamps_s), dtype=np.bool_)
    if seen.sum() < 2:
        return unsure
    frames = 2 * round(SURE_WINDOW_S / 2 / float(np.median(np.diff(timestamps_s)))) + 1
    usual = median_filter(confidence[seen], size=frames, mode="nearest")
    unsure[seen] = usual < LEAST_CONFIDENCE
    return unsure
