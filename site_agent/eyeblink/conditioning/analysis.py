"""Conditioned and unconditioned eyelid responses of a session, trial by trial.

Two steps: `measure_trials` reads amplitudes and times from the trace; `judge_trials` decides
which trials are valid and which hold a CR. Other criteria need the second step only.

A rejected trial is missing. It is never counted as a trial without a response.
"""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import ArrayLike

from site_agent.datasets.trials import Trial, TrialType
from site_agent.errors import ConditioningError
from site_agent.eyeblink.conditioning import (
    EARLIEST_RESPONSE_MS,
    SENSITIVITY_RULES,
    ConditioningSettings,
    CrRule,
    Rejection,
    cr_rule_text,
)
from site_agent.eyeblink.conditioning.summary import (
    SensitivityRow,
    SessionSummary,
    TrialResult,
    summarise,
)
from site_agent.eyeblink.conditioning.trial_measures import (
    TrialMeasures,
    measure_trial,
    share_onset_form,
)
from site_agent.eyeblink.conditioning.trials import session_cs_us_interval_ms
from site_agent.eyeblink.records import Float64
from site_agent.plain_json import plain
from site_agent.wording import count_words

# A trial is rejected where the SD of its baseline exceeds the session's median by this many
# interquartile ranges, but never for an SD of at most the floor, in FEC.
_BASELINE_IQR_FACTOR, _BASELINE_SD_FLOOR = 3.0, 0.02
# A puff that reaches the eye closes it, whether or not the lids are down already.
_LEAST_UR_FEC, _FEWEST_TRIALS_FOR_UR = 0.2, 5
# Lids that are lowest sooner after the begin of the UR window were on their way before the puff.
_SHORTEST_RISE_MS = 20.0
_TWO_CLOCKS = (
    ". If the trials are on a clock of their own, --set clock_offset_s=SECONDS puts them on that "
    "of the recording"
)
MANY_REJECTED = 0.25
"""A larger share of rejected trials is worth a warning."""
# A session with fewer trials has no such limit.
_FEWEST_TRIALS_FOR_IQR = 5


@dataclass(frozen=True, eq=False)
class MeasuredTrials:
    """Measures of all trials of a session, before any decision."""

    trials: tuple[TrialMeasures, ...]
    cs_us_ms: float
    remarks: tuple[str, ...]
    shams: tuple[TrialMeasures, ...] = ()
    """The time before each CS, measured as if the US came just before the CS."""


@dataclass(frozen=True, eq=False)
class ConditioningResult:
    """A session of eyeblink conditioning, its trials in the order of their onsets."""

    trials: tuple[TrialResult, ...]
    summary: SessionSummary
    sensitivity: tuple[SensitivityRow, ...]
    settings: ConditioningSettings
    remarks: tuple[str, ...]

    def to_dict(self) -> dict[str, object]:
        """Return the session's results without the single trials, as plain JSON types."""
        return {
            "summary": plain(self.summary),
            "sensitivity": [row.to_dict() for row in self.sensitivity],
            "settings": plain(self.settings),
            "remarks": list(self.remarks),
        }


def analyse_conditioning(
    timestamps_s: ArrayLike,
    fec: ArrayLike,
    trials: Sequence[Trial],
    settings: ConditioningSettings = ConditioningSettings(),
) -> ConditioningResult:
    """Measure and judge the trials of one session.

    `timestamps_s` (float, shape (n,)): Presentation times of the frames, strictly increasing.
    Neither an even grid nor a complete one is assumed. `fec` (float, shape (n,)): Fraction of
    eyelid closure, unsmoothed; NaN where the eye was not seen.

    Examples
    --------
    >>> from site_agent.datasets.synthetic.conditioning import draw_conditioning_session
    >>> session = draw_conditioning_session(seed=1, frame_rate_hz=120)
    >>> result = analyse_conditioning(session.timestamps_s, session.fec, session.trials)
    >>> result.summary.n_trials
    60
    """
    return judge_trials(measure_trials(timestamps_s, fec, trials, settings), settings)


