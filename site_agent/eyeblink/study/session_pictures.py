"""The sessions of each participant over one another: mean closure, and every trial."""

import math
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from site_agent.datasets.trials import TrialType
from site_agent.eyeblink.batch.record import SessionRecord
from site_agent.eyeblink.conditioning.summary import TrialResult
from site_agent.eyeblink.conditioning.trial_measures import TrialMeasures
from site_agent.eyeblink.outputs.report_figures import align_trials, draw_heat_map, mean_of_known
from site_agent.eyeblink.records import Float64
from site_agent.eyeblink.session_folder import find_output
from site_agent.pictures import plot_style

MOST_PARTICIPANTS = 8
BEFORE_MS, AFTER_US_MS = -200.0, 300.0


def draw_sessions(path: Path, study: Path, records: Sequence[SessionRecord]) -> bool:
    """Draw at most eight participants, a column each; return False where nothing can be drawn.

    Above: the mean of the valid trials with a CS of each session, the later the darker. Below: all
    of these trials in their order, with a line between sessions.
    """
    usable = [record for record in records if record.participant and math.isfinite(record.number)]
    participants = sorted({record.participant for record in usable})[:MOST_PARTICIPANTS]
    if not participants:
        return False
    figure = plot_style.new_figure(3.2 * len(participants), 6.4)
    columns = figure.subplots(2, len(participants), squeeze=False).T
    for axes, participant in zip(columns, participants, strict=True):
        sessions = [record for record in usable if record.participant == participant]
        sessions.sort(key=lambda record: record.number)
        us_ms = float(np.nanmedian([_us_ms(record) for record in sessions]))
        window_ms = (BEFORE_MS, us_ms + AFTER_US_MS)
        drawn = [
            (record, time_ms, rows)
            for record in sessions
            for time_ms, rows in [_trials(study / record.name, window_ms)]
            if len(rows)
        ]
        for place, (record, time_ms, rows) in enumerate(drawn):
            grey = 0.75 * (1.0 - place / max(len(drawn) - 1, 1))
            ends = place in (0, len(drawn) - 1)
            label = f"session {record.number:g}" if ends else None
            axes[0].plot(time_ms, mean_of_known(rows), color=str(grey), label=label)
        if drawn:
            draw_heat_map(axes[1], drawn[0][1], np.concatenate([rows for *_, rows in drawn]))
            for end in np.cumsum([len(rows) for *_, rows in drawn])[:-1]:
                axes[1].axhline(end + 0.5, color=plot_style.VERMILION, linewidth=0.8)
            axes[0].legend(fontsize=plot_style.SMALL_PT, loc="upper left")
        axes[0].set(xlim=window_ms, ylim=(-0.2, 1.2), title=participant)
        for axis in axes:
            axis.axvline(0.0, color=plot_style.CS_COLOUR)
            axis.axvline(us_ms, color=plot_style.US_COLOUR, linestyle="--")
    columns[0][0].set_ylabel("FEC above baseline, mean of a session")
    plot_style.save_png(figure, path)
    return True


def _us_ms(record: SessionRecord) -> float:
    value = (record.conditioning or {}).get("cs_us_ms")
    return math.nan if value is None else float(value)


def _trials(folder: Path, window_ms: tuple[float, float]) -> tuple[Float64, Float64]:
    """Return times, shape (k,), and closure of the session's valid trials with a CS, (m, k)."""
    import pandas

    frames = pandas.read_csv(find_output(folder, "frames.csv"), usecols=["timestamp_s", "fec"])
    table = pandas.read_csv(find_output(folder, "trials.csv"), dtype={"trial": str})
    table = table[table["valid"] & (table["trial_type"] != TrialType.US_ONLY.value)]
    results = [
        TrialResult(
            TrialMeasures(
                row.trial,
                TrialType(row.trial_type),
                row.cs_onset_s,
                row.us_onset_s,
                baseline=row.baseline,
            ),
            (),
            None,
        )
        for row in table.itertuples()
    ]
    aligned = align_trials(frames["timestamp_s"], frames["fec"], results, window_ms=window_ms)
    return aligned.time_ms, aligned.fec
