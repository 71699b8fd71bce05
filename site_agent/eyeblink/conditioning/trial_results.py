"""One judged trial, and the columns of the table that lists them."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from site_agent.eyeblink.conditioning.settings import Rejection
from site_agent.eyeblink.conditioning.trial_measures import TrialMeasures
from site_agent.eyeblink.conditioning.trials import TrialType
from site_agent.tables import Column


@dataclass(frozen=True)
class TrialResult:
    """Measures of a trial and what was decided.

    `cr` is None for a rejected or `us_only` trial: nothing is known, which is not "no response".
    """

    measures: TrialMeasures
    rejections: tuple[Rejection, ...]
    cr: bool | None

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
    Column(
        "rejections", "string", "", "Why not: reasons separated by ';', empty for a valid trial"
    ),
    Column("missing_share", "number", "", "Share of the trial's time without valid samples"),
    Column("baseline", "number", "FEC", "Median FEC of the baseline window"),
    Column("baseline_mean", "number", "FEC", "Mean FEC of the baseline window"),
    Column("baseline_sd", "number", "FEC", "Standard deviation of FEC in the baseline window"),
    Column(
        "before_cs_peak", "number", "FEC", "Highest smoothed FEC in the last 100 ms before the CS"
    ),
    Column("startle", "boolean", "", "A closure began within 60 ms after the CS"),
    Column("cr_window_fec", "number", "FEC", "Mean FEC of the CR window before the US"),
    Column("cr_amplitude", "number", "FEC", "The same, less the baseline"),
    Column("cr", "boolean", "", "Whether the trial holds a CR; empty where that cannot be said"),
    Column("cr_onset_ms", "number", "ms", "Estimated begin of the CR after the CS, of CR trials"),
    Column("cr_onset_sd_ms", "number", "ms", "Standard deviation of that estimate"),
    Column(
        "cr_onset_criterion_ms",
        "number",
        "ms",
        "First of two samples of the CR whose velocity passes the threshold, after the CS",
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
    {"cr_onset_ms", "cr_onset_sd_ms", "cr_onset_criterion_ms", "cr_peak_ms", "cr_peak_amplitude"}
)


def trial_rows(results: Sequence[TrialResult]) -> list[dict[str, str | float | bool | None]]:
    """Return a row for each trial with the keys of `TRIAL_COLUMNS`; None where missing.

    Times and heights of a CR are given for trials that hold one.
    """
    return [_row(result) for result in results]


def _row(result: TrialResult) -> dict[str, str | float | bool | None]:
    measures = result.measures
    row: dict[str, str | float | bool | None] = {}
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
            row[column.name] = _plain(getattr(measures, column.name))
    return row


def _plain(value: object) -> str | float | bool | None:
    if isinstance(value, bool):
        return value
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    return str(value)
