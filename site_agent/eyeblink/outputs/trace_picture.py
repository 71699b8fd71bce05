"""trace.png: the whole session in rows, blinks and trials marked by shape and number, not by
colour alone."""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from site_agent.eyeblink.conditioning.trials import TrialType
from site_agent.eyeblink.records import Float64
from site_agent.eyeblink.session import AnalysedSession

if TYPE_CHECKING:
    from matplotlib.axes import Axes

SHORTEST_ROW_S = 30.0
MOST_ROWS = 40
POINTS_PER_ROW = 2400
HATCHES = {"blink": "////", "closure": "xxxx"}
# Of its neighbours' time, what a row shows on either side: no blink and no number is cut.
SHARED_OF_ROW = 0.02
NUMBER_LEVELS = (0.985, 0.895)
MARK_LEVEL = 0.78
DIGIT_OF_ROW = 0.0045
CS_COLOUR, US_COLOUR = "#0072b2", "#d55e00"
DOUBTFUL = "0.6"


class TracePicture:
    """EAR on the left axis, FEC on the right; a filled mark is a complete blink.

    A curve of which FEC is not calibrated is grey, and so is its axis.
    """

    name = "trace"
    file_name = "trace.png"
    essential = False

    def wanted(self, _: AnalysedSession, /) -> bool:
        return True

    def write(self, session: AnalysedSession, path: Path) -> None:
        from matplotlib.backends.backend_agg import FigureCanvasAgg
        from matplotlib.figure import Figure

        rows, row_s = _layout(session.trace.duration_s)
        figure = Figure(figsize=(16.0, 1.0 + 1.6 * rows), dpi=90)
        # Fixed margins, in inches: finding them by layout takes longer than drawing.
        tall = figure.get_figheight()
        top = 0.5 if session.conditioning is None else 0.7
        figure.subplots_adjust(0.05, 0.6 / tall, 0.96, 1.0 - top / tall, hspace=0.25)
        FigureCanvasAgg(figure)
        axes = figure.subplots(rows, 1, squeeze=False)[:, 0]
        low, high = _ear_limits(session.trace.ear)
        start_s = float(session.trace.timestamps_s[0]) if len(session.trace.timestamps_s) else 0.0
        for row, axis in enumerate(axes):
            _draw_row(axis, session, start_s + row * row_s, row_s)
            axis.set_ylim(low, high)
            _add_fec_axis(axis, session)
        axes[-1].set_xlabel("time (s)")
        figure.suptitle(_title(session), fontsize=10, y=1.0 - 0.1 / tall)
        figure.savefig(path, format="png")


def _layout(duration_s: float) -> tuple[int, float]:
    """Return how many rows of how many seconds; long sessions get longer rows, not more."""
    row_s = SHORTEST_ROW_S
    while math.ceil(duration_s / row_s) > MOST_ROWS:
        row_s *= 2.0
    return max(1, math.ceil(duration_s / row_s)), row_s


def _ear_limits(ear: Float64) -> tuple[float, float]:
    known = ear[np.isfinite(ear)]
    if len(known) == 0:
        return 0.0, 0.4
    low, high = float(known.min()), float(np.percentile(known, 99.9))
    margin = max(0.02, 0.15 * (high - low))
    return low - margin, high + 2.0 * margin  # room for the marks


def _title(session: AnalysedSession) -> str:
    name = session.sources[0].name if session.sources else "session"
    count = sum(blink.kind == "blink" for blink in session.blinks)
    told = (
        f"{name}: {count} blinks.  Hatched: blink (////) or longer closure (xxxx), "
        "numbered as in blinks.csv; ▼ complete, ▽ partial; bar at the bottom: eyes not seen"
    )
    if not session.calibration.reliable:
        told = (
            f"{name}: FEC IS NOT CALIBRATED (open and closed hardly differ): "
            f"neither this curve nor its {count} blinks mean anything"
        )
    if session.conditioning is not None:
        told += "\nT1, T2 ...: trials (× rejected); solid line: CS; dashed: US"
    return told


def _draw_row(axis: Axes, session: AnalysedSession, start_s: float, row_s: float) -> None:
    trace = session.trace
    shared_s = SHARED_OF_ROW * row_s
    from_s, to_s = start_s - shared_s, start_s + row_s + shared_s
    first = int(np.searchsorted(trace.timestamps_s, from_s))
    last = int(np.searchsorted(trace.timestamps_s, to_s, side="right"))
    times_s, ear = trace.timestamps_s[first:last], trace.ear[first:last]
    few = last - first <= POINTS_PER_ROW
    axis.plot(
        *_thinned(times_s, ear),
        color="black" if session.calibration.reliable else DOUBTFUL,
        linewidth=0.7,
        marker="." if few and last - first <= 1000 else "",
        markersize=2.0,
    )
    seen = np.isfinite(ear)
    axis.fill_between(
        times_s,
        0.0,
        0.05,
        where=~seen,
        step="mid",
        transform=axis.get_xaxis_transform(),
        color="0.3",
        linewidth=0.5,
    )
    _draw_blinks(axis, session, start_s, row_s)
    _draw_trials(axis, session, from_s, to_s)
    for left_s in (from_s, start_s + row_s):
        axis.axvspan(left_s, left_s + shared_s, color="0.93", linewidth=0.0, zorder=0)
    axis.set_xlim(from_s, to_s)
    axis.set_ylabel("EAR")
    axis.grid(visible=True, linewidth=0.3)


