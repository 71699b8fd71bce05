"""Trials of a conditioning session: what was presented when, on the clock of the video."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from pathlib import Path

import numpy as np
from numpy.typing import ArrayLike

from site_agent.errors import ConditioningError, TrialFileError
from site_agent.eyeblink.conditioning.delimited_text import TableRow, TextTable, read_text_table

LONGEST_PLAUSIBLE_INTERVAL_S = 10.0
"""A CS-US interval beyond this is remarked on: most likely columns or units were mixed up."""


class TrialType(StrEnum):
    """What a trial presents."""

    CS_ONLY = "cs_only"
    US_ONLY = "us_only"
    PAIRED = "paired"


@dataclass(frozen=True)
class Trial:
    """One trial.

    Attributes
    ----------
    trial : str
        Its number or name, unique in the session.
    trial_type : TrialType
    cs_onset_s : float
        Onset of the conditioned stimulus in seconds on the video's clock; NaN for `us_only`.
    us_onset_s : float
        Onset of the unconditioned stimulus. For `cs_only` the time at which it would have come,
        where the list says so, else NaN.
    line : int
        Line of the file that it comes from, 0 where there is none.
    """

    trial: str
    trial_type: TrialType
    cs_onset_s: float = math.nan
    us_onset_s: float = math.nan
    line: int = 0

    @property
    def reference_s(self) -> float:
        """Time zero of the trial: the CS onset, or the US onset where there is no CS."""
        return self.us_onset_s if self.trial_type is TrialType.US_ONLY else self.cs_onset_s


@dataclass(frozen=True)
class TrialList:
    """The trials of a session by onset, and what was noticed while reading them."""

    trials: tuple[Trial, ...]
    remarks: tuple[str, ...] = ()
    path: Path | None = None


def read_trials_csv(path: Path | str) -> TrialList:
    """Read a list of trials.

    Columns ``trial``, ``trial_type`` (`cs_only`, `us_only` or `paired`), ``cs_onset_s`` and
    ``us_onset_s`` in seconds; ``cs_onset_ms`` and ``us_onset_ms`` in milliseconds are taken too.
    Empty cells and ``n/a`` are missing values. Without a ``trial`` column the trials are numbered
    from 1; without ``trial_type`` the type follows from the onsets that are given. Commas,
    semicolons (also with decimal commas) and tabs separate columns; other columns are ignored.

    Raises
    ------
    TrialFileError
        Every line that cannot be used, with what was found and what to do.
    """
    table = read_text_table(Path(path))
    cs_column, us_column = (_onset_column(table, name) for name in ("cs", "us"))
    if cs_column is None and us_column is None:
        raise TrialFileError(
            table.path,
            [
                (
                    0,
                    f"the columns are {', '.join(table.columns)}; expected trial, trial_type, "
                    "cs_onset_s and us_onset_s (onsets in seconds from the start of the video)",
                )
            ],
        )
    problems: list[tuple[int, str]] = []
    trials: list[Trial] = []
    for number, row in enumerate(table.rows, start=1):
        try:
            trials.append(_trial(row, number, cs_column, us_column))
        except ValueError as error:
            problems.append((row.line, str(error)))
    problems += _repeated_names(trials)
    if not table.rows:
        problems.append((0, "has a header but no trial"))
    if problems:
        raise TrialFileError(table.path, sorted(problems))
    remarks = []
    if "trial_type" not in table.columns:
        remarks.append("no column trial_type: the types follow from the onsets that are given")
    return TrialList(*_in_order(trials, remarks), table.path)


def session_cs_us_interval_ms(trials: Iterable[Trial], default_ms: float) -> tuple[float, bool]:
    """Return the interval from CS to US, and whether the trials tell it.

    The median over the paired trials; without any, over the `cs_only` trials that say when the US
    would have come; else `default_ms` and False.
    """
    known = list(trials)
    for wanted in (TrialType.PAIRED, TrialType.CS_ONLY):
        intervals = [
            (trial.us_onset_s - trial.cs_onset_s) * 1000.0
            for trial in known
            if trial.trial_type is wanted and math.isfinite(trial.us_onset_s - trial.cs_onset_s)
        ]
        if intervals:
            return float(np.median(intervals)), True
    return default_ms, False


def correct_latency(
    trials: Sequence[Trial],
    *,
    latency_ms: float = 0.0,
    us_latency_ms: float | None = None,
    clock_offset_s: float = 0.0,
) -> tuple[Trial, ...]:
    """Move logged onsets to when the stimuli were there, on the clock of the video.

    Parameters
    ----------
    trials : sequence of Trial
    latency_ms : float
        From the logged onset to the stimulus at the participant (a display's delay, the way of
        an air puff through its tube); later is positive.
    us_latency_ms : float, optional
        The same for the US alone, where it differs.
    clock_offset_s : float
        Added to every time: what the video's clock shows when the log's shows zero.
    """
    cs_shift_s = latency_ms / 1000.0 + clock_offset_s
    us_shift_s = (latency_ms if us_latency_ms is None else us_latency_ms) / 1000.0 + clock_offset_s
    if not (math.isfinite(cs_shift_s) and math.isfinite(us_shift_s)):
        raise ConditioningError(
            f"latency {latency_ms} ms, US latency {us_latency_ms} ms, clock offset "
            f"{clock_offset_s} s: expected finite numbers"
        )
    return tuple(
        replace(
            trial,
            cs_onset_s=trial.cs_onset_s + cs_shift_s,
            us_onset_s=trial.us_onset_s + us_shift_s,
        )
        for trial in trials
    )


def trials_from_onsets(
    cs_onsets_s: ArrayLike,
    us_onsets_s: ArrayLike = (),
    *,
    pairing_window_ms: float = 2000.0,
    same_pulse_ms: float = 50.0,
) -> TrialList:
    """Make trials of the onsets of CS and US.

    A CS and the first US that follows it within the window, and before the next CS, are a paired
    trial; a CS without one is `cs_only`, a US without one `us_only`. Further US onsets within the
    window of the same trial (a train of puffs) are left out with a remark.

    Parameters
    ----------
    cs_onsets_s, us_onsets_s : float, shape (n,) and (m,)
        Seconds; any order; NaN are left out.
    pairing_window_ms : float
        Longest CS-US interval.
    same_pulse_ms : float
        Onsets of one channel closer than this count as one (bouncing contacts).
    """
    cs, cs_bounces = _distinct(cs_onsets_s, same_pulse_ms / 1000.0)
    us, us_bounces = _distinct(us_onsets_s, same_pulse_ms / 1000.0)
    remarks = [
        f"{count} {name} onsets within {same_pulse_ms:g} ms of the one before were left out"
        for name, count in (("CS", cs_bounces), ("US", us_bounces))
        if count
    ]
    window_s = pairing_window_ms / 1000.0
    used = np.zeros(len(us), dtype=bool)
    train = 0
    found: list[Trial] = []
    for index, onset_s in enumerate(cs):
        next_s = cs[index + 1] if index + 1 < len(cs) else math.inf
        # The window is closed, with a microsecond for times that were rounded when written.
        inside = (us > onset_s) & (us <= onset_s + window_s + 1e-6) & (us < next_s)
        if inside.any():
            found.append(Trial("", TrialType.PAIRED, float(onset_s), float(us[np.argmax(inside)])))
            train += int(inside.sum()) - 1
            used |= inside
        else:
            found.append(Trial("", TrialType.CS_ONLY, float(onset_s)))
    found += [Trial("", TrialType.US_ONLY, us_onset_s=float(time)) for time in us[~used]]
    if train:
        remarks.append(f"{train} US onsets followed another US of the same trial and were left out")
    found.sort(key=lambda trial: trial.reference_s)
    numbered = [replace(trial, trial=str(number)) for number, trial in enumerate(found, start=1)]
    return TrialList(*_in_order(numbered, remarks))


def _onset_column(table: TextTable, stimulus: str) -> tuple[str, float] | None:
    for suffix, seconds in (("_onset_s", 1.0), ("_onset_ms", 1e-3), ("_onset", 1.0)):
        if stimulus + suffix in table.columns:
            return stimulus + suffix, seconds
    return None


_TYPE_NAMES = {
    "cs_only": TrialType.CS_ONLY,
    "cs": TrialType.CS_ONLY,
    "cs_alone": TrialType.CS_ONLY,
    "csonly": TrialType.CS_ONLY,
    "probe": TrialType.CS_ONLY,
    "us_only": TrialType.US_ONLY,
    "us": TrialType.US_ONLY,
    "us_alone": TrialType.US_ONLY,
    "usonly": TrialType.US_ONLY,
    "paired": TrialType.PAIRED,
    "cs_us": TrialType.PAIRED,
    "csus": TrialType.PAIRED,
}


def _trial(
    row: TableRow,
    number: int,
    cs_column: tuple[str, float] | None,
    us_column: tuple[str, float] | None,
) -> Trial:
    """One row as a trial; ValueError says what is wrong with it."""
    cs_onset_s, us_onset_s = _onset_s(row, cs_column), _onset_s(row, us_column)
    trial_type = _trial_type(row, cs_onset_s, us_onset_s)
    has_cs, has_us = math.isfinite(cs_onset_s), math.isfinite(us_onset_s)
    if trial_type is not TrialType.US_ONLY and not has_cs:
        raise ValueError(f"a {trial_type} trial without cs_onset_s; give it, or delete the line")
    if trial_type is not TrialType.CS_ONLY and not has_us:
        remedy = ", or call the trial cs_only" if has_cs else ""
        raise ValueError(f"a {trial_type} trial without us_onset_s; give it{remedy}")
    if trial_type is TrialType.US_ONLY and has_cs:
        raise ValueError(
            f"a us_only trial with cs_onset_s {cs_onset_s:g}; leave it empty, or call it paired"
        )
    if has_cs and has_us and us_onset_s <= cs_onset_s:
        raise ValueError(
            f"us_onset_s {us_onset_s:g} is not after cs_onset_s {cs_onset_s:g}; both count from "
            "the start of the video (are the columns exchanged?)"
        )
    return Trial(
        row.cells.get("trial", "") or str(number), trial_type, cs_onset_s, us_onset_s, row.line
    )


def _onset_s(row: TableRow, column: tuple[str, float] | None) -> float:
    if column is None:
        return math.nan
    name, seconds = column
    try:
        return row.number(name) * seconds
    except ValueError as error:
        found = row.cells[name]
        expected = "a number without a comma (5000 or 5.000)" if "," in found else "a number"
        raise ValueError(
            f"{name} is {found!r}, expected {expected}, or nothing where there is none"
        ) from error


def _trial_type(row: TableRow, cs_onset_s: float, us_onset_s: float) -> TrialType:
    if "trial_type" not in row.cells:
        has_cs, has_us = math.isfinite(cs_onset_s), math.isfinite(us_onset_s)
        if not (has_cs or has_us):
            raise ValueError("neither cs_onset_s nor us_onset_s is given")
        if has_cs and has_us:
            return TrialType.PAIRED
        return TrialType.CS_ONLY if has_cs else TrialType.US_ONLY
    found = row.cells["trial_type"]
    name = re.sub(r"[\s\-+/]+", "_", found.strip().lower())
    if name not in _TYPE_NAMES:
        raise ValueError(f"trial_type is {found!r}, expected cs_only, us_only or paired")
    return _TYPE_NAMES[name]


def _repeated_names(trials: Sequence[Trial]) -> list[tuple[int, str]]:
    first: dict[str, int] = {}
    problems = []
    for trial in trials:
        if trial.trial in first:
            text = (
                f"trial {trial.trial!r} is on line {first[trial.trial]} too; expected one of each"
            )
            problems.append((trial.line, text))
        first.setdefault(trial.trial, trial.line)
    return problems


def _in_order(
    trials: Sequence[Trial], remarks: Sequence[str]
) -> tuple[tuple[Trial, ...], tuple[str, ...]]:
    ordered = tuple(sorted(trials, key=lambda trial: trial.reference_s))
    more = list(remarks)
    if ordered != tuple(trials):
        more.append("the trials were not in the order of their onsets and have been sorted")
    long = [
        trial
        for trial in ordered
        if trial.us_onset_s - trial.cs_onset_s > LONGEST_PLAUSIBLE_INTERVAL_S
    ]
    if long:
        interval_s = long[0].us_onset_s - long[0].cs_onset_s
        more.append(
            f"trial {long[0].trial} has {interval_s:g} s from CS to US, and {len(long)} trials "
            f"more than {LONGEST_PLAUSIBLE_INTERVAL_S:g} s: are the onsets in seconds?"
        )
    return ordered, tuple(more)


def _distinct(onsets_s: ArrayLike, same_pulse_s: float) -> tuple[np.ndarray, int]:
    """Onsets in order without those that follow another one too closely, and how many these are."""
    onsets = np.sort(np.asarray(onsets_s, dtype=np.float64).ravel())
    onsets = onsets[np.isfinite(onsets)]
    kept: list[float] = []
    for onset_s in onsets:
        if not kept or onset_s - kept[-1] > same_pulse_s:
            kept.append(float(onset_s))
    return np.array(kept, dtype=np.float64), len(onsets) - len(kept)
