"""Trials of a session from a list, or from the log of stimulus pulses of recording hardware."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
from pydantic import Field

from site_agent.errors import ConditioningError, TableFileError
from site_agent.eyeblink.conditioning.trials import (
    TrialList,
    correct_latency,
    is_trial_list,
    trials_from_onsets,
    trials_of,
)
from site_agent.eyeblink.records import Float64
from site_agent.eyeblink.text_tables import (
    TIME_COLUMNS,
    Decimal,
    TextTable,
    column_name,
    read_table,
)
from site_agent.settings import Settings

_CHANNEL_COLUMNS = ("channel", "event", "trial_type")
_HIGH = frozenset({"1", "high", "on", "true", "rising"})
_LOW = frozenset({"0", "low", "off", "false", "falling"})


class TtlSettings(Settings, error=ConditioningError):
    """Which pulses are stimuli, and which belong together."""

    cs_channel: str = Field(
        default="CS", description="Names (or numbers) of the channels; case does not matter."
    )
    us_channel: str = Field(
        default="US", description="Names (or numbers) of the channels; case does not matter."
    )
    pairing_window_ms: float = Field(default=2000.0, description="Longest CS-US interval.")


def trials_of_pulses(table: TextTable, settings: TtlSettings | None = None) -> TrialList:
    """Return the trials that a log of pulses shows.

    A log has a column ``time_s``, ``timestamp_s``, ``time_ms`` or ``timestamp_ms``, or ``onset``
    in seconds as in BIDS, and is one of these:

    - events: ``time_s, event`` with one row for each onset (``channel``, or ``trial_type`` as in
      BIDS, instead of ``event``);
    - edges: ``time_s, channel, edge`` with ``rising`` and ``falling``: every rising edge is an
      onset;
    - states: ``time_s, channel, state`` with 1 and 0, high and low, or on and off: a change to
      high is an onset;
    - levels: ``time_s, CS, US``, one column a channel, high above half of the column's range.

    Other channels are ignored. Times stay on the log's clock; see `correct_latency`.
    """
    settings = settings or TtlSettings()
    times_s = _times_s(table)
    channel_column = table.first_of(_CHANNEL_COLUMNS)
    onsets = [
        _level_onsets(table, times_s, name)
        if channel_column is None
        else _row_onsets(table, times_s, channel_column, name)
        for name in (settings.cs_channel, settings.us_channel)
    ]
    if not any(len(each) for each in onsets):
        found = table.columns if channel_column is None else table.cells(channel_column)
        listed = ", ".join(list(dict.fromkeys(found))[:12]) or "none"
        raise TableFileError(
            table.path,
            [
                (
                    0,
                    f"no pulse on the channels {settings.cs_channel!r} (CS) and "
                    f"{settings.us_channel!r} (US); found {listed}; name the channels of CS and US",
                )
            ],
        )
    paired = trials_from_onsets(*onsets, pairing_window_ms=settings.pairing_window_ms)
    return replace(paired, path=table.path)


def _times_s(table: TextTable) -> Float64:
    if table.first_of(TIME_COLUMNS) is None and "onset" in table.columns:
        times_s = table.numbers("onset")
    else:
        times_s = table.times_s()
    missing = np.flatnonzero(np.isnan(times_s)).tolist()
    if missing:
        raise TableFileError(table.path, [(table.lines[index], "has no time") for index in missing])
    return times_s


def _row_onsets(
    table: TextTable, times_s: Float64, channel_column: str, channel: str
) -> list[float]:
    """Return the onsets of one channel from a table with one event or change a row."""
    names = [column_name(cell) for cell in table.cells(channel_column)]
    rows = [index for index, name in enumerate(names) if name == column_name(channel)]
    rows.sort(key=lambda index: times_s[index])
    state_column = table.first_of(("edge", "state"))
    if state_column is None:
        return [float(times_s[index]) for index in rows]
    high = _states(table, state_column, rows)
    if state_column == "edge":
        return [float(times_s[index]) for index, is_high in zip(rows, high, strict=True) if is_high]
    if len(high) > 1 and all(high):
        raise TableFileError(
            table.path,
            [
                (
                    0,
                    f"the channel {channel!r} is never low; expected rows for the ends of pulses, "
                    "too, or a column edge instead of state",
                )
            ],
        )
    before = [False, *high]
    return [
        float(times_s[index])
        for index, was, is_high in zip(rows, before, high, strict=False)
        if is_high and not was
    ]


def _states(table: TextTable, column: str, rows: Sequence[int]) -> list[bool]:
    words, lines = [cell.lower() for cell in table.cells(column)], table.lines
    problems = [
        (lines[index], f"{column} is {words[index]!r}, expected 1 or 0, high or low")
        for index in rows
        if words[index] not in _HIGH | _LOW
    ]
    if problems:
        raise TableFileError(table.path, problems)
    return [words[index] in _HIGH for index in rows]


def _level_onsets(table: TextTable, times_s: Float64, channel: str) -> list[float]:
    """Return the onsets of one channel from a table with a sample of all channels a row."""
    column = column_name(channel)
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
    """How the times of a trial file relate to those of the recording."""

    latency_ms: float = Field(
        default=0.0,
        description="From a logged onset to the stimulus at the participant; later is positive.",
    )
    us_latency_ms: float | None = Field(
        default=None, description="The same for the US alone, where it differs."
    )
    clock_offset_s: float = Field(
        default=0.0,
        description="Added to every time: what the video's clock shows when the log's shows zero.",
    )
    detect_led: tuple[int, ...] = Field(
        default=(),
        description="X,Y,WIDTH,HEIGHT in pixels of a light in the picture that goes on with the "
        "CS (the US): its onsets give the times of the trials, or correct the clock "
        "of a list of trials.",
    )
    detect_us_led: tuple[int, ...] = Field(
        default=(),
        description="X,Y,WIDTH,HEIGHT in pixels of a light in the picture that goes on with the "
        "CS (the US): its onsets give the times of the trials, or correct the clock "
        "of a list of trials.",
    )
    ttl: TtlSettings = Field(default_factory=TtlSettings)


def read_trials(
    path: Path | str, timing: TrialTiming | None = None, decimal: Decimal = "."
) -> TrialList:
    """Read a list of trials, or a log of pulses where no column holds onsets of CS or US."""
    timing = timing or TrialTiming()
    table = read_table(Path(path), decimal)
    listed = trials_of(table) if is_trial_list(table) else trials_of_pulses(table, timing.ttl)
    moved = correct_latency(
        listed.trials,
        latency_ms=timing.latency_ms,
        us_latency_ms=timing.us_latency_ms,
        clock_offset_s=timing.clock_offset_s,
    )
    return replace(listed, trials=moved)