def measure_trials(
    timestamps_s: ArrayLike,
    fec: ArrayLike,
    trials: Sequence[Trial],
    settings: ConditioningSettings = ConditioningSettings(),
) -> MeasuredTrials:
    """Measure each trial; see `analyse_conditioning` for the parameters and errors."""
    times_s, level = _checked_trace(timestamps_s, fec)
    if not trials:
        raise ConditioningError("there are no trials; give a list of trials with their onsets")
    ordered = sorted(trials, key=lambda trial: trial.reference_s)
    cs_us_ms, is_known = session_cs_us_interval_ms(ordered, settings.default_cs_us_ms)
    remarks = []
    if not is_known and any(trial.trial_type is TrialType.CS_ONLY for trial in ordered):
        remarks.append(
            f"no trial gives the CS-US interval; {cs_us_ms:g} ms are assumed for cs_only trials"
        )
    measures = share_onset_form(
        [measure_trial(times_s, level, trial, cs_us_ms, settings) for trial in ordered], settings
    )
    for reason, where in (
        (Rejection.AFTER_RECORDING, f"after the end of the recording ({times_s[-1]:.3f} s)"),
        (Rejection.BEFORE_RECORDING, f"before its begin ({times_s[0]:.3f} s)"),
    ):
        outside = [trial.trial for trial in measures if reason in trial.unmeasurable]
        if outside:
            listed = ", ".join(outside[:10]) + (" ..." if len(outside) > 10 else "")
            remarks.append(
                f"{len(outside)} of {len(measures)} trials lie {where} and are missing: {listed}"
                + _TWO_CLOCKS * (len(outside) == len(measures))
            )
    earlier_s = (cs_us_ms + EARLIEST_RESPONSE_MS) / 1000.0
    shams = [
        Trial(trial.trial, TrialType.CS_ONLY, trial.cs_onset_s - earlier_s, math.nan)
        for trial in ordered
        if trial.trial_type is not TrialType.US_ONLY
    ]
    return MeasuredTrials(
        measures,
        cs_us_ms,
        tuple(remarks),
        tuple(measure_trial(times_s, level, sham, cs_us_ms, settings) for sham in shams),
    )


def judge_trials(measured: MeasuredTrials, settings: ConditioningSettings) -> ConditioningResult:
    """Decide which trials are valid and which hold a CR."""
    sd_limit = _baseline_sd_limit(measured.trials)
    rest = _median([trial.baseline for trial in measured.trials])
    rejections = [_rejections(trial, sd_limit, rest, settings) for trial in measured.trials]
    ur = _session_ur(measured.trials, rejections)
    results = tuple(
        TrialResult(trial, reasons, _is_cr(trial, reasons, settings, ur))
        for trial, reasons in zip(measured.trials, rejections, strict=True)
    )
    sensitivity = tuple(
        _sensitivity(results, rule, threshold, settings, ur)
        for rule, threshold in SENSITIVITY_RULES
    )
    remarks = list(measured.remarks)
    if settings.cr_rule is CrRule.UR_SHARE and not math.isfinite(ur):
        remarks.append("no UR was measured, so that a share of it cannot be a CR criterion")
    spontaneous = [
        _is_cr(sham, _rejections(sham, sd_limit, rest, settings), settings, ur)
        for sham in measured.shams
    ]
    summary = summarise(
        results,
        measured.cs_us_ms,
        settings.least_valid_trials,
        [is_cr for is_cr in spontaneous if is_cr is not None],
    )
    remarks += _rejection_remarks(summary, settings)
    remarks += _ur_remarks(results, settings)
    return ConditioningResult(results, summary, sensitivity, settings, tuple(remarks))


def _rejection_remarks(summary: SessionSummary, settings: ConditioningSettings) -> list[str]:
    """Name the trials that were rejected where they are many."""
    rejected = summary.n_trials - summary.n_valid
    if not summary.withheld and rejected <= MANY_REJECTED * summary.n_trials:
        return []
    reasons = ", ".join(
        f"{reason} {count}" for reason, count in sorted(summary.rejected_by_reason.items())
    )
    remark = f"{rejected} of {summary.n_trials} trials are rejected ({reasons or 'none'})"
    if summary.withheld:
        remark += (
            f"; a study leaves the session out, for {summary.n_cs_valid} trials with a CS are "
            f"valid (least_valid_trials={settings.least_valid_trials})"
        )
    if Rejection.NO_BASELINE in summary.rejected_by_reason:
        start_ms, end_ms = settings.baseline_ms
        remark += (
            f". Fewer than {settings.least_baseline_samples} frames with eyes lie {start_ms:g} to "
            f"{end_ms:g} ms after the CS: --set least_baseline_samples=1 takes fewer, and --set "
            f"baseline_ms={start_ms:g},{EARLIEST_RESPONSE_MS:g} reaches to the earliest response"
        )
    return [remark]


def _ur_remarks(results: Sequence[TrialResult], settings: ConditioningSettings) -> Iterator[str]:
    """Doubt the clock of the trials, or the puff, where hardly any US is answered."""
    measured = [
        result.measures
        for result in results
        if result.valid
        and result.measures.trial_type is not TrialType.CS_ONLY
        and math.isfinite(result.measures.ur_amplitude)
    ]
    # CRs that peak at the US look like URs before a late US: trials without them tell the two
    # apart. Of a late list hardly any trial is left, for URs fall into the window of the CR.
    without_cr = [trial for trial in measured if not trial.cr_amplitude >= _LEAST_UR_FEC]
    told_apart = len(without_cr) >= _FEWEST_TRIALS_FOR_UR
    judged = without_cr if told_apart else measured
    start_ms, end_ms = settings.ur_window_ms
    unanswered = sum(
        trial.ur_amplitude < _LEAST_UR_FEC
        or trial.ur_amplitude < trial.cr_amplitude
        or trial.ur_peak_ms <= start_ms + _SHORTEST_RISE_MS
        for trial in judged
    )
    if len(judged) >= _FEWEST_TRIALS_FOR_UR and unanswered > len(judged) / 2:
        yield (
            f"in {unanswered} of {count_words(len(judged), 'trial')} with a US"
            f"{' and no CR' * told_apart} the lids do not close {start_ms:g} to {end_ms:g} ms "
            "after it, or close before: is the list on the clock of the recording (--set "
            "clock_offset_s=SECONDS), and did the puff reach the eye"
            f"{', or do the CRs close the lids before the US comes' * (not told_apart)}?"
        )


