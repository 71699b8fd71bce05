"""The onset of a conditioned response.

There are two answers. The *criterion* is the field's: the first of two samples in a row with a
velocity above a threshold. It depends on frame rate, smoothing and noise: smoothing moves it
earlier, a threshold later. The *estimate* looks for the start of the whole rise: every start, end
and form of a rise is fitted to the samples, and the starts are averaged, weighted by how well they
explain the samples. Its spread shows how well the samples determine the onset. A smooth rise
begins below the noise, and one trial hardly determines its form; but the trials of a session have
much in common, so `shared_form_weights` learns the form from all of them.

How late both are on a trace that follows the lid, at 60 frames a second with noise of 0.02 FEC
(median over drawn sessions): the estimate 2 ms with 40 trials and 9 ms with 3 responses, which
cannot determine the form; the criterion 39 to 49 ms. A landmark model that does not see the first
tenth of a closure makes both 30 to 40 ms later: no analysis of the trace can mend that.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from site_agent.eyeblink.conditioning import ConditioningSettings, Window
from site_agent.eyeblink.records import Float64, Int64

_FLAT_FEC = (0.02, 0.08)
"""Bounds of the closure above the baseline that still counts as none."""
_BEFORE_MS, _LEAD_MS = 150.0, 80.0
"""The start is sought this long before the closure shows, with this much flat trace before it."""
_BIN_MS = 4.0
_STARTS, _ENDS = 100, 24
_SMALLEST_NOISE_FEC = 0.004
# The criterion: the baseline velocity's mean plus a number of SDs, and a least FEC per second.
_VELOCITY_SD, _VELOCITY = 2.0, 0.5
_OTHER_FORMS = 0.2
N_FORMS = 5


@dataclass(frozen=True)
class Onset:
    """Begin of a closure, ms after the trial's time zero."""

    criterion_ms: float
    """First of two samples with a velocity above the threshold."""
    log_evidence: Float64
    """Of shape (forms,). How well each form of a rise explains the samples."""
    start_ms: Float64
    start_sd_ms: Float64
    """Of shape (forms,). Mean and standard deviation of the start of the rise, were it of that
    form."""

    def estimate_ms(self, form_weights: Float64 | None = None) -> tuple[float, float]:
        """Mean and standard deviation of the start, all forms being equally likely or weighted."""
        weight = np.exp(self.log_evidence - self.log_evidence.max())
        if form_weights is not None:
            weight = weight * form_weights
        weight = weight / weight.sum()
        mean_ms = float(weight @ self.start_ms)
        variance = float(weight @ (self.start_sd_ms**2 + (self.start_ms - mean_ms) ** 2))
        return mean_ms, float(np.sqrt(variance))


def shared_form_weights(onsets: Sequence[Onset]) -> Float64:
    """Return how likely each form of a rise is in a session, shape (forms,), sum 1.

    Most responses of a session are taken to have one form, a share of `_OTHER_FORMS` any other:
    agreement of several trials decides, a single odd one (a blink taken for a response) does not,
    and no form ever becomes impossible.
    """
    if not onsets:
        return np.full(N_FORMS, 1.0 / N_FORMS)
    evidence = np.array([onset.log_evidence for onset in onsets])
    likelihood = np.exp(evidence - evidence.max(axis=1, keepdims=True))
    average = likelihood.mean(axis=1, keepdims=True)
    total = np.log((1.0 - _OTHER_FORMS) * likelihood + _OTHER_FORMS * average).sum(axis=0)
    common = np.exp(total - total.max())
    weights: Float64 = (1.0 - _OTHER_FORMS) * common / common.sum() + _OTHER_FORMS / N_FORMS
    return weights


