"""How often, how far, how long and how fast: the figure of a session's blinks."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from site_agent.eyeblink.blinks.finding import Blink
from site_agent.eyeblink.blinks.statistics import BlinkStatistics
from site_agent.eyeblink.session import AnalysedSession
from site_agent.pictures.plot_style import (
    BLUE,
    HATCH_PARTIAL,
    PANEL_PT,
    SOFT,
    draw_grid,
    new_figure_with_margins,
)

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

PROFILE_MS = np.arange(-300.0, 505.0, 5.0)
MOST_PROFILES = 150
BINS = 20

BLINK_CAPTION = (
    "Top: blinks per minute in which the eyes were seen; dotted: mean over the recording; hatched: "
    "seen for less than 10 s. Middle: amplitudes and durations, filled for complete blinks, "
    "hatched for partial ones. Bottom left: how fast the lids close against how far (filled: "
    "complete, open: partial). Bottom right: closure around the peak of single blinks (thin) and "
    "their mean (thick)."
)


def blink_figure(session: AnalysedSession, statistics: BlinkStatistics) -> Figure:
    """Draw rate, amplitudes, durations, speeds and profiles; the session has blinks."""
    blinks = [blink for blink in session.blinks if blink.kind == "blink"]
    figure = new_figure_with_margins(10.0, 9.0, wspace=0.2, hspace=0.35)
    axes = figure.subplot_mosaic(
        [["rate", "rate"], ["amplitude", "duration"], ["speed", "profile"]]
    )
    _draw_rate(axes["rate"], statistics)
    _draw_distribution(axes["amplitude"], blinks, "amplitude_fec", "amplitude (FEC)")
    _draw_distribution(axes["duration"], blinks, "duration_ms", "duration (ms)")
    _draw_speeds(axes["speed"], blinks)
    _draw_profiles(axes["profile"], session, blinks)
    for axis in axes.values():
        draw_grid(axis)
    return figure


def _draw_rate(axis: Axes, statistics: BlinkStatistics) -> None:
    for each in statistics.rate:
        start_min, width_min = each.start_s / 60.0, (each.end_s - each.start_s) / 60.0
        if math.isfinite(each.blinks_per_minute):
            axis.bar(
                start_min,
                each.blinks_per_minute,
                width_min,
                align="edge",
                facecolor=BLUE,
                alpha=0.6,
                edgecolor="black",
                linewidth=0.6,
            )
        else:
            axis.axvspan(start_min, start_min + width_min, facecolor="none", hatch="--", ec=SOFT)
    if math.isfinite(statistics.blinks_per_minute):
        axis.axhline(statistics.blinks_per_minute, color="black", linestyle=":")
    axis.set(xlabel="time (min)", ylabel="blinks per minute")


def _draw_distribution(axis: Axes, blinks: Sequence[Blink], name: str, label: str) -> None:
    complete, partial = (
        [value for blink in chosen if math.isfinite(value := getattr(blink, name))]
        for chosen in _by_completeness(blinks)
    )
    if not complete and not partial:
        return
    axis.hist(
        [complete, partial],
        bins=BINS,
        stacked=True,
        color=[BLUE, "white"],
        edgecolor="black",
        linewidth=0.6,
        hatch=["", HATCH_PARTIAL],
    )
    median = float(np.median(complete + partial))
    axis.axvline(median, color="black", linestyle=":")
    axis.set_title(f"median {median:.3g}", fontsize=PANEL_PT)
    axis.set(xlabel=label, ylabel="number of blinks")


def _draw_speeds(axis: Axes, blinks: Sequence[Blink]) -> None:
    """Closing speed against amplitude: in healthy lids nearly a straight line."""
    known = [blink for blink in blinks if math.isfinite(blink.peak_velocity_fec_per_s)]
    axis.set(xlabel="amplitude (FEC)", ylabel="peak closing velocity (FEC/s)")
    for chosen, fill in zip(_by_completeness(known), ("black", "white"), strict=True):
        amplitudes = [blink.amplitude_fec for blink in chosen]
        speeds = [blink.peak_velocity_fec_per_s for blink in chosen]
        axis.plot(amplitudes, speeds, "ko", markersize=4, markerfacecolor=fill)
    far = np.array([blink.amplitude_fec for blink in known])
    fast = np.array([blink.peak_velocity_fec_per_s for blink in known])
    if len(known) >= 5 and np.ptp(far) > 0.05:
        # Through the origin, as a lid that does not move has no speed.
        slope = float(far @ fast / (far @ far))
        axis.axline((0.0, 0.0), slope=slope, color=SOFT, linestyle="--")
        axis.set_title(f"dashed: {slope:.1f} per second × amplitude", fontsize=PANEL_PT)
    axis.set_xlim(left=0.0)
    axis.set_ylim(bottom=0.0)


def _draw_profiles(axis: Axes, session: AnalysedSession, blinks: Sequence[Blink]) -> None:
    peaks_s = np.array([blink.peak_s for blink in blinks])
    wanted_s = peaks_s[:, None] + PROFILE_MS / 1000.0
    values = np.interp(wanted_s, session.trace.timestamps_s, session.fec(), np.nan, np.nan)
    known = np.isfinite(values)
    # The mean only where most of the blinks are known.
    total, count = np.where(known, values, 0.0).sum(axis=0), known.sum(axis=0)
    mean = np.where(2 * count >= len(values), total / np.maximum(count, 1), np.nan)
    shown = values[:: max(1, math.ceil(len(values) / MOST_PROFILES))]
    axis.plot(PROFILE_MS, shown.T, color=SOFT, linewidth=0.5, alpha=0.4)
    axis.plot(PROFILE_MS, mean, color=BLUE, linewidth=2.2)
    axis.axvline(0.0, color="black", linestyle=":")
    axis.set(xlabel="time from the peak (ms)", ylabel="FEC", ylim=(-0.3, 1.3))


def _by_completeness(blinks: Sequence[Blink]) -> tuple[list[Blink], list[Blink]]:
    complete = [blink for blink in blinks if blink.completeness == "complete"]
    return complete, [blink for blink in blinks if blink.completeness != "complete"]
