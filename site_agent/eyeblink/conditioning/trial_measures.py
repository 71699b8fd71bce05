"""Measures of one conditioning trial: levels, amplitudes and times, without any decision."""

import math
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from site_agent.datasets.trials import Trial, TrialType
from site_agent.eyeblink.conditioning import Censored, ConditioningSettings, Rejection, Window
from site_agent.eyeblink.conditioning.cr_onset import (
    Onset,
    TrialSignal,
    cut_trial,
    find_onset,
    mean_between,
    missing_share,
    peak_between,
    shared_form_weights,
    smoothed,
)
from site_agent.eyeblink.records import Float64

_MARGIN_MS = 200.0
_CLOSED_BEFORE_CS_MS = 100.0
# A closure of this size that begins in one of these windows after the CS is a startle (D. A. Grant
# and E. B. Norris 1947). A beta response is over before the CR is measured; a CR is not.
_ALPHA_MS, _BETA_MS, _STARTLE_FEC = (0.0, 60.0), (120.0, 240.0), 0.05
# In `cs_only` trials the peak is sought until so long after the expected US.
_CR_PEAK_AFTER_US_MS = 300.0
_LATENCY_SHARE = 0.1
_SMALLEST_SOUGHT_FEC = 0.04
"""No onset is sought of smaller closures: below every criterion of the sensitivity table."""


@dataclass(frozen=True)
class TrialMeasures:
    """Measures of one trial, see `summary.TRIAL_COLUMNS`; NaN where there are none."""

    trial: str
    trial_type: TrialType
    cs_onset_s: float
    us_onset_s: float
    unmeasurable: tuple[Rejection, ...] = ()
    missing_share: float = math.nan
    baseline: float = math.nan
    baseline_mean: float = math.nan
    baseline_sd: float = math.nan
    before_cs_peak: float = math.nan
    startle: bool = False
    beta_startle: bool = False
    cr_window_fec: float = math.nan
    cr_amplitude: float = math.nan
    cr_onset_ms: float = math.nan
    cr_onset_sd_ms: float = math.nan
    cr_onset_censored: Censored | None = None
    cr_onset_criterion_ms: float = math.nan
    cr_latency_ms: float = math.nan
    cr_peak_ms: float = math.nan
    cr_peak_amplitude: float = math.nan
    ur_amplitude: float = math.nan
    ur_peak_ms: float = math.nan
    onset: Onset | None = field(default=None, repr=False, compare=False)


def share_onset_form(
    trials: Sequence[TrialMeasures], settings: ConditioningSettings
) -> tuple[TrialMeasures, ...]:
    """Estimate the CR onsets again with the form of the rise that all trials share."""
    weights = shared_form_weights([trial.onset for trial in trials if trial.onset is not None])
    refined = []
    for trial in trials:
        if trial.onset is None:
            refined.append(trial)
            continue
        refined.append(replace(trial, **_onset_parts(trial.onset, settings, weights)))
    return tuple(refined)


def _onset_parts(
    onset: Onset, settings: ConditioningSettings, weights: Float64 | None = None
) -> dict[str, Any]:
    """Return the onset, or that it lies at or before the earliest one sought."""
    estimate_ms, estimate_sd_ms = onset.estimate_ms(weights)
    if estimate_ms <= settings.onset_floor_ms:
        nothing = {"cr_onset_ms": math.nan, "cr_onset_sd_ms": math.nan}
        return {**nothing, "cr_onset_censored": Censored.EARLY}
    known = {"cr_onset_ms": estimate_ms, "cr_onset_sd_ms": estimate_sd_ms}
    return {**known, "cr_onset_censored": None}


