"""The results of a conditioning session: one row a trial, and a few numbers for all."""

import math
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from site_agent.datasets.trials import TrialType
from site_agent.eyeblink.conditioning import Censored, Rejection
from site_agent.eyeblink.conditioning.trial_measures import TrialMeasures
from site_agent.plain_json import plain
from site_agent.tables import Column


@dataclass(frozen=True)
class TrialResult:
    """Measures of a trial and the decisions on it."""

    measures: TrialMeasures
    rejections: tuple[Rejection, ...]
    cr: bool | None
    """None for a rejected or `us_only` trial: nothing is known, which is not "no response"."""

    @property
    def valid(self) -> bool:
        return not self.rejections

    @property
    def has_cs(self) -> bool:
        return self.measures.trial_type is not TrialType.US_ONLY


TRIAL_COLUMNS: tuple[Column, ...] = (
    Column("trial", "string", "", "Number or name of the trial"),
    Column("trial_type", "string", "", "cs_only, us_only or paired"),
    Column("cs_onset_s", "number", "s", "Onset of the CS on the video's clock"),
    Column(
        "us_onset_s",
        "number",
        "s",
        "Onset of the US; for cs_only trials when it would have come by the CS-US interval",
    ),
    Column("valid", "boolean", "", "Whether the trial enters the session's results"),
    Column("rejections", "string", "", "Reasons for rejection, separated by ';'; empty if valid"),
    Column("missing_share", "number", "", "Share of the trial's time without valid samples"),
    Column("baseline", "number", "FEC", "Median FEC of the baseline window"),
    Column("baseline_mean", "number", "FEC", "Mean FEC of the baseline window"),
    Column("baseline_sd", "number", "FEC", "Standard deviation of FEC in the baseline window"),
    Column(
        "before_cs_peak", "number", "FEC", "Highest smoothed FEC in the last 100 ms before the CS"
    ),
    Column("startle", "boolean", "", "A closure began within 60 ms after the CS (alpha response)"),
    Column(
        "beta_startle",
        "boolean",
        "",
        "A closure began 120 to 240 ms after the CS and was half over before the US",
    ),
    Column("cr_window_fec", "number", "FEC", "Mean FEC of the CR window before the US"),
    Column("cr_amplitude", "number", "FEC", "Mean FEC of the CR window, less the baseline"),
    Column("cr", "boolean", "", "Whether the trial holds a CR; empty where that cannot be said"),
    Column("cr_onset_ms", "number", "ms", "Estimated onset of the CR after the CS, in CR trials"),
    Column("cr_onset_sd_ms", "number", "ms", "Standard deviation of that estimate"),
    Column(
        "cr_onset_censored",
        "string",
        "",
        "Why a CR has no onset: early (at or before the earliest onset sought) or not-found",
    ),
    Column(
        "cr_onset_criterion_ms",
        "number",
        "ms",
        "First of two samples of the CR whose velocity passes the threshold, after the CS",
    ),
    Column(
        "cr_latency_ms",
        "number",
        "ms",
        "Time from the CS until closure last passes 10 % of its height before the US; CR trials",
    ),
    Column(
        "cr_peak_ms", "number", "ms", "Time of the CR's peak after the CS, of cs_only CR trials"
    ),
    Column("cr_peak_amplitude", "number", "FEC", "FEC at that peak, less the baseline"),
    Column("ur_amplitude", "number", "FEC", "FEC at the UR's peak, less the baseline"),
    Column("ur_peak_ms", "number", "ms", "Time of the UR's peak after the US"),
)
"""Columns of ``*_trials.csv``; empty cells are missing values."""

_ONLY_WITH_CR = frozenset(
    {
        "cr_onset_ms",
        "cr_onset_sd_ms",
        "cr_onset_censored",
        "cr_onset_criterion_ms",
        "cr_latency_ms",
        "cr_peak_ms",
        "cr_peak_amplitude",
    }
)


def trial_rows(results: Sequence[TrialResult]) -> list[dict[str, Any]]:
    """Return a row for each trial with the keys of `TRIAL_COLUMNS`; None where missing.

    Times and heights of a CR are given for trials that hold one.
    """
    return [_row(result) for result in results]


def _row(result: TrialResult) -> dict[str, Any]:
    row: dict[str, Any] = {}
    for column in TRIAL_COLUMNS:
        if column.name == "valid":
            row[column.name] = result.valid
        elif column.name == "rejections":
            row[column.name] = ";".join(result.rejections)
        elif column.name == "cr":
            row[column.name] = result.cr
        elif column.name in _ONLY_WITH_CR and not result.cr:
            row[column.name] = None
        else:
            row[column.name] = plain(getattr(result.measures, column.name))
    return row


@dataclass(frozen=True)
class SensitivityRow:
    """The number of a session's CRs under one criterion, of the trials that it can judge."""

    criterion: str
    n_valid: int
    n_cr: int

    @property
    def cr_percent(self) -> float:
        return 100.0 * self.n_cr / self.n_valid if self.n_valid else math.nan

    def to_dict(self) -> dict[str, object]:
        """Return plain JSON types, None for NaN."""
        return {**plain(self), "cr_percent": plain(self.cr_percent)}


