"""The probability that a dip is a blink, and that a long narrowing of the eyes is a closure.

Models, persons and cameras differ, so a dip is compared with the session's own clear blinks: quick
dips that stand out of the noise and reopen by half within 0.4 s. Where there are hardly any, a
usual person stands in for them; so glances down in a recording without a single blink are not taken
for its blinks.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from site_agent.eyeblink.openness.sampling import EvenTrace, percentile_of_known
from site_agent.eyeblink.openness.signal import Calibration
from site_agent.eyeblink.records import Float64, Int64

USUAL_SHUT_SHARE, USUAL_SHUT_SD = 0.25, 0.1
"""EAR of shut lids as a share of that of open ones, where the session has no blinks to show it."""
USUAL_EVIDENCE, USUAL_EVIDENCE_SD = 0.6, 0.3
"""Evidence of a blink as a share of the open EAR, and the SD of its logarithm."""
USUAL_WEIGHT = 3.0
"""The usual person counts as much as this number of clear blinks."""
NOISE_FACTOR, SHARE_OF_SPAN = 4.75, 0.35
"""A dip stands out by 1 at this many SD of the noise and this share of the span."""
LEAST_SHUT_SD, LEAST_EVIDENCE_SD = 0.1, 0.25

BLINK_COEFFICIENTS = (1.162, 3.131, -0.346, 0.676)
"""Constant, and one for each of `blink_features`."""
CLOSURE_COEFFICIENTS = (-19.0, 25.0)
"""Constant, closure that the lids keep up (FEC)."""


@dataclass(frozen=True)
class ClearBlinks:
    """The features that the clear blinks of a session have in common."""

    count: float
    """How many there are; each counts as much as it is clear."""
    open_ear: float
    shut_ear: float
    shut_sd_ear: float
    """Median and SD of their lowest EAR."""
    log_evidence: float
    log_evidence_sd: float
    """Median and SD of the logarithm of their evidence."""

    @property
    def span_ear(self) -> float:
        return self.open_ear - self.shut_ear


def clear_blinks(
    dips: "Dips", calibration: Calibration, half: Float64 | None = None
) -> ClearBlinks:
    """Measure the clear blinks, drawn towards those of a usual person where they are few.

    `half`: the probability that a dip is a half-closing, which is not among them.
    """
    open_ear = calibration.open_ear
    drop = np.maximum(dips.drop_ear, 1e-9)
    clearness = np.maximum(stands_out(dips, 0.3 * calibration.span), 1e-3)
    weights = (dips.reopened_ear - dips.lowest_ear > 0.5 * drop) / (1.0 + clearness**-12.0)
    if half is not None:
        weights = weights * (1.0 - half)
    log_evidence = np.log(np.maximum(dips.evidence_ear, 1e-9))
    count = float(weights.sum())
    own_share = count / (count + USUAL_WEIGHT)
    shut, shut_sd = _median_and_sd(dips.lowest_ear, weights)
    evidence, evidence_sd = _median_and_sd(log_evidence, weights)
    usual_evidence = np.log(USUAL_EVIDENCE * open_ear)
    return ClearBlinks(
        count,
        open_ear,
        own_share * shut + (1.0 - own_share) * USUAL_SHUT_SHARE * open_ear,
        float(
            np.sqrt(own_share * shut_sd**2 + (1.0 - own_share) * (USUAL_SHUT_SD * open_ear) ** 2)
        ),
        float(own_share * evidence + (1.0 - own_share) * usual_evidence),
        float(np.sqrt(own_share * evidence_sd**2 + (1.0 - own_share) * USUAL_EVIDENCE_SD**2)),
    )


def blink_features(dips: "Dips", clear: ClearBlinks) -> Float64:
    """Return the features that distinguish blinks from other dips, shape (m, 3).

    Log of how far the dip stands out of noise and span; by how many SD its lowest point lies above
    those of the clear blinks; by how many SD its evidence exceeds theirs.
    """
    span = max(clear.span_ear, 1e-9)
    standing_out = np.log(np.maximum(stands_out(dips, SHARE_OF_SPAN * span), 1e-3))
    shut_sd = float(np.hypot(clear.shut_sd_ear, LEAST_SHUT_SD * span))
    shallow = np.clip((dips.lowest_ear - clear.shut_ear) / shut_sd, -2.0, 6.0)
    evidence_sd = float(np.hypot(clear.log_evidence_sd, LEAST_EVIDENCE_SD))
    log_evidence = np.log(np.maximum(dips.evidence_ear, 1e-9))
    strong = np.clip((log_evidence - clear.log_evidence) / evidence_sd, -6.0, 2.0)
    return np.column_stack([standing_out, shallow, strong])


def blink_probabilities(dips: "Dips", clear: ClearBlinks) -> Float64:
    """Return the probability that each dip is a blink, shape (m,); 0 without evidence.

    A logistic regression; ``tests/benchmarks/blinks_on_traces.py --fit`` refits its coefficients
    to the annotated recordings and drawn sessions, and reports its accuracy on left-out
    recordings.
    """
    constant, *slopes = BLINK_COEFFICIENTS
    probability = logistic(constant + blink_features(dips, clear) @ np.array(slopes))
    return np.where(dips.evidence_ear > 0, probability, 0.0)


def closure_probability(kept_up_fec: float) -> float:
    """Return the probability that the lids were shut and did not only narrow.

    `kept_up_fec`: the closure, from the open eye around it (0) to the lids of clear blinks (1),
    that the lids exceeded for a quarter of the time.
    """
    constant, slope = CLOSURE_COEFFICIENTS
    return float(logistic(np.array([constant + slope * kept_up_fec]))[0])


def stands_out(dips: "Dips", share_of_span_ear: float) -> Float64:
    """Return each dip's evidence as a multiple of the least clear evidence, shape (m,)."""
    needed = np.maximum(NOISE_FACTOR * dips.noise_ear, share_of_span_ear)
    return np.where(needed > 0, dips.evidence_ear / np.where(needed > 0, needed, 1.0), 0.0)