def measure_trial(
    timestamps_s: Float64,
    fec: Float64,
    trial: Trial,
    session_cs_us_ms: float,
    settings: ConditioningSettings,
) -> TrialMeasures:
    """Measure one trial.

    `timestamps_s`, `fec` (float64, shape (n,)): The session's trace; times strictly increasing, NaN
    in `fec` where the eye was not seen. `session_cs_us_ms`: Tells when the US would have come in a
    `cs_only` trial that does not say so itself.

    Notes
    -----
    The CR window is read from samples up to the moment at which the US begins to move the lid
    (`ur_window_ms[0]` after it), in all types of trials alike. The last of them speaks for the
    rest of the window. So the response to the US never leaks into the CR, even at 30 frames a
    second, where the window often holds a single sample.
    """
    us_ms = _us_ms(trial, session_cs_us_ms)
    us_onset_s = trial.reference_s + us_ms / 1000.0
    names = (trial.trial, trial.trial_type, trial.cs_onset_s, us_onset_s)
    end_ms = _end_ms(trial, us_ms, settings)
    signal = cut_trial(
        timestamps_s,
        fec,
        trial.reference_s,
        settings.baseline_ms[0] - _MARGIN_MS,
        end_ms + _MARGIN_MS,
    )
    reasons = _unmeasurable(timestamps_s, signal, trial, us_ms, settings)
    if reasons:
        return TrialMeasures(*names, unmeasurable=reasons)
    baseline_samples = signal.fec[signal.within(*_baseline_ms(trial, settings))]
    baseline = float(np.median(baseline_samples))
    parts: dict[str, Any] = {
        "missing_share": missing_share(
            signal, _recorded_from_ms(timestamps_s, trial, settings), end_ms
        ),
        "baseline": baseline,
        "baseline_mean": float(baseline_samples.mean()),
        "baseline_sd": float(baseline_samples.std(ddof=1))
        if len(baseline_samples) > 1
        else math.nan,
        "before_cs_peak": _before_cs_peak(signal, settings),
    }
    if trial.trial_type is not TrialType.US_ONLY:
        parts |= _cr_measures(signal, baseline, trial.trial_type, us_ms, settings)
    if trial.trial_type is not TrialType.CS_ONLY:
        parts |= _ur_measures(signal, baseline, us_ms, settings)
    return TrialMeasures(*names, **parts)


def _us_ms(trial: Trial, session_cs_us_ms: float) -> float:
    """When the US comes, or would come, after the trial's time zero."""
    if trial.trial_type is TrialType.US_ONLY:
        return 0.0
    own_ms = (trial.us_onset_s - trial.cs_onset_s) * 1000.0
    return own_ms if math.isfinite(own_ms) else session_cs_us_ms


def _baseline_ms(trial: Trial, settings: ConditioningSettings) -> Window:
    """Return the baseline's window; the US moves the lid at once, so it ends before that."""
    start_ms, end_ms = settings.baseline_ms
    return start_ms, min(end_ms, 0.0) if trial.trial_type is TrialType.US_ONLY else end_ms


def _recorded_from_ms(timestamps_s: Float64, trial: Trial, settings: ConditioningSettings) -> float:
    """Return when the trial's frames begin: nothing is missing where the camera did not run."""
    start_ms = settings.baseline_ms[0]
    first = np.searchsorted(timestamps_s, trial.reference_s + start_ms / 1000.0)
    return max(start_ms, float(timestamps_s[first] - trial.reference_s) * 1000.0)


def _end_ms(trial: Trial, us_ms: float, settings: ConditioningSettings) -> float:
    """End of the time that the trial's measures need, without which it counts as incomplete."""
    is_cs_only = trial.trial_type is TrialType.CS_ONLY
    return us_ms if is_cs_only else us_ms + settings.ur_window_ms[1]


def _unmeasurable(
    timestamps_s: Float64,
    signal: TrialSignal,
    trial: Trial,
    us_ms: float,
    settings: ConditioningSettings,
) -> tuple[Rejection, ...]:
    """Why nothing can be measured: of several reasons the first that explains the others."""
    frame_s = float(np.median(np.diff(timestamps_s)))
    has_cs = trial.trial_type is not TrialType.US_ONLY
    needed_ms = us_ms + (settings.cr_window_ms[1] if has_cs else settings.ur_window_ms[0])
    if trial.reference_s + needed_ms / 1000.0 > timestamps_s[-1] + frame_s:
        return (Rejection.AFTER_RECORDING,)
    if trial.reference_s + settings.baseline_ms[1] / 1000.0 < timestamps_s[0]:
        return (Rejection.BEFORE_RECORDING,)
    window = signal.within(*_baseline_ms(trial, settings))
    reasons = []
    if window.stop - window.start < settings.least_baseline_samples:
        is_early = trial.reference_s + settings.baseline_ms[0] / 1000.0 < timestamps_s[0]
        reasons.append(Rejection.BEFORE_RECORDING if is_early else Rejection.NO_BASELINE)
    if has_cs:
        start_ms, end_ms = (us_ms + edge for edge in settings.cr_window_ms)
        if missing_share(signal, start_ms, end_ms) > 0.5:
            reasons.append(Rejection.NO_CR_WINDOW)
    return tuple(reasons)


