"""Logs of stimulus pulses, as written by recording hardware and stimulus programs, as trials."""

from __future__ import annotations

import contextlib
import math
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from dataclasses import replace as with_changes
from pathlib import Path

import numpy as np

from site_agent.errors import TrialFileError
from site_agent.eyeblink.conditioning.delimited_text import TextTable, parse_number, read_text_table
from site_agent.eyeblink.conditioning.trials import TrialList, trials_from_onsets

_TIME_COLUMNS = {
    "time_s": 1.0,
    "timestamp_s": 1.0,
    "onset_s": 1.0,
    "time": 1.0,
    "timestamp": 1.0,
    "onset": 1.0,
    "seconds": 1.0,
    "time_ms": 1e-3,
    "timestamp_ms": 1e-3,
    "onset_ms": 1e-3,
    "time_us": 1e-6,
    "timestamp_us": 1e-6,
}
_CHANNEL_COLUMNS = ("channel", "line", "event", "name", "stimulus", "trial_type")
_STATE_COLUMNS = ("state", "level", "value", "edge")
_HIGH = frozenset({"1", "high", "on", "true", "up", "rising", "rise", "start", "onset"})
_LOW = frozenset({"0", "low", "off", "false", "down", "falling", "fall", "stop", "end", "offset"})


@dataclass(frozen=True)
class TtlSettings:
    """Which pulses are stimuli, and which belong together.

    Attributes
    ----------
    cs_channel, us_channel : str
        Names (or numbers) of the channels; case does not matter.
    pairing_window_ms : float
        Longest CS-US interval.
    same_pulse_ms : float
        Onsets of one channel closer than this count as one.
    """

    cs_channel: str = "CS"
    us_channel: str = "US"
    pairing_window_ms: float = 2000.0
    same_pulse_ms: float = 50.0


def read_ttl_log(path: Path | str, settings: TtlSettings | None = None) -> TrialList:
    """Read pulses and pair them to trials.

    Three kinds of table are understood, with a column ``time_s`` (or ``timestamp_s``,
    ``time_ms``, ...):

    - changes: ``time_s, channel, state`` with states 1/0, high/low, on/off or rising/falling;
      where a channel is never low, every row of it is an onset;
    - events: ``time_s, event`` with names such as ``CS`` and ``US`` (also ``CS on``, ``CS_off``),
      a column ``value`` with the codes of markers beside them or not (BIDS events);
    - levels: ``time_s, CS, US``, one column a channel, high above half of the column's range.

    Pulses on other channels are ignored. Times stay on the log's clock; see `correct_latency`.

    Raises
    ------
    TrialFileError
        Lines that cannot be read, no time column, or neither of the channels in the file.
    """
    settings = settings or TtlSettings()
    table = read_text_table(Path(path))
    times_s = _times(table)
    channel_column = next((name for name in _CHANNEL_COLUMNS if name in table.columns), None)
    if channel_column is not None:
        onsets, found, noticed = _long_onsets(table, times_s, channel_column, settings)
    else:
        onsets, found = _wide_onsets(table, times_s, settings)
        noticed = ()
    absent = [
        name for name in (settings.cs_channel, settings.us_channel) if _key(name) not in onsets
    ]
    if len(absent) == 2 or not any(onsets.values()):
        listed = ", ".join(found[:12]) or "none"
        raise TrialFileError(
            table.path,
            [
                (
                    0,
                    f"no pulse on the channels {settings.cs_channel!r} (CS) and "
                    f"{settings.us_channel!r} (US); the channels found are: {listed}; "
                    "say which of them are CS and US",
                )
            ],
        )
    paired = trials_from_onsets(
        onsets.get(_key(settings.cs_channel), []),
        onsets.get(_key(settings.us_channel), []),
        pairing_window_ms=settings.pairing_window_ms,
        same_pulse_ms=settings.same_pulse_ms,
    )
    remarks = tuple(f"the channel {name!r} does not occur in the log" for name in absent)
    return with_changes(paired, remarks=remarks + noticed + paired.remarks, path=table.path)


def _times(table: TextTable) -> list[float]:
    column = next((name for name in _TIME_COLUMNS if name in table.columns), None)
    if column is None:
        raise TrialFileError(
            table.path,
            [
                (
                    0,
                    f"the columns are {', '.join(table.columns)}; expected a column time_s "
                    "(or time_ms, timestamp_s, timestamp_ms) with the times of the pulses",
                )
            ],
        )
    times_s, problems = [], []
    for row in table.rows:
        try:
            time_s = row.number(column) * _TIME_COLUMNS[column]
            if math.isnan(time_s):
                raise ValueError
            times_s.append(time_s)
        except ValueError:
            problems.append((row.line, f"{column} is {row.cells[column]!r}, expected a number"))
    if problems:
        raise TrialFileError(table.path, problems)
    return times_s


def _long_onsets(
    table: TextTable, times_s: Sequence[float], channel_column: str, settings: TtlSettings
) -> tuple[dict[str, list[float]], list[str], tuple[str, ...]]:
    """Onsets by channel from one change or event a line, the channels found, and remarks."""
    wanted = {_key(name): name for name in (settings.cs_channel, settings.us_channel)}
    state_column = _state_column(table, channel_column, wanted)
    switched = _switched_by_number([row.cells[channel_column] for row in table.rows])
    changes: dict[str, list[tuple[float, bool | None]]] = {}
    found: dict[str, None] = {}
    problems: list[tuple[int, str]] = []
    order = sorted(range(len(times_s)), key=times_s.__getitem__)
    for index in order:
        row = table.rows[index]
        name, state = row.cells[channel_column], "1"
        found.setdefault(name.strip(), None)
        if state_column is not None:
            state = row.cells[state_column]
        elif _key(name) not in wanted:
            name, state = _split_event(name, switched)
        if _key(name) not in wanted:
            continue
        try:
            changes.setdefault(_key(name), []).append((times_s[index], _level(state)))
        except ValueError:
            text = f"{state_column} is {state!r}, expected 1 or 0 (or high/low, on/off)"
            problems.append((row.line, text))
    if problems:
        raise TrialFileError(table.path, problems)
    onsets, remarks = {}, []
    for key, told in changes.items():
        if state_column is None:
            rises_s = [time_s for time_s, is_high in told if is_high]
        else:
            rises_s, remark = _rises(wanted[key], told)
            remarks += [remark] if remark else []
        if rises_s:
            onsets[key] = rises_s
    return onsets, list(found), tuple(remarks)