def _median_and_sd(values: Float64, weights: Float64) -> tuple[float, float]:
    """Return the weighted median, and the SD from the weighted median of absolute deviations."""
    if not weights.sum() > 0:
        return 0.0, 0.0
    median = weighted_median(values, weights)
    return median, 1.4826 * weighted_median(np.abs(values - median), weights)


def weighted_median(values: Float64, weights: Float64) -> float:
    """Return the value with half of the weight on either side."""
    order = np.argsort(values)
    total = np.cumsum(weights[order])
    return float(values[order][np.searchsorted(total, 0.5 * total[-1])])


def logistic(score: Float64) -> Float64:
    """Return the probability with a logarithm of odds."""
    return 1.0 / (1.0 + np.exp(-np.clip(score, -50.0, 50.0)))


CLOSING_S = (0.27, 0.065)
"""The level before a dip is the median over this time before its lowest point."""
SURROUND_S = (2.0, 0.3)
SURROUND_PERCENTILE = 8.0
"""The dip should go below the lower values of this time before and after it; the percentile leaves
room for the other blinks of frequent blinkers."""
REOPENING_S = 0.15
"""The lids should begin to part within this time."""
REOPENED_S = 0.4
"""A blink's lids have mostly reopened within this time."""
SEPARATION_S = 0.1
"""Lowest points nearer than this belong to one dip."""
ARRIVAL_SHARE = 0.1
"""The lids have arrived where EAR falls on by less than this share of the fall so far."""
NOISE_S = 5.0
"""The noise is measured over this time before and after."""
DROP_SHARE, SURROUND_SHARE, REOPENING_SHARE = 0.5, 0.2, 0.3
"""Weights of the drop, the depth below the surround and the reopening. They add up to 1, so that
the evidence is in units of EAR."""
SUPPORT_SHARE, SUPPORT_RATE_HZ = 0.25, 22.0
CLEAR_SUPPORT_SHARE, CLEAR_SUPPORT_SD = 0.12, 3.0
"""A neighbouring sample must be down by a share of the drop too, or the dip is a single bad frame.
The smaller share is enough where it exceeds this many SD of the noise. Slower recordings are
exempt, for there a blink may be one sample long."""


@dataclass(frozen=True, eq=False)
class Dips:
    """Lowest points of a trace, in time order, with the evidence for a blink at each."""

    bins: Int64
    """Of shape (m,)."""
    lowest_ear: Float64
    level_before_ear: Float64
    """Of shape (m,)."""
    evidence_ear: Float64
    """Of shape (m,). Weighted depth, in units of EAR."""
    reopened_ear: Float64
    """Of shape (m,). EAR that the lids reach again within 0.4 s."""
    noise_ear: Float64
    """Of shape (m,). Standard deviation of the noise around the dip."""

    @property
    def drop_ear(self) -> Float64:
        return self.level_before_ear - self.lowest_ear


def find_dips(trace: EvenTrace) -> Dips:
    """Measure every local minimum of `trace`; without support it has no evidence."""
    lowest = _lowest_points(trace)
    low_ear = trace.ear[lowest]
    before = _level_before(trace, lowest)
    surround = percentile_of_known(_surround(trace, lowest), SURROUND_PERCENTILE, before)
    at_once = _window(trace, lowest, trace.step_s, REOPENING_S)
    later = _window(trace, lowest, trace.step_s, REOPENED_S)
    reopening = percentile_of_known(at_once, 100.0, percentile_of_known(later, 50.0, before))
    evidence = (
        DROP_SHARE * (before - low_ear)
        + SURROUND_SHARE * (surround - low_ear)
        + REOPENING_SHARE * (reopening - low_ear)
    )
    noise = _noise(trace)[lowest]
    supported = _is_supported(trace, lowest, before - low_ear, noise)
    return Dips(
        bins=lowest,
        lowest_ear=low_ear,
        level_before_ear=before,
        evidence_ear=np.where(supported, evidence, 0.0),
        reopened_ear=percentile_of_known(later, 80.0, before),
        noise_ear=noise,
    )


