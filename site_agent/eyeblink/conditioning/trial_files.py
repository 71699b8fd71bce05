"""Trials of a session, read from a list or a log, on the clock of the video."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from pathlib import Path

from site_agent.eyeblink.conditioning.trials import (
    TrialList,
    correct_latency,
    is_trial_list,
    trials_of,
)
from site_agent.eyeblink.conditioning.ttl_log import TtlSettings, trials_of_pulses
from site_agent.eyeblink.text_tables import Decimal, read_table


@dataclass(frozen=True)
class TrialTiming:
    """How the times of a trial file relate to those of the recording.

    Attributes
    ----------
    latency_ms : float
        From a logged onset to the stimulus at the participant; later is positive.
    us_latency_ms : float or None
        The same for the US alone, where it differs.
    clock_offset_s : float
        Added to every time: what the video's clock shows when the log's shows zero.
    detect_led, detect_us_led : tuple of int
        X,Y,WIDTH,HEIGHT in pixels of a light in the picture that goes on with the CS (the US): its
        onsets give the times of the trials, or correct the clock of a list of trials.
    """

    latency_ms: float = 0.0
    us_latency_ms: float | None = None
    clock_offset_s: float = 0.0
    detect_led: tuple[int, ...] = ()
    detect_us_led: tuple[int, ...] = ()
    ttl: TtlSettings = field(default_factory=TtlSettings)


def read_trials(
    path: Path | str, timing: TrialTiming | None = None, decimal: Decimal = "."
) -> TrialList:
    """Read a list of trials, or a log of stimulus pulses where no column holds onsets of CS or US.

    Raises
    ------
    TableFileError
    """
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