@dataclass(frozen=True)
class SessionSummary:
    """The session's results; NaN where no trial can show them."""

    n_trials: int
    n_valid: int
    n_cs_valid: int
    n_cr: int
    n_us_only_valid: int
    n_startle: int
    n_beta_startle: int
    trials_by_type: Mapping[str, int]
    rejected_by_reason: Mapping[str, int]
    """A trial with two reasons counts in both."""
    n_cs_only_valid: int
    n_cr_cs_only: int
    cr_percent_cs_only: float
    """Valid trials, CRs and their percentage, for trials with the CS alone."""
    cr_percent: float
    cr_percent_low: float
    cr_percent_high: float
    """CRs per valid trial with a CS, and the 95 % interval (Wilson 1927)."""
    spontaneous_percent: float
    """Percentage of the periods before the CS, judged like trials, that hold a response."""
    cr_percent_corrected: float
    """Percentage of CRs corrected for spontaneous responses (W. S. Abbott 1925); at least 0."""
    amplitude_all: float
    amplitude_cr: float
    onset_ms: float
    onset_sd_ms: float
    n_onset_early: int
    n_onset_not_found: int
    """CRs without an onset, which the mean and SD leave out."""
    latency_ms: float
    peak_ms: float
    ur_amplitude: float
    ur_peak_ms: float
    cs_us_ms: float
    withheld: bool = False
    """Too few trials are valid for a study to count the session."""

    @property
    def left_out(self) -> str:
        """Which trials the count of CRs leaves out, in words; empty for none."""
        counts = {
            "rejected": self.n_trials - self.n_valid,
            "US alone": self.n_us_only_valid,
            "not judged": self.n_valid - self.n_us_only_valid - self.n_cs_valid,
        }
        return ", ".join(f"{count} {why}" for why, count in counts.items() if count)


def summarise(
    results: Sequence[TrialResult],
    cs_us_ms: float,
    least_valid_trials: int = 1,
    shams: Sequence[bool] = (),
) -> SessionSummary:
    """Put the results of a session's trials together.

    `shams`: whether the times before each CS, judged like trials, hold a response.
    """
    valid = [result for result in results if result.valid]
    with_cs = [result for result in valid if result.has_cs and result.cr is not None]
    with_cr = [result for result in with_cs if result.cr]
    probes = [result for result in with_cr if result.measures.trial_type is TrialType.CS_ONLY]
    low, high = wilson_interval_percent(len(with_cr), len(with_cs))
    censored = Counter(result.measures.cr_onset_censored for result in with_cr)
    n_probes = sum(result.measures.trial_type is TrialType.CS_ONLY for result in with_cs)
    n_cs = sum(result.has_cs for result in results)
    reasons = Counter(str(reason) for result in results for reason in result.rejections)
    types = Counter(str(result.measures.trial_type) for result in results)
    cr_share = len(with_cr) / len(with_cs) if with_cs else math.nan
    spontaneous = sum(shams) / len(shams) if shams else math.nan
    corrected = (cr_share - spontaneous) / (1.0 - spontaneous) if spontaneous < 1.0 else math.nan
    return SessionSummary(
        n_trials=len(results),
        n_valid=len(valid),
        n_cs_valid=len(with_cs),
        n_cr=len(with_cr),
        n_us_only_valid=sum(not result.has_cs for result in valid),
        n_startle=sum(result.measures.startle for result in valid if result.has_cs),
        n_beta_startle=sum(result.measures.beta_startle for result in valid if result.has_cs),
        trials_by_type=dict(types),
        rejected_by_reason=dict(reasons),
        n_cs_only_valid=n_probes,
        n_cr_cs_only=len(probes),
        cr_percent_cs_only=100.0 * len(probes) / n_probes if n_probes else math.nan,
        cr_percent=100.0 * cr_share,
        spontaneous_percent=100.0 * spontaneous,
        cr_percent_corrected=100.0 * max(corrected, 0.0) if math.isfinite(corrected) else math.nan,
        cr_percent_low=low,
        cr_percent_high=high,
        amplitude_all=_mean(with_cs, lambda measures: measures.cr_amplitude),
        amplitude_cr=_mean(with_cr, lambda measures: measures.cr_amplitude),
        onset_ms=_mean(with_cr, lambda measures: measures.cr_onset_ms),
        onset_sd_ms=_sd(result.measures.cr_onset_ms for result in with_cr),
        n_onset_early=censored[Censored.EARLY],
        n_onset_not_found=censored[Censored.NOT_FOUND],
        latency_ms=_mean(with_cr, lambda measures: measures.cr_latency_ms),
        peak_ms=_mean(probes, lambda measures: measures.cr_peak_ms),
        ur_amplitude=_mean(valid, lambda measures: measures.ur_amplitude),
        ur_peak_ms=_mean(valid, lambda measures: measures.ur_peak_ms),
        cs_us_ms=cs_us_ms,
        withheld=len(with_cs) < min(least_valid_trials, n_cs / 2.0),
    )


def wilson_interval_percent(count: int, of: int) -> tuple[float, float]:
    """Return the 95 % interval of a percentage; (NaN, NaN) if `of` is 0.

    E. B. Wilson, "Probable inference, the law of succession, and statistical inference", Journal
    of the American Statistical Association 22 (1927).
    """
    # Help pages and settings are read where the extra [vision] is absent.
    from scipy.stats import binomtest

    if of == 0:
        return math.nan, math.nan
    interval = binomtest(count, of).proportion_ci(method="wilson")
    return 100.0 * float(interval.low), 100.0 * float(interval.high)


def _mean(results: Iterable[TrialResult], value: Callable[[TrialMeasures], float]) -> float:
    known = [value(result.measures) for result in results]
    known = [number for number in known if math.isfinite(number)]
    return float(np.mean(known)) if known else math.nan


def _sd(values: Iterable[float]) -> float:
    known = [value for value in values if math.isfinite(value)]
    return float(np.std(known, ddof=1)) if len(known) > 1 else math.nan
