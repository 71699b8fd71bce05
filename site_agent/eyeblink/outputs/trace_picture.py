"""The trace of a whole session in rows, with numbered blinks, gaps and trials."""

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from site_agent.datasets.trials import TrialType
from site_agent.eyeblink.records import Float64
from site_agent.eyeblink.session import AnalysedSession
from site_agent.pictures import plot_style

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

SHORTEST_ROW_S = 30.0
MOST_ROWS = 40
POINTS_PER_ROW = 1200
NUMBER_LEVELS = (0.97, 0.85)
MARK_LEVEL = 0.7
DIGIT_OF_ROW = 0.006
DOUBTFUL = "0.6"


def trace_figure(session: AnalysedSession) -> "Figure":
    """Draw the trace: EAR on the left axis, FEC on the right.

    The curve is grey where FEC is not calibrated.
    """
    trace = session.trace
    rows, row_s = _layout(trace.duration_s)
    height_in = 0.6 + 1.3 * rows
    figure = plot_style.new_figure_with_margins(
        12.0, height_in, right=0.94, top=1.0 - 0.1 / height_in, hspace=0.25
    )
    axes = figure.subplots(rows, 1, squeeze=False)[:, 0]
    limits = _ear_limits(trace.ear)
    start_s = float(trace.timestamps_s[0]) if len(trace.timestamps_s) else 0.0
    for row, axis in enumerate(axes):
        over_s = (start_s + row * row_s, start_s + (row + 1) * row_s)
        _draw_signal(axis, session, over_s)
        _draw_blinks(axis, session, over_s)
        _draw_trials(axis, session, over_s)
        axis.set(xlim=over_s, ylim=limits, ylabel="EAR")
        plot_style.draw_grid(axis)
        _add_fec_axis(axis, session)
    axes[-1].set_xlabel("time (s)")
    return figure


def trace_caption(session: AnalysedSession) -> str:
    """Explain the marks of the figure."""
    text = (
        "Numbered triangles: blinks as in blinks.csv, filled where complete, open where partial "
        "(hatched). Crossed hatching: closures longer than a blink. Bar at the bottom: eyes not "
        "seen."
    )
    if session.conditioning is not None:
        text += "\nSolid line: CS; dashed line: US; T1, T2 ...: trials (× rejected)."
    if not session.calibration.reliable:
        text += (
            "\nFEC IS NOT CALIBRATED (open and closed hardly differ): neither the curve nor its "
            "blinks can be trusted."
        )
    return text


def _layout(duration_s: float) -> tuple[int, float]:
    """Return how many rows of how many seconds; long sessions get longer rows, not more."""
    rows = min(MOST_ROWS, max(1, math.ceil(duration_s / SHORTEST_ROW_S - 0.1)))
    return rows, max(duration_s / rows, 1.0)


def _ear_limits(ear: Float64) -> tuple[float, float]:
    known = ear[np.isfinite(ear)]
    if len(known) == 0:
        return 0.0, 0.4
    low, high = float(known.min()), float(np.percentile(known, 99.9))
    margin = max(0.02, 0.15 * (high - low))
    return low - margin, high + 2.5 * margin  # room for the marks


def _draw_signal(axis: "Axes", session: AnalysedSession, over_s: tuple[float, float]) -> None:
    trace = session.trace
    first, last = np.searchsorted(trace.timestamps_s, over_s)
    part = slice(max(int(first) - 1, 0), int(last) + 1)
    times_s, ear = trace.timestamps_s[part], trace.ear[part]
    colour = "black" if session.calibration.reliable else DOUBTFUL
    axis.plot(*plot_style.thinned(times_s, ear, POINTS_PER_ROW), color=colour, linewidth=0.7)
    axis.fill_between(
        times_s,
        0.0,
        0.05,
        where=~np.isfinite(ear),
        step="mid",
        transform=axis.get_xaxis_transform(),
        color="0.3",
        linewidth=0.5,
    )


def _draw_blinks(axis: "Axes", session: AnalysedSession, over_s: tuple[float, float]) -> None:
    """Shade and mark the blinks of a row, all of a kind at once: one by one takes seconds."""
    start_s, end_s = over_s
    across = axis.get_xaxis_transform()
    seen = [b for b in session.blinks if b.offset_s >= start_s and b.onset_s < end_s]
    for hatch in ("", plot_style.HATCH_PARTIAL, plot_style.HATCH_CLOSURE):
        spans = [
            (blink.onset_s, blink.offset_s - blink.onset_s)
            for blink in seen
            if hatch == _hatch(blink.kind, blink.completeness)
        ]
        if spans:
            axis.broken_barh(
                spans,
                (0.0, 1.0),
                transform=across,
                facecolor="0.87",
                edgecolor="0.5",
                hatch=hatch,
                linewidth=0.3,
            )
    peaks = [blink for blink in seen if start_s <= blink.peak_s < end_s]
    for completeness, fill in (("complete", "black"), ("partial", "white")):
        times_s = [blink.peak_s for blink in peaks if blink.completeness == completeness]
        heights = [MARK_LEVEL] * len(times_s)
        axis.plot(times_s, heights, "kv", markersize=5, markerfacecolor=fill, transform=across)
    names = [str(blink.number) for blink in peaks]
    levels = number_levels([blink.peak_s for blink in peaks], names, end_s - start_s)
    for blink, name, level in zip(peaks, names, levels, strict=True):
        if level is not None:
            at = (blink.peak_s, level)
            axis.text(
                *at, name, fontsize=plot_style.SMALL_PT, ha="center", va="top", transform=across
            )


def _hatch(kind: str, completeness: str) -> str:
    if kind == "closure":
        return plot_style.HATCH_CLOSURE
    return "" if completeness == "complete" else plot_style.HATCH_PARTIAL


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


def _draw_trials(axis: "Axes", session: AnalysedSession, over_s: tuple[float, float]) -> None:
    """Mark the stimuli that were given, and number the trials at the first of them."""
    start_s, end_s = over_s
    trials = session.conditioning.trials if session.conditioning is not None else ()
    for result in trials:
        measures = result.measures
        onsets = [(measures.cs_onset_s, plot_style.CS_COLOUR, "-")] if result.has_cs else []
        if measures.trial_type is not TrialType.CS_ONLY:
            onsets.append((measures.us_onset_s, plot_style.US_COLOUR, "--"))
        onsets = [onset for onset in onsets if start_s <= onset[0] < end_s]
        for onset_s, colour, dash in onsets:
            axis.axvline(onset_s, color=colour, linestyle=dash, linewidth=0.9)
        if onsets:
            axis.text(
                onsets[0][0],
                0.07,
                f"T{measures.trial}{'' if result.valid else '×'} ",
                fontsize=plot_style.SMALL_PT,
                color=onsets[0][1],
                ha="right",
                transform=axis.get_xaxis_transform(),
                clip_on=True,
            )


def _add_fec_axis(axis: "Axes", session: AnalysedSession) -> None:
    """Add a scale of FEC, which is linear in EAR: 0 open and 1 closed."""
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
    else:
        right.set_ylabel("FEC (not calibrated)", color=DOUBTFUL, fontsize=8)
        right.tick_params(colors=DOUBTFUL)