def _before_cs_peak(signal: TrialSignal, settings: ConditioningSettings) -> float:
    # Nothing after the CS: the smoothing would look ahead.
    before = signal.until(0.0)
    window = before.within(-_CLOSED_BEFORE_CS_MS, np.nextafter(0.0, 1.0))
    if window.start >= window.stop:
        return mean_between(before, -_CLOSED_BEFORE_CS_MS, 0.0)
    return float(smoothed(before, settings.smoothing_ms)[window].max())


def _cr_measures(
    signal: TrialSignal,
    baseline: float,
    trial_type: TrialType,
    us_ms: float,
    settings: ConditioningSettings,
) -> dict[str, Any]:
    start_ms, end_ms = (us_ms + edge for edge in settings.cr_window_ms)
    untouched = signal.until(us_ms + settings.ur_window_ms[0])
    window_fec = mean_between(untouched, start_ms, end_ms)
    measures: dict[str, Any] = {
        "cr_window_fec": window_fec,
        "cr_amplitude": window_fec - baseline,
        "startle": _startle_ms(untouched, baseline, us_ms, settings, _ALPHA_MS) is not None,
    }
    beta_ms = _startle_ms(untouched, baseline, us_ms, settings, _BETA_MS)
    if beta_ms is not None and beta_ms < start_ms:
        after = smoothed(untouched, settings.smoothing_ms)[untouched.within(beta_ms, us_ms)]
        measures["beta_startle"] = bool(after.min() - baseline < (after[0] - baseline) / 2.0)
    if window_fec - baseline < _SMALLEST_SOUGHT_FEC:
        return measures
    measures["cr_latency_ms"] = _latency_ms(untouched, baseline, end_ms, settings)
    is_cs_only = trial_type is TrialType.CS_ONLY
    onset = find_onset(
        signal if is_cs_only else untouched,
        baseline,
        settings,
        search_ms=(settings.onset_floor_ms, us_ms),
        reached_ms=end_ms,
    )
    measures["cr_onset_censored"] = Censored.NOT_FOUND
    if onset is not None:
        measures |= {"onset": onset, "cr_onset_criterion_ms": onset.criterion_ms}
        measures |= _onset_parts(onset, settings)
    if is_cs_only:
        from_ms = settings.onset_floor_ms if onset is None else onset.criterion_ms
        latest_ms = us_ms + _CR_PEAK_AFTER_US_MS
        # The top of a CR is flat: twice the width halves what the noise moves its place.
        peak_ms, height = peak_between(signal, from_ms, latest_ms, 2 * settings.smoothing_ms)
        measures["cr_peak_ms"] = peak_ms
        measures["cr_peak_amplitude"] = height - baseline
    return measures


def _latency_ms(
    signal: TrialSignal, baseline: float, end_ms: float, settings: ConditioningSettings
) -> float:
    """Return when closure passes a tenth of its height before the US for the last time.

    NaN where it is higher than that from the CS on.
    """
    window = signal.within(0.0, np.nextafter(end_ms, np.inf))
    level = smoothed(signal, settings.smoothing_ms)[window] - baseline
    if not len(level):
        return math.nan
    needed = _LATENCY_SHARE * float(level.max())
    below = np.flatnonzero(level[: int(level.argmax())] < needed)
    if not len(below):
        return math.nan
    last = int(below[-1])
    times_ms = signal.time_ms[window]
    return float(np.interp(needed, level[last : last + 2], times_ms[last : last + 2]))


def _startle_ms(
    signal: TrialSignal,
    baseline: float,
    us_ms: float,
    settings: ConditioningSettings,
    window_ms: Window,
) -> float | None:
    """Return the peak of a closure of some size that begins in a window after the CS."""
    from_ms, to_ms = window_ms
    latest_ms = min(to_ms + 90.0, us_ms)
    peak_ms, height = peak_between(signal, from_ms, latest_ms, settings.smoothing_ms)
    if not height - baseline >= _STARTLE_FEC:
        return None
    onset = find_onset(signal, baseline, settings, search_ms=(from_ms, to_ms), reached_ms=peak_ms)
    is_startle = onset is not None and from_ms <= onset.estimate_ms()[0] < to_ms
    return peak_ms if is_startle else None


def _ur_measures(
    signal: TrialSignal, baseline: float, us_ms: float, settings: ConditioningSettings
) -> dict[str, Any]:
    start_ms, end_ms = (us_ms + edge for edge in settings.ur_window_ms)
    if missing_share(signal, start_ms, end_ms) > 0.5:
        return {}
    peak_ms, height = peak_between(signal, start_ms, end_ms, settings.smoothing_ms / 2.0)
    return {"ur_amplitude": height - baseline, "ur_peak_ms": peak_ms - us_ms}
