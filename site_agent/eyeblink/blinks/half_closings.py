"""The probability that lids which stop half way make no blink.

Squints, laughs and rolled eyes bring the lids half way down, and so do partial blinks. No single
measure separates them. Half-closings are about half as deep as blinks, last longer, reopen as fast
as they fall where blinks reopen more slowly, and come again at once. So each dip is compared with
the person's own blinks near closure, as far as there are some, and with a half-closing. The number
of half-closings of the session is estimated from all of its dips (expectation maximisation; A. P.
Dempster, N. M. Laird and D. B. Rubin 1977): the same doubtful dip is a squint among many squints
and a blink among many partial blinks. The lids of one person fall, and stay down, for about the
same time in all blinks, deep or not, while half-closings differ from one another: where the trace
is clear enough to show these times, a slower dip is a half-closing among partial blinks, too. The
constants were chosen on drawn sessions.
"""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from site_agent.eyeblink.blinks.extents import Extent
from site_agent.eyeblink.blinks.likelihood import Dips, logistic, stands_out, weighted_median
from site_agent.eyeblink.openness.signal import Calibration
from site_agent.eyeblink.records import Float64, Int64

SHUT_SHARE = 0.42
"""Dips below this share of the open EAR show shut lids. Landmarks that follow the lids put the
closed eye at 0.05 to 0.26 of the open one, models that keep them half open at 0.6 (seven webcam
recordings with two models, four with another)."""
NEAR_CLOSURE, NEAR_SCALE = 0.8, 0.025
"""FEC at which a dip comes near closure with a probability of 0.5, and the steepness of that."""
HALF_FEC = (0.53, 0.13)
"""Mean and SD of the depth of half-closings."""
PARTIAL_PER_FEC = 1.3
"""Partial blinks are of every depth: this share of them lies in each 1.0 of FEC."""
BLINK_WIDTH_S, HALF_WIDTH_S, WIDTH_SD = 0.14, 0.35, 0.35
"""For how long the lids are at least half of their way down in a blink of a usual person and in a
half-closing, and the SD of the logarithm."""
CLOSING_S, OPENING_S, SKEW_SD = 0.045, 0.085, 0.75
"""For how long the lids of a usual person fall and rise in a blink, and the SD of the logarithm of
the ratio. In half-closings the two are equal."""


@dataclass(frozen=True)
class Times:
    """A time in blinks of a usual person and in half-closings, and the SD of its logarithm."""

    blink_s: float
    half_s: float
    blink_sd: float
    half_sd: float


FALLING = Times(0.05, 0.072, 0.4, 0.42)
"""From 20 to 80 % of the way down."""
STAYING = Times(0.1, 0.17, 0.38, 0.7)
"""Lower than 80 % of the way."""
TIMES_OF_BLINKS = 0.6
"""Both times of a blink say this for a blink on average, which is taken off again."""
CLEAR_NOISE = 0.075
"""Both times count half at this noise, as a share of the dip's depth, and hardly at twice it."""
USUAL_TIMES = 20.0
"""The usual time of half-closings counts as much as this number of dips."""
MOST_EVIDENCE = 2.0
"""One measure of shape says no more for or against a half-closing (logarithm of the odds)."""
MOST_FOR_BLINK = 1.0
"""A time that is no longer than a blink's says no more for a blink."""
SOON_S, SOON_SCALE_S = 0.9, 0.08
SOON_EVIDENCE, ALONE_EVIDENCE = 1.4, -0.35
"""Evidence for a half-closing where another dip is nearer than about `SOON_S`, and where not."""
USUAL_BLINKS, USUAL_WIDTHS = 5.0, 10.0
"""The usual person, and the usual half-closing, count as much as this number of dips."""
USUAL_HALF, USUAL_PARTIAL = 1.0, 2.0
"""Half-closings and partial blinks, in numbers of dips, that count before any is seen."""
ROUNDS = 25