def _level_before(trace: EvenTrace, lowest: Int64) -> Float64:
    """Return the EAR before the lids began to fall; after a lost face, the last known one."""
    usual = percentile_of_known(_window(trace, lowest, -2.0, 2.0), 60.0, trace.ear[lowest])
    last_known = percentile_of_known(_window(trace, lowest, -1.0, -trace.step_s), 50.0, usual)
    start_s, end_s = CLOSING_S
    return percentile_of_known(_window(trace, lowest, -start_s, -end_s), 50.0, last_known)


def _is_supported(
    trace: EvenTrace, lowest: Int64, drop: Float64, noise: Float64
) -> NDArray[np.bool_]:
    """Return which dips are more than a single bad sample."""
    if trace.step_s * SUPPORT_RATE_HZ > 1.0:
        return np.ones(len(lowest), dtype=np.bool_)
    padded = np.pad(trace.ear, 1, constant_values=np.nan)
    neighbour = np.fmin(padded[lowest], padded[lowest + 2])
    fall = drop - (neighbour - trace.ear[lowest])
    needed = np.clip(CLEAR_SUPPORT_SD * noise, CLEAR_SUPPORT_SHARE * drop, SUPPORT_SHARE * drop)
    return np.isnan(neighbour) | (fall >= needed)


def _lowest_points(trace: EvenTrace) -> Int64:
    """Return the bins undercut by no earlier bin nearby, and by no later one by much.

    "Not by much" is a share of the fall that led there, so that a closure that goes on
    deepening a little is met where the lids arrive, not only at its very lowest point.
    """
    reach = max(1, trace.bins(SEPARATION_S))
    ear = np.where(np.isfinite(trace.ear), trace.ear, np.inf)
    padded = np.pad(ear, reach, constant_values=np.inf)
    windows = np.lib.stride_tricks.sliding_window_view(padded, reach)
    before, after = windows[: len(ear)].min(axis=1), windows[reach + 1 :].min(axis=1)
    back = max(1, trace.bins(CLOSING_S[0]))
    known = np.pad(np.where(np.isfinite(trace.ear), trace.ear, -np.inf), (back, 0))
    known[:back] = -np.inf
    highest = np.lib.stride_tricks.sliding_window_view(known, back)[: len(ear)].max(axis=1)
    fall = np.where(np.isfinite(highest), highest, 0.0) - np.where(np.isfinite(ear), ear, 0.0)
    allowed = ARRIVAL_SHARE * np.maximum(fall, 0.0)
    low = np.isfinite(ear) & (ear < before) & (ear <= after + allowed)
    return np.flatnonzero(low).astype(np.int64)


def _window(trace: EvenTrace, centres: Int64, from_s: float, to_s: float) -> Float64:
    """Return the bins from `from_s` to `to_s` around each centre, NaN beyond the ends."""
    first, last = trace.bins(from_s), trace.bins(to_s)
    offsets = np.arange(first, max(first, last) + 1)
    index = centres[:, None] + offsets
    inside = (index >= 0) & (index < len(trace.ear))
    return np.where(inside, trace.ear[np.clip(index, 0, len(trace.ear) - 1)], np.nan)


def _surround(trace: EvenTrace, centres: Int64) -> Float64:
    far_s, near_s = SURROUND_S
    return np.concatenate(
        [_window(trace, centres, -far_s, -near_s), _window(trace, centres, near_s, far_s)], axis=1
    )


def _noise(trace: EvenTrace) -> Float64:
    """Return the noise by bin (standard deviation), from the median of absolute differences."""
    difference = np.abs(np.diff(trace.ear))
    known = difference[np.isfinite(difference)]
    if len(known) == 0:
        return np.zeros(len(trace.ear))
    to_deviation = 1.4826 / np.sqrt(2.0)
    whole = float(np.median(known)) * to_deviation
    block = max(8, trace.bins(NOISE_S))
    starts = np.arange(0, len(difference), block)
    local = np.array([_median_of_known(difference[at : at + 2 * block]) for at in starts])
    # Where little is known the whole recording stands in; no stretch counts as free of noise.
    deviation = np.maximum(np.nan_to_num(local * to_deviation, nan=whole), 0.7 * whole)
    centres = np.minimum(starts + block, len(trace.ear) - 1)
    noise: Float64 = np.interp(np.arange(len(trace.ear)), centres, deviation)
    return noise


def _median_of_known(values: Float64) -> float:
    known = values[np.isfinite(values)]
    return float(np.median(known)) if len(known) >= 8 else float("nan")
