"""The whole recording in rows, with blinks, gaps and stimuli marked."""

from __future__ import annotations

import math

import numpy as np

from site_agent.eyeblink.conditioning.trials import TrialType
from site_agent.eyeblink.outputs.report.svg import Mark, Plot, padded
from site_agent.eyeblink.records import Float64
from site_agent.eyeblink.session import AnalysedSession

SHORTEST_ROW_S = 30.0
MOST_ROWS = 40
POINTS_PER_ROW = 900
LEAST_DISTANCE = 22.0
HATCH = {"complete": "blink", "partial": "partial"}


def trace_rows(session: AnalysedSession) -> list[str]:
    """Return one picture for each row; long recordings get longer rows, not more."""
    trace = session.trace
    if not len(trace.timestamps_s):
        return []
    # Rows of equal length, rather than a last one with a second in it.
    rows = max(1, math.ceil(trace.duration_s / SHORTEST_ROW_S - 0.1))
    count = min(rows, MOST_ROWS)
    row_s = max(trace.duration_s / count, 1.0)
    values, limits, name = _signal(session)
    start_s = float(trace.timestamps_s[0])
    return [
        _row(session, values, limits, name, (start_s + row * row_s, start_s + (row + 1) * row_s))
        for row in range(count)
    ]


NOT_CALIBRATED = "FEC (not calibrated)"


def _signal(session: AnalysedSession) -> tuple[Float64, tuple[float, float], str]:
    """FEC, or EAR where nothing could be calibrated; the range of most of it."""
    fec = session.fec()
    has_fec = bool(np.isfinite(fec).any())
    values, least = (fec, 1.2) if has_fec else (session.trace.ear, 0.05)
    name = "EAR" if not has_fec else "FEC" if session.calibration.reliable else NOT_CALIBRATED
    known = values[np.isfinite(values)]
    extremes = np.percentile(known, [0.05, 99.95]) if len(known) else known
    low, high = padded(extremes, least=least)
    return values, ((min(low, -0.15), max(high, 1.1)) if has_fec else (low, high)), name


def _row(
    session: AnalysedSession,
    values: Float64,
    limits: tuple[float, float],
    name: str,
    over_s: tuple[float, float],
) -> str:
    start_s, end_s = over_s
    plot = Plot(
        f"{name} from {start_s:.0f} to {end_s:.0f} s",
        over_s,
        limits,
        width=1000.0,
        height=122.0,
        left=44.0,
        right=10.0,
        top=28.0,
        bottom=17.0,
    )
    times_s = session.trace.timestamps_s
    first, last = np.searchsorted(times_s, over_s)
    part = slice(int(first), int(last))
    _draw_blinks(plot, session, over_s)
    plot.axes("", name, x_ticks=15, y_ticks=3)
    _draw_gaps(plot, times_s[part], np.isfinite(values[part]), limits)
    across, up = thinned(times_s[part], np.clip(values[part], *limits))
    plot.line(across, up, "trace doubtful" if name == NOT_CALIBRATED else "trace")
    _draw_stimuli(plot, session, over_s)
    return plot.svg()


def _draw_blinks(plot: Plot, session: AnalysedSession, over_s: tuple[float, float]) -> None:
    start_s, end_s = over_s
    last, raised = -math.inf, False
    for blink in session.blinks:
        if blink.offset_s < start_s or blink.onset_s >= end_s:
            continue
        kind = "closure" if blink.kind == "closure" else HATCH[blink.completeness]
        tip = f"{blink.completeness} {blink.kind} {blink.number}, {blink.duration_ms:.0f} ms"
        plot.area((blink.onset_s, blink.offset_s), kind, tip=tip)
        if start_s <= blink.peak_s < end_s:
            shape: Mark = "triangle" if blink.completeness == "complete" else "triangle-open"
            plot.mark_at(plot.x(blink.peak_s), plot.top - 3, shape, 3.5)
            if blink.kind == "closure":
                plot.mark_at(plot.x(blink.peak_s), plot.top + 6, "square", 3.0)
            place = plot.x(blink.peak_s)
            # Numbers that would touch stand in two lines.
            raised = place - last < LEAST_DISTANCE and not raised
            last = place
            base = plot.top - (19 if raised else 10)
            plot.text_at(place, base, str(blink.number), "note", anchor="middle")


def _draw_gaps(
    plot: Plot, times_s: Float64, known: np.ndarray, limits: tuple[float, float]
) -> None:
    edges = np.flatnonzero(np.diff(np.concatenate([[0], (~known).astype(np.int8), [0]])))
    low, high = limits
    for start, end in zip(edges[::2], edges[1::2], strict=True):
        until_s = times_s[min(int(end), len(times_s) - 1)]
        plot.area(
            (float(times_s[start]), float(until_s)),
            "gap",
            (low, low + 0.08 * (high - low)),
            "eyes not seen",
        )


def _draw_stimuli(plot: Plot, session: AnalysedSession, over_s: tuple[float, float]) -> None:
    if session.conditioning is None:
        return
    start_s, end_s = over_s
    for result in session.conditioning.trials:
        measures = result.measures
        stimuli = []
        if result.has_cs:
            stimuli.append((measures.cs_onset_s, "cs"))
        if measures.trial_type is not TrialType.CS_ONLY:
            stimuli.append((measures.us_onset_s, "us"))
        for onset_s, kind in stimuli:
            if start_s <= onset_s < end_s:
                plot.rule(onset_s, kind)


def thinned(times_s: Float64, values: Float64) -> tuple[Float64, Float64]:
    """Keep the lowest and highest value of each pixel, so that short dips stay visible."""
    block = len(values) // POINTS_PER_ROW
    if block < 3:
        return times_s, values
    whole = len(values) // block * block
    folded = values[:whole].reshape(-1, block)
    low = np.where(np.isfinite(folded), folded, np.inf).min(axis=1)
    high = np.where(np.isfinite(folded), folded, -np.inf).max(axis=1)
    pairs = np.stack([low, high], axis=1).ravel()
    return np.repeat(times_s[:whole:block], 2), np.where(np.isfinite(pairs), pairs, np.nan)
