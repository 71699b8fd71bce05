"""trace.png: the whole session in rows, blinks marked by shape and number, not by colour alone."""

from __future__ import annotations

import math
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from site_agent.eyeblink.records import Float64
from site_agent.eyeblink.session import AnalysedSession

if TYPE_CHECKING:
    from matplotlib.axes import Axes

SHORTEST_ROW_S = 30.0
MOST_ROWS = 40
POINTS_PER_ROW = 2400
HATCHES = {"blink": "////", "closure": "xxxx"}


class TracePicture:
    """EAR on the left axis, FEC on the right; a filled mark is a complete blink."""

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
        figure.subplots_adjust(0.05, 0.6 / tall, 0.96, 1.0 - 0.5 / tall, hspace=0.25)
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
    return (
        f"{name}: {count} blinks.  Hatched: blink (////) or longer closure (xxxx), "
        "numbered as in blinks.csv; ▼ complete, ▽ partial; bar at the bottom: eyes not seen"
    )


def _draw_row(axis: Axes, session: AnalysedSession, start_s: float, row_s: float) -> None:
    trace = session.trace
    first = int(np.searchsorted(trace.timestamps_s, start_s))
    last = int(np.searchsorted(trace.timestamps_s, start_s + row_s, side="right"))
    times_s, ear = trace.timestamps_s[first:last], trace.ear[first:last]
    few = last - first <= POINTS_PER_ROW
    axis.plot(
        *_thinned(times_s, ear),
        color="black",
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
    _draw_blinks(axis, session, start_s, start_s + row_s)
    axis.set_xlim(start_s, start_s + row_s)
    axis.set_ylabel("EAR")
    axis.grid(visible=True, linewidth=0.3)


def _draw_blinks(axis: Axes, session: AnalysedSession, start_s: float, end_s: float) -> None:
    """Shade and mark the blinks of a row, all of a kind at once: one by one takes seconds."""
    across = axis.get_xaxis_transform()
    seen = [
        blink for blink in session.blinks if blink.offset_s >= start_s and blink.onset_s < end_s
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
            [0.86] * len(times_s),
            linestyle="",
            marker="v",
            markersize=5,
            color="black",
            markerfacecolor=fill,
            transform=across,
        )
    for blink in peaks:
        axis.text(
            blink.peak_s,
            0.97,
            str(blink.number),
            fontsize=7,
            ha="center",
            va="top",
            transform=across,
            clip_on=True,
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
    right.set_ylabel("FEC")
    right.set_yticks([0.0, 0.5, 1.0])