def find_onset(
    signal: "TrialSignal",
    baseline: float,
    settings: ConditioningSettings,
    *,
    search_ms: Window,
    reached_ms: float,
) -> Onset | None:
    """Find the onset of the closure that the eye is in at `reached_ms`.

    None where the velocity never passes the threshold, or the closure began too early. Of the runs
    of fast samples those are skipped after which the eye opened again before `reached_ms`: they are
    noise or another blink.

    `signal`: nothing after the time at which the US begins to move the lid. `search_ms`: onsets
    outside of it are not reported; a closure that is under way at its begin is not the one that is
    sought.
    """
    time_ms = signal.time_ms
    rest = signal.within(*settings.baseline_ms)
    anchor = int(np.searchsorted(time_ms, reached_ms, side="right")) - 1
    if rest.stop - rest.start < settings.least_baseline_samples or anchor < rest.stop:
        return None
    slopes = local_slopes(signal, settings.smoothing_ms)
    level = smoothed(signal, settings.smoothing_ms) - baseline
    flat = float(np.clip(2.0 * np.std(level[rest]), *_FLAT_FEC))
    still_flat = np.flatnonzero(level[: anchor + 1] <= flat)
    departed = int(still_flat[-1]) if len(still_flat) else rest.stop
    resting = slopes[rest][np.isfinite(slopes[rest])]
    usual = float(resting.mean() + _VELOCITY_SD * resting.std()) if len(resting) else 0.0
    threshold = max(usual, _VELOCITY)
    # A local slope sees a rise half its width ahead: look that much earlier, then judge the
    # start that was found.
    half_ms = max(settings.smoothing_ms / 2.0, signal.frame_ms)
    fast = (slopes >= threshold) & (time_ms >= search_ms[0] - half_ms) & (time_ms <= reached_ms)
    for start, end in runs_of(fast, 2):
        if end - 1 < departed:
            continue
        # A movement that was over before (a startle) is no part of the flat trace.
        moved = np.flatnonzero(level[: min(departed, start)] > 2.0 * flat)
        quiet = int(moved[-1]) + 1 if len(moved) else 0
        onset = _fit_rise(signal, slopes, (quiet, departed), (start, end), search_ms[0])
        estimate_ms, spread_ms = onset.estimate_ms()
        # At low frame rates the start is known to a part of a frame only: give it that much.
        if not search_ms[0] - min(spread_ms, half_ms) <= estimate_ms <= search_ms[1]:
            continue
        return onset
    return None


def _fit_rise(
    signal: "TrialSignal",
    slopes: Float64,
    flat_run: tuple[int, int],
    fast_run: tuple[int, int],
    earliest_ms: float,
) -> Onset:
    """Lay rises of all forms over the samples of a flat run and of the fast run after it."""
    (quiet, departed), (start, end) = flat_run, fast_run
    time_ms = signal.time_ms
    criterion_ms = max(float(time_ms[start]), earliest_ms)
    fastest = start + int(np.nanargmax(slopes[start:end]))
    slowed = np.flatnonzero(slopes[fastest:] < 0.1 * slopes[fastest])
    complete = len(slowed) > 0
    last = fastest + int(slowed[0]) if complete else len(time_ms) - 1
    seen_ms = float(time_ms[min(departed, start)])
    first_ms, fastest_ms, last_ms = seen_ms - _BEFORE_MS, time_ms[fastest], time_ms[last]
    begin = max(int(np.searchsorted(time_ms, first_ms - _LEAD_MS)), quiet)
    first_ms = max(first_ms, float(time_ms[begin]))
    if last - begin < 4:
        same = np.full(N_FORMS, criterion_ms)
        return Onset(criterion_ms, np.zeros(N_FORMS), same, np.full(N_FORMS, signal.frame_ms))
    t, x = _binned(time_ms[begin : last + 1], signal.fec[begin : last + 1])
    starts = np.linspace(first_ms, fastest_ms, _STARTS)
    reach_ms = max(signal.frame_ms, 20.0) * 2.0 if complete else 400.0
    ends = np.linspace(fastest_ms, last_ms + reach_ms, _ENDS + 1)[1:]
    residual = _residuals(t, x, starts, ends)
    best = float(residual.min())
    noise = max(best / max(len(t) - 5, 1), _SMALLEST_NOISE_FEC**2)
    # The best form has a weight of 1 somewhere; the floor keeps a hopeless one from vanishing.
    weight = np.exp(-(residual - best) / (2.0 * noise)).sum(axis=1) + 1e-100
    total = weight.sum(axis=1)
    mean_ms = weight @ starts / total
    variance = (weight * (starts - mean_ms[:, None]) ** 2).sum(axis=1) / total
    return Onset(criterion_ms, np.log(total), mean_ms, np.sqrt(variance))


def _residuals(t: Float64, x: Float64, starts: Float64, ends: Float64) -> Float64:
    """Return the sums of squares left by flat-then-rise curves, shape (forms, ends, starts).

    Level and height are fitted to each; falling curves explain nothing.
    """
    duration = np.maximum(ends[:, None] - starts[None, :], 1.0)
    u = np.clip((t[None, None, :] - starts[None, :, None]) / duration[..., None], 0.0, 1.0)
    centred = x - x.mean()
    total = float(centred @ centred)
    residuals = []
    for form in _rise_forms(u):
        along = form @ centred
        spread = np.einsum("est,est->es", form, form) - form.sum(axis=-1) ** 2 / len(x)
        explained = np.where(along > 0, along**2 / np.maximum(spread, 1e-12), 0.0)
        residuals.append(np.maximum(total - explained, 0.0))
    return np.stack(residuals)


