"""Trials of a conditioning session: types and onsets of their stimuli on the clock of the video."""

import math
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from difflib import get_close_matches
from itertools import pairwise
from pathlib import Path

import numpy as np
from numpy.typing import ArrayLike, NDArray
from pydantic import Field

from site_agent import text_tables
from site_agent.datasets.trials import Trial, TrialType
from site_agent.errors import ConditioningError, TableFileError
from site_agent.eyeblink.records import Float64
from site_agent.settings import Settings
from site_agent.wording import count_words

SHORTEST_PLAUSIBLE_INTERVAL_S, LONGEST_PLAUSIBLE_INTERVAL_S = 0.05, 10.0
"""Other CS-US intervals give a warning: most likely columns or units were mixed up."""
# No stimulus, response and reopening of the lids fit into less.
_SHORTEST_TRIAL_S = 1.0
# Onsets of one channel closer than this count as one (bouncing contacts).
_SAME_PULSE_S = 0.050


@dataclass(frozen=True)
class TrialList:
    """The trials of a session by onset, with remarks from reading them."""

    trials: tuple[Trial, ...]
    remarks: tuple[str, ...] = ()
    path: Path | None = None


def read_trials_csv(path: Path | str) -> TrialList:
    """Read a list of trials; see `trials_of`."""
    return trials_of(text_tables.read_table(Path(path)))


def trials_of(table: text_tables.TextTable, *, rename_repeated: bool = False) -> TrialList:
    """Return the trials that a table lists.

    Columns ``trial``, ``trial_type`` (`cs_only`, `us_only` or `paired`), ``cs_onset_s`` and
    ``us_onset_s`` in seconds, or ``cs_onset_ms`` and ``us_onset_ms``. Without ``trial`` the trials
    are numbered from 1; without ``trial_type`` the onsets decide. Other columns are kept as they
    are (`Trial.others`) and named in a remark; one that seems to be a misspelled column is refused.
    `rename_repeated`: The second trial 3, as after a restart, is ``3-2``.
    """
    if not is_trial_list(table):
        raise TableFileError(
            table.path,
            [
                (
                    1,
                    f"the columns are {table.named()}; expected trial, trial_type, cs_onset_s and "
                    "us_onset_s (onsets in seconds from the start of the video)",
                )
            ],
        )
    if not len(table):
        raise TableFileError(table.path, "has a header but no trial")
    problems: list[tuple[int, str]] = []
    trials: list[Trial] = []
    named: Counter[str] = Counter()
    other_columns = [name for name in table.columns if name not in _TRIAL_COLUMNS]
    _check_columns(table, other_columns)
    onsets_s = zip(_onsets_s(table, "cs"), _onsets_s(table, "us"), strict=True)
    for number, (row, (cs_s, us_s)) in enumerate(zip(table.rows, onsets_s, strict=True), start=1):
        name = row.cells.get("trial", "") or str(number)
        named[name] += 1
        if rename_repeated and named[name] > 1:
            name = f"{name}-{named[name]}"
        try:
            trial_type = _trial_type(row.cells.get("trial_type"), cs_s, us_s)
            others = tuple((key, row.cells.get(key, "")) for key in other_columns)
            trials.append(Trial(name, trial_type, cs_s, us_s, row.line, others))
            _check(trials[-1])
        except ValueError as error:
            problems.append((row.line, str(error)))
    problems += _repeated_names(trials)
    if problems:
        raise TableFileError(table.path, sorted(problems))
    ordered, remarks = _in_order(trials)
    return TrialList(
        ordered, (*_column_remarks(table, ordered, other_columns), *remarks), table.path
    )


def _column_remarks(
    table: text_tables.TextTable, trials: Sequence[Trial], other_columns: Sequence[str]
) -> Iterator[str]:
    name = table.path.name
    if "trial_type" not in table.columns and not any(
        math.isfinite(trial.us_onset_s) for trial in trials
    ):
        yield (
            f"{name}: no trial has a US, and there is no column trial_type: all trials were taken "
            "as cs_only"
        )
    if other_columns:
        listed = ", ".join(other_columns[:12]) + " ..." * (len(other_columns) > 12)
        yield f"{name}: only copied, not used: {listed}"


def is_trial_list(table: text_tables.TextTable) -> bool:
    """Return whether a table has a column of CS or US onsets."""
    return any(f"{name}_onset_{unit}" in table.columns for name in ("cs", "us") for unit in _UNITS)