def _state_column(table: TextTable, channel_column: str, wanted: Iterable[str]) -> str | None:
    """Return the column of the states; None where there is none.

    ``value`` is one only where a channel is both high and low in it, or where one is low and none
    is ever high, as in samples of a session without stimuli: in BIDS events it is the code of a
    marker, or ``n/a``.
    """
    for column in _STATE_COLUMNS:
        if column not in table.columns:
            continue
        if column != "value":
            return column
        levels: dict[str, set[bool | None]] = {key: set() for key in wanted}
        for row in table.rows:
            key = _key(row.cells[channel_column])
            # A word that is no state is told of where the others are states.
            with contextlib.suppress(ValueError):
                levels.get(key, set()).add(_level(row.cells[column]))
        told = set().union(*levels.values())
        if any({True, False} <= each for each in levels.values()) or (
            False in told and True not in told
        ):
            return column
    return None


def _rises(channel: str, told: Sequence[tuple[float, bool | None]]) -> tuple[list[float], str]:
    """Return when a channel went high, in the order of `told`, and a remark or nothing.

    Where it is never low, only the rises were logged: every row is one. A state that is not
    given is low where others are.
    """
    states = [is_high for _, is_high in told]
    if False not in states and (all(states) or True not in states):
        return [time_s for time_s, _ in told], ""
    known = [bool(is_high) for is_high in states]
    follows = list(zip([False, *known[:-1]], known, strict=True))
    onsets_s = [told[i][0] for i, pair in enumerate(follows) if pair == (False, True)]
    repeated = follows.count((True, True))
    # A log of samples repeats both levels; one of changes should repeat neither.
    if not repeated or (False, False) in follows[1:]:
        return onsets_s, ""
    return onsets_s, (
        f"{repeated} rows say that the channel {channel!r} goes high where it was high already; "
        "they were taken as the same pulse: are the rows of its end missing?"
    )


def _wide_onsets(
    table: TextTable, times_s: Sequence[float], settings: TtlSettings
) -> tuple[dict[str, list[float]], list[str]]:
    """Onsets by channel from one sample of all channels a line, and the channels found."""
    found = [name for name in table.columns if name not in _TIME_COLUMNS]
    onsets: dict[str, list[float]] = {}
    for wanted in (settings.cs_channel, settings.us_channel):
        column = next((name for name in found if _key(name) == _key(wanted)), None)
        if column is None:
            continue
        levels = _levels(table, column)
        known = [level for level in levels if math.isfinite(level)]
        threshold = (min(known) + max(known)) / 2.0 if known else math.nan
        high = np.array(levels) > threshold  # all False for a constant channel
        rises = np.flatnonzero(high[1:] & ~high[:-1]) + 1
        onsets[_key(wanted)] = [times_s[int(index)] for index in rises]
    return onsets, found


def _levels(table: TextTable, column: str) -> list[float]:
    levels, problems = [], []
    for row in table.rows:
        cell = row.cells[column]
        try:
            levels.append(
                float(cell.strip().lower() in _HIGH)
                if cell.strip().lower() in _HIGH | _LOW
                else parse_number(cell)
            )
        except ValueError:
            problems.append((row.line, f"{column} is {cell!r}, expected a level"))
    if problems:
        raise TrialFileError(table.path, problems)
    return levels


def _split_event(name: str, switched: set[str]) -> tuple[str, str]:
    """Split ``CS_on`` to the channel and its state; other names are events of their own.

    ``CS 1`` is split only where `switched` has the channel: 1 may be the number of a trial.
    """
    channel, last = _apart(name)
    if channel and last in _HIGH | _LOW and (not last.isdigit() or _key(channel) in switched):
        return channel, last
    return name, "1"


def _switched_by_number(names: Sequence[str]) -> set[str]:
    """Channels whose events end in 1, in 0 too or not, and in no other number.

    Hardware may log the end of one channel's pulses and not that of the other's.
    """
    numbers: dict[str, set[str]] = {}
    for name in set(names):
        channel, last = _apart(name)
        if channel and last.isdigit():
            numbers.setdefault(_key(channel), set()).add(last)
    return {channel for channel, found in numbers.items() if "1" in found and found <= {"0", "1"}}


def _apart(name: str) -> tuple[str, str]:
    """Split off the last word of an event, in lower case; the first is empty where it is one."""
    parts = re.split(r"[\s_\-:]+", name.strip())
    return "_".join(parts[:-1]), parts[-1].lower()


def _level(state: str) -> bool | None:
    """Tell whether a state is high; None where it is not given.

    Raises
    ------
    ValueError
    """
    word = state.strip().lower()
    if word in _HIGH:
        return True
    if word in _LOW:
        return False
    number = parse_number(word)
    return None if math.isnan(number) else number > 0.5


def _key(name: str) -> str:
    """Form in which names of channels are compared: ``1``, ``1.0`` and `` 1`` are the same."""
    word = re.sub(r"[\s\-]+", "_", name.strip().lower())
    try:
        return f"{float(word):g}"
    except ValueError:
        return word