def _rise_forms(u: Float64) -> tuple[Float64, ...]:
    """Return rises from 0 to 1: straight, slowing, and smooth at both ends to order 2 or 3.

    The third is half a cosine wave, the fourth smooth at its end to third order, the last
    minimum jerk.
    """
    square = u * u
    return (
        u.copy(),
        u * (2.0 - u),
        (1.0 - np.cos(np.pi * u)) / 2.0,
        square * (6.0 - 8.0 * u + 3.0 * square),
        square * u * (10.0 - 15.0 * u + 6.0 * square),
    )


def _binned(time_ms: Float64, fec: Float64) -> tuple[Float64, Float64]:
    """Average over `_BIN_MS`: above 250 frames/s more samples only cost time."""
    index = np.floor((time_ms - time_ms[0]) / _BIN_MS).astype(np.int64)
    count = np.bincount(index)
    used = count > 0
    t = np.bincount(index, weights=time_ms)[used] / count[used]
    x = np.bincount(index, weights=fec)[used] / count[used]
    return t, x


GAP_FACTOR = 1.5
"""Neighbours further apart than this many frame intervals have a gap between them."""
LEAST_SAMPLES = 5
"""A parabola is fitted to no fewer."""


@dataclass(frozen=True, eq=False)
class TrialSignal:
    """The valid samples around one trial, on the trial's clock, strictly increasing."""

    time_ms: Float64
    fec: Float64
    frame_ms: float
    """Usual interval between frames around it; NaN without two of them."""

    def until(self, end_ms: float) -> "TrialSignal":
        """The samples at or before `end_ms`."""
        count = int(np.searchsorted(self.time_ms, end_ms, side="right"))
        return TrialSignal(self.time_ms[:count], self.fec[:count], self.frame_ms)

    def within(self, start_ms: float, end_ms: float) -> slice:
        """Return the indices of the samples in ``[start_ms, end_ms)``."""
        first, last = np.searchsorted(self.time_ms, [start_ms, end_ms])
        return slice(int(first), int(last))


def cut_trial(
    timestamps_s: Float64, fec: Float64, reference_s: float, start_ms: float, end_ms: float
) -> TrialSignal:
    """Take the samples from `start_ms` to `end_ms` around a moment of the recording.

    The frame interval is the median around the trial, of all frames: it follows a variable frame
    rate, and neither missing eyes nor some lost frames change it.
    """
    first, last = np.searchsorted(
        timestamps_s, [reference_s + start_ms / 1000.0, reference_s + end_ms / 1000.0]
    )
    around = timestamps_s[max(0, int(first) - 2) : int(last) + 2]
    frame_ms = float(np.median(np.diff(around))) * 1000.0 if len(around) > 1 else float("nan")
    time_ms = (timestamps_s[first:last] - reference_s) * 1000.0
    values = fec[first:last]
    known = np.isfinite(values)
    return TrialSignal(time_ms[known], values[known], frame_ms)


def missing_share(signal: TrialSignal, start_ms: float, end_ms: float) -> float:
    """Return the share of a window that no valid sample speaks for, 0..1.

    Each sample speaks for half a frame interval on both sides, and neighbours within
    `GAP_FACTOR` intervals for all the time between them.
    """
    time_ms = signal.time_ms
    if len(time_ms) == 0 or not np.isfinite(signal.frame_ms):
        return 1.0
    half_ms = signal.frame_ms / 2.0
    gap = np.diff(time_ms) > GAP_FACTOR * signal.frame_ms
    middle = (time_ms[1:] + time_ms[:-1]) / 2.0
    left = np.concatenate([[time_ms[0] - half_ms], np.where(gap, time_ms[1:] - half_ms, middle)])
    right = np.concatenate([np.where(gap, time_ms[:-1] + half_ms, middle), [time_ms[-1] + half_ms]])
    covered = np.maximum(np.minimum(right, end_ms) - np.maximum(left, start_ms), 0.0).sum()
    return float(min(max(1.0 - covered / (end_ms - start_ms), 0.0), 1.0))


def mean_between(signal: TrialSignal, start_ms: float, end_ms: float) -> float:
    """Return the time-weighted mean FEC of a window.

    The integral of the straight lines between samples over the window's length, so that a window
    of a few milliseconds has a mean at 30 frames a second as well; before the first and after
    the last sample the trace is taken as constant. NaN without samples.
    """
    if len(signal.time_ms) == 0:
        return float("nan")
    inside = signal.time_ms[(signal.time_ms > start_ms) & (signal.time_ms < end_ms)]
    knots = np.concatenate([[start_ms], inside, [end_ms]])
    values = np.interp(knots, signal.time_ms, signal.fec)
    area = float((np.diff(knots) * (values[1:] + values[:-1]) / 2.0).sum())
    return area / (end_ms - start_ms)