def _checked_trace(timestamps_s: ArrayLike, fec: ArrayLike) -> tuple[Float64, Float64]:
    times_s = np.asarray(timestamps_s, dtype=np.float64)
    level = np.asarray(fec, dtype=np.float64)
    if times_s.ndim != 1 or times_s.shape != level.shape:
        raise ConditioningError(
            f"timestamps have shape {times_s.shape} and FEC {level.shape}; expected one value for "
            "each frame"
        )
    if len(times_s) < 2:
        raise ConditioningError(f"the trace has {len(times_s)} frames, expected at least 2")
    if not (np.diff(times_s) > 0).all():
        raise ConditioningError("the timestamps do not increase")
    return times_s, level


def _baseline_sd_limit(trials: Sequence[TrialMeasures]) -> float:
    spreads = [trial.baseline_sd for trial in trials if math.isfinite(trial.baseline_sd)]
    if len(spreads) < _FEWEST_TRIALS_FOR_IQR:
        return math.inf
    lower, median, upper = np.percentile(spreads, [25, 50, 75])
    return max(float(median + _BASELINE_IQR_FACTOR * (upper - lower)), _BASELINE_SD_FLOOR)


def _rejections(
    trial: TrialMeasures, sd_limit: float, rest: float, settings: ConditioningSettings
) -> tuple[Rejection, ...]:
    if trial.unmeasurable:
        return trial.unmeasurable
    broken = {
        Rejection.MISSING_SAMPLES: trial.missing_share > settings.largest_missing_share,
        Rejection.UNSTABLE_BASELINE: trial.baseline_sd > sd_limit,
        Rejection.CLOSED_BEFORE_CS: trial.before_cs_peak - rest > settings.closed_before_cs_fec,
    }
    return tuple(rule for rule in settings.reject_rules if broken[rule])


def _session_ur(
    trials: Sequence[TrialMeasures], rejections: Sequence[tuple[Rejection, ...]]
) -> float:
    """Return the median UR amplitude of valid `us_only` trials, or else of paired ones."""
    for trial_type in (TrialType.US_ONLY, TrialType.PAIRED):
        amplitudes = [
            trial.ur_amplitude
            for trial, reasons in zip(trials, rejections, strict=True)
            if not reasons and trial.trial_type is trial_type
        ]
        if any(math.isfinite(amplitude) for amplitude in amplitudes):
            return _median(amplitudes)
    return math.nan


def _is_cr(
    trial: TrialMeasures, reasons: tuple[Rejection, ...], settings: ConditioningSettings, ur: float
) -> bool | None:
    """Return whether the trial holds a CR; None if that cannot be decided."""
    if reasons or trial.trial_type is TrialType.US_ONLY:
        return None
    if settings.cr_rule is CrRule.BASELINE_SD:
        if not math.isfinite(trial.baseline_sd):
            return None
        height = trial.cr_window_fec - trial.baseline_mean
        # Closure clipped at 0 has no spread, and none at all is no response.
        is_cr = height > 0.0 and height >= settings.cr_threshold * trial.baseline_sd
    elif settings.cr_rule is CrRule.UR_SHARE:
        if not math.isfinite(ur):
            return None
        is_cr = trial.cr_amplitude >= settings.cr_threshold * ur
    else:
        is_cr = trial.cr_amplitude >= settings.cr_threshold
    if settings.cr_needs_onset:
        is_cr = is_cr and trial.onset is not None
    return bool(is_cr)


def _sensitivity(
    results: Sequence[TrialResult],
    rule: CrRule,
    threshold: float,
    settings: ConditioningSettings,
    ur: float,
) -> SensitivityRow:
    other = replace(settings, cr_rule=rule, cr_threshold=threshold)
    decisions = [_is_cr(result.measures, result.rejections, other, ur) for result in results]
    known = [decision for decision in decisions if decision is not None]
    return SensitivityRow(cr_rule_text(rule, threshold), len(known), sum(known))


def _median(values: Sequence[float]) -> float:
    known = [value for value in values if math.isfinite(value)]
    return float(np.median(known)) if known else math.nan