def session_cs_us_interval_ms(trials: Iterable[Trial], default_ms: float) -> tuple[float, bool]:
    """Return the interval from CS to US, and whether the trials give it.

    The median over the paired trials; without any, over the `cs_only` trials that say when the US
    would have come; else `default_ms` and False.
    """
    known = list(trials)
    for trial_type in (TrialType.PAIRED, TrialType.CS_ONLY):
        intervals = [
            (trial.us_onset_s - trial.cs_onset_s) * 1000.0
            for trial in known
            if trial.trial_type is trial_type and math.isfinite(trial.us_onset_s - trial.cs_onset_s)
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

    The parameters are those of `TrialTiming`.
    """
    cs_shift_s = latency_ms / 1000.0 + clock_offset_s
    us_shift_s = (latency_ms if us_latency_ms is None else us_latency_ms) / 1000.0 + clock_offset_s
    return tuple(
        replace(
            trial,
            cs_onset_s=trial.cs_onset_s + cs_shift_s,
            us_onset_s=trial.us_onset_s + us_shift_s,
        )
        for trial in trials
    )


def trials_from_onsets(
    cs_onsets_s: ArrayLike, us_onsets_s: ArrayLike = (), *, pairing_window_ms: float = 2000.0
) -> TrialList:
    """Make trials of the onsets of CS and US.

    A CS and the first US that follows it within the window, and before the next CS, are a paired
    trial; a CS without one is `cs_only`, a US without one `us_only`. Further US onsets within the
    window of the same trial (a train of puffs) are left out with a remark.

    `cs_onsets_s`, `us_onsets_s` (float, shape (n,) and (m,)): Seconds; any order; NaN are left out.
    `pairing_window_ms`: Longest CS-US interval.
    """
    cs, cs_bounces = _distinct(cs_onsets_s)
    us, us_bounces = _distinct(us_onsets_s)
    remarks = [
        f"{count} {name} onsets within {_SAME_PULSE_S * 1000:g} ms of the one before were left out"
        for name, count in (("CS", cs_bounces), ("US", us_bounces))
        if count
    ]
    window_s = pairing_window_ms / 1000.0
    used = np.zeros(len(us), dtype=bool)
    train = 0
    trials: list[Trial] = []
    for index, onset_s in enumerate(cs):
        next_s = cs[index + 1] if index + 1 < len(cs) else math.inf
        # The window is closed, with a microsecond for times that were rounded when written.
        inside = (us > onset_s) & (us <= onset_s + window_s + 1e-6) & (us < next_s)
        if inside.any():
            trials.append(Trial("", TrialType.PAIRED, float(onset_s), float(us[np.argmax(inside)])))
            train += int(inside.sum()) - 1
            used |= inside
        else:
            trials.append(Trial("", TrialType.CS_ONLY, float(onset_s)))
    trials += [Trial("", TrialType.US_ONLY, us_onset_s=float(time)) for time in us[~used]]
    if train:
        remarks.append(f"{train} US onsets followed another US of the same trial and were left out")
    trials.sort(key=lambda trial: trial.reference_s)
    numbered = [replace(trial, trial=str(number)) for number, trial in enumerate(trials, start=1)]
    ordered, more = _in_order(numbered)
    return TrialList(ordered, (*remarks, *more))


_UNITS = {"s": 1.0, "ms": 1e-3}
_TRIAL_COLUMNS = frozenset(
    {"trial", "trial_type"} | {f"{name}_onset_{unit}" for name in ("cs", "us") for unit in _UNITS}
)


def _onsets_s(table: text_tables.TextTable, stimulus: str) -> NDArray[np.float64]:
    for unit, factor in _UNITS.items():
        if (column := f"{stimulus}_onset_{unit}") in table.columns:
            return table.seconds(column, factor)
    return np.full(len(table), np.nan)


_TYPES_WITH = {
    "cs": (TrialType.PAIRED, TrialType.CS_ONLY),
    "us": (TrialType.PAIRED, TrialType.US_ONLY),
}


def _check_columns(table: text_tables.TextTable, other_columns: Sequence[str]) -> None:
    """Raise `TableFileError` where a column is missing that trials need, or is misspelled."""
    types = {_type_name(cell) for cell in table.texts.get("trial_type", ())}
    problems = []
    for stimulus, needing in _TYPES_WITH.items():
        expected = f"{stimulus}_onset_s"
        if table.first_of([f"{stimulus}_onset_{unit}" for unit in _UNITS]) is not None:
            continue
        needed = [str(name) for name in needing if name in types]
        other = "us_" if stimulus == "cs" else "cs_"
        near = [
            name
            for name in other_columns
            if (needed or not types)
            and not name.startswith((other, "cr_", "ur_"))
            and (name.split("_")[0] == stimulus or "onset" in name or _is_near(name, expected))
            and any(map(str.isdigit, "".join(table.texts[name])))
        ]
        if near:
            meant = f"{stimulus}_onset_ms" if near[0].endswith("_ms") else expected
            problems.append(
                f"the column {near[0]!r} is not known; did you mean {meant}? If not, rename "
                "it, or add a column trial_type"
            )
        elif needed:
            problems.append(f"a {needed[0]} trial needs a column {expected}, which is missing")
    if not types:
        problems += [
            f"the column {name!r} is not known; did you mean trial_type?"
            for name in other_columns
            if _is_near(name, "trial_type")
            or {_type_name(cell) for cell in table.texts[name]} <= set(TrialType)
        ]
    if problems:
        problems.append(f"the columns are {table.named()}")
        raise TableFileError(table.path, [(1, text) for text in problems])


def _is_near(name: str, known: str) -> bool:
    return bool(get_close_matches(name, [known], cutoff=0.85))


def _type_name(cell: str) -> str:
    return re.sub(r"[\s\-]+", "_", cell.lower())


def _trial_type(cell: str | None, cs_onset_s: float, us_onset_s: float) -> TrialType:
    if cell is not None:
        name = _type_name(cell)
        if name not in set(TrialType):
            raise ValueError(f"trial_type is {cell!r}, expected cs_only, us_only or paired")
        return TrialType(name)
    has_cs, has_us = math.isfinite(cs_onset_s), math.isfinite(us_onset_s)
    if has_cs and has_us:
        return TrialType.PAIRED
    return TrialType.US_ONLY if has_us else TrialType.CS_ONLY


def _check(trial: Trial) -> None:
    """Raise ValueError where the onsets do not fit the type."""
    has_cs, has_us = math.isfinite(trial.cs_onset_s), math.isfinite(trial.us_onset_s)
    if trial.trial_type is not TrialType.US_ONLY and not has_cs:
        raise ValueError(f"a {trial.trial_type} trial needs cs_onset_s")
    if trial.trial_type is not TrialType.CS_ONLY and not has_us:
        raise ValueError(f"a {trial.trial_type} trial needs us_onset_s")
    if trial.trial_type is TrialType.US_ONLY and has_cs:
        raise ValueError("a us_only trial has cs_onset_s; leave it empty, or call the trial paired")
    if has_cs and has_us and trial.us_onset_s <= trial.cs_onset_s:
        raise ValueError(
            f"us_onset_s {trial.us_onset_s:g} is not after cs_onset_s {trial.cs_onset_s:g}"
        )


def _repeated_names(trials: Sequence[Trial]) -> list[tuple[int, str]]:
    first: dict[str, int] = {}
    problems = []
    for trial in trials:
        if trial.trial in first:
            text = (
                f"trial {trial.trial!r} is on line {first[trial.trial]} too; expected one of "
                "each, or rename_repeated=yes where the numbers began again"
            )
            problems.append((trial.line, text))
        first.setdefault(trial.trial, trial.line)
    return problems


def _in_order(trials: Sequence[Trial]) -> tuple[tuple[Trial, ...], tuple[str, ...]]:
    """Return the trials by their onsets, and remarks on times of no such experiment."""
    ordered = tuple(sorted(trials, key=lambda trial: trial.reference_s))
    odd = [
        trial
        for trial in ordered
        if math.isfinite(interval_s := trial.us_onset_s - trial.cs_onset_s)
        and not SHORTEST_PLAUSIBLE_INTERVAL_S <= interval_s <= LONGEST_PLAUSIBLE_INTERVAL_S
    ]
    remarks = []
    if odd:
        interval_s = odd[0].us_onset_s - odd[0].cs_onset_s
        remarks.append(
            f"{count_words(len(odd), 'trial has', 'trials have')} an implausible time from CS to "
            f"US ({interval_s:.4g} s in trial {odd[0].trial}; expected "
            f"{SHORTEST_PLAUSIBLE_INTERVAL_S:g} to {LONGEST_PLAUSIBLE_INTERVAL_S:g} s): are the "
            "onsets in seconds?"
        )
    close = [
        later.trial
        for earlier, later in pairwise(ordered)
        if later.reference_s - earlier.reference_s < _SHORTEST_TRIAL_S
    ]
    if close:
        remarks.append(
            f"{count_words(len(close), 'trial begins', 'trials begin')} less than "
            f"{_SHORTEST_TRIAL_S:g} s after another one (trial {close[0]}), so that one response "
            "counts more than once: are rows repeated, are ends listed as onsets, or do "
            "the times count from each trial's start?"
        )
    return ordered, tuple(remarks)


def _distinct(onsets_s: ArrayLike) -> tuple[np.ndarray, int]:
    """Drop onsets that follow another too closely; return the rest, and the dropped number."""
    onsets = np.sort(np.asarray(onsets_s, dtype=np.float64).ravel())
    onsets = onsets[np.isfinite(onsets)]
    kept: list[float] = []
    for onset_s in onsets:
        if not kept or onset_s - kept[-1] > _SAME_PULSE_S:
            kept.append(float(onset_s))
    return np.array(kept, dtype=np.float64), len(onsets) - len(kept)


_CHANNEL_COLUMNS = ("channel", "event", "trial_type")
_HIGH = frozenset({"1", "high", "on", "true", "rising"})
_LOW = frozenset({"0", "low", "off", "false", "falling"})


class TtlSettings(Settings, error=ConditioningError):
    """Settings that say which pulses are stimuli, and which belong together."""

    cs_channel: str = "CS"
    """Name (or number) of the channel; case does not matter."""
    us_channel: str = "US"
    """The same of the US."""
    pairing_window_ms: float = 2000.0
    """Longest CS-US interval."""


def trials_of_pulses(
    table: text_tables.TextTable, settings: TtlSettings = TtlSettings()
) -> TrialList:
    """Return the trials that a log of pulses shows.

    A log has a column ``time_s``, ``timestamp_s``, ``time_ms`` or ``timestamp_ms``, or ``onset``
    in seconds, and is one of these:

    - events: ``time_s, event`` with one row for each onset (``channel``, or ``trial_type``,
      instead of ``event``);
    - edges: ``time_s, channel, edge`` with ``rising`` and ``falling``: every rising edge is an
      onset;
    - states: ``time_s, channel, state`` with 1 and 0, high and low, or on and off: a change to
      high is an onset;
    - levels: ``time_s, CS, US``, one column a channel, high above half of the column's range.

    Other channels are ignored. Times stay on the log's clock; see `correct_latency`.
    """
    times_s = _times_s(table)
    channel_column = table.first_of(_CHANNEL_COLUMNS)
    onsets = [
        _level_onsets(table, times_s, name)
        if channel_column is None
        else _row_onsets(table, times_s, channel_column, name)
        for name in (settings.cs_channel, settings.us_channel)
    ]
    channels = table.columns if channel_column is None else table.cells(channel_column)
    listed = ", ".join(list(dict.fromkeys(channels))[:12]) or "none"
    if not any(len(times) for times in onsets):
        raise TableFileError(
            table.path,
            f"no pulse on the channels {settings.cs_channel!r} (CS) and "
            f"{settings.us_channel!r} (US); found {listed}; name the channels of CS and US",
        )
    paired = trials_from_onsets(*onsets, pairing_window_ms=settings.pairing_window_ms)
    remarks = list(paired.remarks)
    for name, channel, times, left in (
        ("cs", settings.cs_channel, onsets[0], TrialType.US_ONLY),
        ("us", settings.us_channel, onsets[1], TrialType.CS_ONLY),
    ):
        if not times:
            remarks.append(
                f"{table.path.name}: no pulse on the channel {channel!r}; found {listed}, so that "
                f"all trials are {left}; if the {name.upper()} has another name, --set "
                f"{name}_channel=NAME"
            )
    if all(onsets) and not any(one.trial_type is TrialType.PAIRED for one in paired.trials):
        remarks.append(
            f"{table.path.name}: no US follows a CS within {settings.pairing_window_ms:g} ms "
            "(pairing_window_ms): are the times in the unit that their column says, or are CS and "
            "US unpaired on purpose?"
        )
    return replace(paired, path=table.path, remarks=tuple(remarks))


def _times_s(table: text_tables.TextTable) -> Float64:
    if table.first_of(text_tables.TIME_COLUMNS) is None and "onset" in table.columns:
        times_s = table.seconds("onset")
    elif table.first_of(text_tables.TIME_COLUMNS) is None:
        raise TableFileError(
            table.path,
            [
                (
                    1,
                    f"the columns are {table.named()}; expected cs_onset_s and us_onset_s for a "
                    f"list of trials, or one of {', '.join(text_tables.TIME_COLUMNS)} for a log of "
                    "pulses",
                )
            ],
        )
    else:
        times_s = table.times_s()
    missing = np.flatnonzero(np.isnan(times_s)).tolist()
    if missing:
        raise TableFileError(table.path, [(table.lines[index], "has no time") for index in missing])
    return times_s


def _row_onsets(
    table: text_tables.TextTable, times_s: Float64, channel_column: str, channel: str
) -> list[float]:
    """Return the onsets of one channel from a table with one event or change a row."""
    names = [text_tables.column_name(cell) for cell in table.cells(channel_column)]
    rows = [index for index, name in enumerate(names) if name == text_tables.column_name(channel)]
    rows.sort(key=lambda index: times_s[index])
    state_column = table.first_of(("edge", "state"))
    if state_column is None:
        for name in table.columns:
            levels = [table.texts[name][index].lower() for index in rows]
            turns = all((one in _HIGH) != (next_ in _HIGH) for one, next_ in pairwise(levels))
            if len(levels) > 1 and turns and set(levels) <= _HIGH | _LOW:
                text = f"the column {name!r} is not known; did you mean state, or edge?"
                raise TableFileError(table.path, [(1, text)])
        return [float(times_s[index]) for index in rows]
    high = _states(table, state_column, rows)
    if state_column == "edge":
        return [float(times_s[index]) for index, is_high in zip(rows, high, strict=True) if is_high]
    if len(high) > 1 and all(high):
        raise TableFileError(
            table.path,
            f"the channel {channel!r} is never low; expected rows for the ends of pulses, "
            "too, or a column edge instead of state",
        )
    before = [False, *high]
    return [
        float(times_s[index])
        for index, was, is_high in zip(rows, before, high, strict=False)
        if is_high and not was
    ]


def _states(table: text_tables.TextTable, column: str, rows: Sequence[int]) -> list[bool]:
    states, lines = [cell.lower() for cell in table.cells(column)], table.lines
    problems = [
        (lines[index], f"{column} is {states[index]!r}, expected 1 or 0, high or low")
        for index in rows
        if states[index] not in _HIGH | _LOW
    ]
    if problems:
        raise TableFileError(table.path, problems)
    return [states[index] in _HIGH for index in rows]


def _level_onsets(table: text_tables.TextTable, times_s: Float64, channel: str) -> list[float]:
    """Return the onsets of one channel from a table with a sample of all channels a row."""
    column = text_tables.column_name(channel)
    if column not in table.columns:
        return []
    levels = table.numbers(column)
    known = levels[np.isfinite(levels)]
    if not len(known):
        return []
    high = levels > (known.min() + known.max()) / 2.0  # all False for a constant channel
    rises = np.flatnonzero(high[1:] & ~high[:-1]) + 1
    return [float(time_s) for time_s in times_s[rises]]


class TrialTiming(Settings, error=ConditioningError):
    """Settings that relate the times of a trial file to those of the recording."""

    latency_ms: float = 0.0
    """From a logged onset to the stimulus at the participant; later is positive."""
    us_latency_ms: float | None = None
    """The same for the US alone, where it differs."""
    clock_offset_s: float = 0.0
    """Added to every time: the video's time at the log's zero."""
    detect_led: tuple[int, ...] = ()
    """X,Y,WIDTH,HEIGHT in pixels of a light in the picture that goes on with the CS: its onsets
    give the times of the trials, or correct the clock of a list of trials."""
    detect_us_led: tuple[int, ...] = ()
    """The same for the US."""
    rename_repeated: bool = False
    """The second trial of a number, as after a restart, gets another name (3-2) and is kept."""
    ttl: TtlSettings = Field(default_factory=TtlSettings)


def read_trials(
    path: Path | str, timing: TrialTiming | None = None, decimal: text_tables.Decimal = "auto"
) -> TrialList:
    """Read a list of trials, or a log of pulses where no column holds onsets of CS or US."""
    timing = timing or TrialTiming()
    table = text_tables.read_table(Path(path), decimal)
    if is_trial_list(table):
        listed = trials_of(table, rename_repeated=timing.rename_repeated)
    else:
        listed = trials_of_pulses(table, timing.ttl)
    moved = correct_latency(
        listed.trials,
        latency_ms=timing.latency_ms,
        us_latency_ms=timing.us_latency_ms,
        clock_offset_s=timing.clock_offset_s,
    )
    return replace(listed, trials=moved)