def local_slopes(signal: TrialSignal, width_ms: float) -> Float64:
    """Return the velocity in FEC per second at each sample, shape (n,).

    Slope of the least-squares line through the samples within half of `width_ms` on both sides,
    but at least through the sample and its two neighbours; NaN where fewer than two samples are
    near enough.
    """
    gathered, known, offset_ms = _neighbours(signal, width_ms)
    count = known.sum(axis=1)
    mean_t = (offset_ms * known).sum(axis=1) / np.maximum(count, 1)
    mean_x = (gathered * known).sum(axis=1) / np.maximum(count, 1)
    dt = (offset_ms - mean_t[:, None]) * known
    spread = (dt**2).sum(axis=1)
    slope = (dt * (gathered - mean_x[:, None])).sum(axis=1) / np.where(spread > 0, spread, 1.0)
    return np.where((count >= 2) & (spread > 0), slope * 1000.0, np.nan)


def local_parabolas(timestamps_s: Float64, values: Float64, window_s: float) -> Float64:
    """Fit a parabola around each sample, by the samples' own times, and take it at the sample.

    On an even grid this is the filter of Savitzky and Golay (1964) of second order. NaN stays
    NaN, and does not spread: lost frames and uneven rates only leave fewer samples to fit.

    `timestamps_s`, `values` (float64, shape (n,)).
    """
    if not len(values):
        return values
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


def smoothed(signal: TrialSignal, width_ms: float) -> Float64:
    """Return FEC smoothed by `local_parabolas`, shape (n,)."""
    return local_parabolas(signal.time_ms, signal.fec, width_ms)


def peak_between(
    signal: TrialSignal, start_ms: float, end_ms: float, width_ms: float
) -> tuple[float, float]:
    """Return time and FEC of the highest point in a window, NaN twice without samples there.

    Of the smoothed trace; the vertex of the parabola through the highest sample and its
    neighbours, which at 30 frames a second lies up to half a frame away from the sample.
    """
    window = signal.within(start_ms, np.nextafter(end_ms, np.inf))
    if window.start >= window.stop:
        return float("nan"), float("nan")
    level = smoothed(signal, width_ms)
    index = window.start + int(np.argmax(level[window]))
    time_ms, height = float(signal.time_ms[index]), float(level[index])
    if 0 < index < len(level) - 1:
        t = signal.time_ms[index - 1 : index + 2] - time_ms
        near = (t[1] - t[0] <= 2 * GAP_FACTOR * signal.frame_ms) and (
            t[2] - t[1] <= 2 * GAP_FACTOR * signal.frame_ms
        )
        a, b, _ = _parabola(t, level[index - 1 : index + 2])
        if near and a < 0:
            shift_ms = min(max(-b / (2 * a), float(t[0]) / 2), float(t[2]) / 2)
            if start_ms <= time_ms + shift_ms <= end_ms:
                return time_ms + shift_ms, height + (a * shift_ms + b) * shift_ms
    return time_ms, height


def runs_of(condition: NDArray[np.bool_], least: int) -> list[tuple[int, int]]:
    """Return the half-open index ranges of at least `least` True values in a row."""
    edges = np.diff(condition.astype(np.int8), prepend=0, append=0)
    starts, ends = np.flatnonzero(edges == 1).tolist(), np.flatnonzero(edges == -1).tolist()
    return [(start, end) for start, end in zip(starts, ends, strict=True) if end - start >= least]


def _parabola(t: Float64, x: Float64) -> tuple[float, float, float]:
    """Fit ``a t^2 + b t + c`` to three points, the middle one at t = 0."""
    left, right = (x[0] - x[1]) / t[0], (x[2] - x[1]) / t[2]
    a = float((right - left) / (t[2] - t[0]))
    return a, float(left - a * t[0]), float(x[1])


def _neighbours(signal: TrialSignal, width_ms: float) -> tuple[Float64, NDArray[np.bool_], Float64]:
    """Return the samples near each sample: values, whether they count, offsets in ms."""
    time_ms, n = signal.time_ms, len(signal.time_ms)
    first = np.searchsorted(time_ms, time_ms - width_ms / 2.0)
    last = np.searchsorted(time_ms, time_ms + width_ms / 2.0, side="right")
    indices = np.arange(n)
    first, last = np.minimum(first, indices - 1), np.maximum(last, indices + 2)
    index: Int64 = first[:, None] + np.arange(int((last - first).max()) if n else 0)
    inside = (index >= 0) & (index < n) & (index < last[:, None])
    index = np.clip(index, 0, max(n - 1, 0))
    offset_ms = time_ms[index] - time_ms[:, None]
    # Across a gap nothing is known of the movement.
    reach_ms = max(width_ms / 2.0, 2 * GAP_FACTOR * signal.frame_ms)
    known = inside & (np.abs(offset_ms) <= reach_ms)
    return signal.fec[index], known, offset_ms