def half_closings(
    dips: Dips, calibration: Calibration, extent_of: Callable[[int], Extent], frame_s: float
) -> Float64:
    """Return the probability that each dip is a half-closing, shape (m,); 0 for ripples.

    `extent_of`: measures the dip of a number. `frame_s`: times are known to about one frame, which
    is added to each, so that shape says less the slower the camera is.
    """
    probability = np.zeros(len(dips.bins))
    clear = np.flatnonzero(stands_out(dips, 0.2 * calibration.span) > 1.0)
    if not len(clear):
        return probability
    depth_fec = _depth_fec(dips, clear, calibration)
    extents = [extent_of(int(dip)) for dip in clear]
    width = _log([extent.half_s for extent in extents], frame_s)
    skew = _log([extent.shut_from_s - extent.onset_s for extent in extents], frame_s)
    skew -= _log([extent.offset_s - extent.shut_until_s for extent in extents], frame_s)
    # The added frame takes the same share off the spread of a logarithm as it adds to the time.
    width_sd = WIDTH_SD * BLINK_WIDTH_S / (BLINK_WIDTH_S + frame_s)
    skew_sd = SKEW_SD * CLOSING_S / (CLOSING_S + frame_s)
    usual_width = float(np.log(BLINK_WIDTH_S + frame_s))
    usual_skew = float(np.log((CLOSING_S + frame_s) / (OPENING_S + frame_s)))
    soon = logistic((SOON_S - _spacing_s(extents)) / SOON_SCALE_S)
    constant = ALONE_EVIDENCE + (SOON_EVIDENCE - ALONE_EVIDENCE) * soon
    constant += _log_density(depth_fec, *HALF_FEC) - np.log(PARTIAL_PER_FEC)
    falling_s = [extent.shut_from_s - extent.onset_s for extent in extents]
    staying_s = [extent.shut_until_s - extent.shut_from_s for extent in extents]
    noise = dips.noise_ear[clear] / np.maximum(dips.drop_ear[clear], 1e-9)
    sure = 1.0 / (1.0 + (noise / CLEAR_NOISE) ** 8)
    near = logistic((depth_fec - NEAR_CLOSURE) / NEAR_SCALE)
    first_width = float(np.log(HALF_WIDTH_S + frame_s))
    half, share, half_width = np.zeros(len(clear)), 0.5, first_width
    for _ in range(ROUNDS):
        blinks = near * (1.0 - half)
        blink_width, blink_skew = _own(width, blinks, usual_width), _own(skew, blinks, usual_skew)
        evidence = constant + _longer(width, blink_width, half_width, width_sd)
        evidence += _longer(skew, blink_skew, 0.0, skew_sd)
        slower = _slower(falling_s, FALLING, blinks, half, frame_s)
        slower += _slower(staying_s, STAYING, blinks, half, frame_s)
        evidence += sure * (TIMES_OF_BLINKS + slower)
        half = (1.0 - near) * logistic(evidence + np.log(share / (1.0 - share)))
        share = (float(half.sum()) + USUAL_HALF) / ((1.0 - near).sum() + USUAL_HALF + USUAL_PARTIAL)
        total = USUAL_WIDTHS * first_width + (half * width).sum()
        half_width = float(total / (USUAL_WIDTHS + half.sum()))
    probability[clear] = half
    return probability


def _depth_fec(dips: Dips, clear: Int64, calibration: Calibration) -> Float64:
    """Return how deep dips are; two of them show the shut level where blinks are rare."""
    open_ear, shut_ear = calibration.open_ear, calibration.closed_ear
    deepest = np.sort(dips.lowest_ear[clear])[:2]
    if len(deepest) == 2 and deepest[1] < SHUT_SHARE * open_ear:
        shut_ear = min(shut_ear, float(deepest[1]))
    depth: Float64 = (open_ear - dips.lowest_ear[clear]) / max(open_ear - shut_ear, 1e-9)
    return depth


def _log(times_s: list[float], frame_s: float) -> Float64:
    return np.log(np.array(times_s) + frame_s)


def _spacing_s(extents: list[Extent]) -> Float64:
    """Return the time from each dip to the nearest one that is no part of it."""
    peaks_s = np.array([extent.peak_s for extent in extents])
    apart_s = np.abs(peaks_s - peaks_s[:, None])
    begins_s = np.array([[extent.onset_s - 0.02] for extent in extents])
    ends_s = np.array([[extent.offset_s + 0.02] for extent in extents])
    other = (peaks_s < begins_s) | (peaks_s > ends_s)
    spacing: Float64 = np.where(other, apart_s, np.inf).min(axis=1)
    return spacing


def _own(values: Float64, blinks: Float64, usual: float) -> float:
    """Return the median of the person's blinks, drawn towards the usual where they are few."""
    count = float(blinks.sum())
    if count < 0.5:
        return usual
    own_share = count / (count + USUAL_BLINKS)
    return own_share * weighted_median(values, blinks) + (1.0 - own_share) * usual


def _longer(values: Float64, blink: float, half: float, sd: float) -> Float64:
    """Return the evidence for a half-closing of normal values; less than a blink's says no more."""
    step = max(half - blink, 0.0)
    return np.clip((values - (blink + half) / 2.0) * step / sd**2, -MOST_EVIDENCE, MOST_EVIDENCE)


def _slower(
    times_s: list[float], usual: Times, blinks: Float64, half: Float64, frame_s: float
) -> Float64:
    """Return the evidence for a half-closing of times; less than a blink's says no more.

    Normal densities of the logarithm, with mean and SD of this person's blinks (`blinks` weighs
    them) as far as there are some, and with the mean of this person's half-closings.
    """
    added_s = frame_s / 2.0
    values = _log(times_s, added_s)
    mean = _own(values, blinks, float(np.log(usual.blink_s + added_s)))
    # The added time takes the same share off the spread of a logarithm as it adds to the time.
    sd = usual.blink_sd * usual.blink_s / (usual.blink_s + added_s)
    squares = (blinks * np.minimum((values - mean) ** 2, 1.0)).sum()
    sd = float(np.sqrt((USUAL_BLINKS * sd**2 + squares) / (USUAL_BLINKS + blinks.sum())))
    total = USUAL_TIMES * np.log(usual.half_s + added_s) + (half * values).sum()
    half_mean = max(float(total / (USUAL_TIMES + half.sum())), mean)
    half_sd = max(usual.half_sd * usual.half_s / (usual.half_s + added_s), sd)
    longer = np.maximum(values, mean)
    evidence = _log_density(longer, half_mean, half_sd) - _log_density(longer, mean, sd)
    return np.clip(evidence, -MOST_FOR_BLINK, MOST_EVIDENCE)


def _log_density(values: Float64, mean: float, sd: float) -> Float64:
    density: Float64 = -0.5 * ((values - mean) / sd) ** 2 - np.log(sd * np.sqrt(2.0 * np.pi))
    return density