def _draw_blinks(axis: Axes, session: AnalysedSession, start_s: float, row_s: float) -> None:
    """Shade and mark the blinks of a row, all of a kind at once: one by one takes seconds."""
    across = axis.get_xaxis_transform()
    end_s, shared_s = start_s + row_s, SHARED_OF_ROW * row_s
    seen = [
        blink
        for blink in session.blinks
        if blink.offset_s >= start_s - shared_s and blink.onset_s < end_s + shared_s
    ]
    for kind, hatch in HATCHES.items():
        spans = [
            (blink.onset_s, blink.offset_s - blink.onset_s) for blink in seen if blink.kind == kind
        ]
        if spans:
            axis.broken_barh(
                spans,
                (0.0, 1.0),
                transform=across,
                facecolor="0.85",
                edgecolor="0.5",
                hatch=hatch,
                linewidth=0.3,
            )
    peaks = [blink for blink in seen if start_s <= blink.peak_s < end_s]
    for completeness, fill in (("complete", "black"), ("partial", "white")):
        times_s = [blink.peak_s for blink in peaks if blink.completeness == completeness]
        axis.plot(
            times_s,
            [MARK_LEVEL] * len(times_s),
            linestyle="",
            marker="v",
            markersize=5,
            color="black",
            markerfacecolor=fill,
            transform=across,
        )
    names = [str(blink.number) for blink in peaks]
    levels = number_levels([blink.peak_s for blink in peaks], names, row_s)
    for blink, name, level in zip(peaks, names, levels, strict=True):
        if level is not None:
            axis.text(
                blink.peak_s,
                level,
                name,
                fontsize=7,
                ha="center",
                va="top",
                transform=across,
                bbox={"facecolor": "white", "edgecolor": "none", "alpha": 0.8, "pad": 0.5},
            )


def number_levels(
    times_s: Sequence[float], names: Sequence[str], row_s: float
) -> list[float | None]:
    """Return how high to write each number so that none covers another; None: no room."""
    taken_to_s = [-math.inf] * len(NUMBER_LEVELS)
    levels: list[float | None] = []
    for time_s, name in zip(times_s, names, strict=True):
        half_s = 0.5 * DIGIT_OF_ROW * (len(name) + 0.5) * row_s
        free = [place for place, to_s in enumerate(taken_to_s) if to_s <= time_s - half_s]
        levels.append(NUMBER_LEVELS[free[0]] if free else None)
        if free:
            taken_to_s[free[0]] = time_s + half_s
    return levels


def _draw_trials(axis: Axes, session: AnalysedSession, from_s: float, to_s: float) -> None:
    """Mark the stimuli that were given, and number the trials where the first of them came."""
    across = axis.get_xaxis_transform()
    trials = session.conditioning.trials if session.conditioning is not None else ()
    for result in trials:
        measures = result.measures
        onsets = [(measures.cs_onset_s, CS_COLOUR, "-")] if result.has_cs else []
        if measures.trial_type is not TrialType.CS_ONLY:
            onsets.append((measures.us_onset_s, US_COLOUR, "--"))
        onsets = [onset for onset in onsets if from_s <= onset[0] < to_s]
        for onset_s, colour, dash in onsets:
            axis.axvline(onset_s, color=colour, linestyle=dash, linewidth=0.8)
        # Where there is no room left of the line for it, the neighbour row has it.
        if onsets and onsets[0][0] > from_s + 0.6 * SHARED_OF_ROW * (to_s - from_s):
            axis.text(
                onsets[0][0],
                0.07,
                f"T{measures.trial}{'' if result.valid else '×'} ",
                fontsize=7,
                color=onsets[0][1],
                ha="right",
                va="bottom",
                transform=across,
            )


def _thinned(times_s: Float64, ear: Float64) -> tuple[Float64, Float64]:
    """Keep the lowest and the highest value of each pixel, so that short dips stay visible."""
    block = len(ear) // POINTS_PER_ROW
    if block < 2:
        return times_s, ear
    whole = len(ear) // block * block
    folded = ear[:whole].reshape(-1, block)
    low = np.where(np.isfinite(folded), folded, np.inf).min(axis=1)
    high = np.where(np.isfinite(folded), folded, -np.inf).max(axis=1)
    pairs = np.stack([low, high], axis=1).ravel()
    return np.repeat(times_s[:whole:block], 2), np.where(np.isfinite(pairs), pairs, np.nan)


def _add_fec_axis(axis: Axes, session: AnalysedSession) -> None:
    """FEC is linear in EAR: the same curve read on another scale, 0 open and 1 closed."""
    calibration = session.calibration
    if not calibration.span > 0:
        return
    right = axis.secondary_yaxis(
        "right",
        functions=(
            lambda ear: (calibration.open_ear - np.asarray(ear, np.float64)) / calibration.span,
            lambda fec: calibration.open_ear - np.asarray(fec, np.float64) * calibration.span,
        ),
    )
    right.set_yticks([0.0, 0.5, 1.0])
    if calibration.reliable:
        right.set_ylabel("FEC")
        return
    right.set_ylabel("FEC (not calibrated)", color=DOUBTFUL, fontsize=8)
    right.tick_params(colors=DOUBTFUL)
    right.spines["right"].set(color=DOUBTFUL, linestyle=":")
