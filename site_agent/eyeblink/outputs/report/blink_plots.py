"""How often, how far, how long and how fast: plots of a session's blinks."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from site_agent.eyeblink.blinks.finding import Blink
from site_agent.eyeblink.blinks.statistics import BlinkStatistics
from site_agent.eyeblink.outputs.report.svg import Plot, nice_ticks, number_text, padded
from site_agent.eyeblink.records import Float64
from site_agent.eyeblink.session import AnalysedSession

PROFILE_MS = (-300.0, 500.0)
PROFILE_STEP_MS = 5.0
MOST_PROFILES = 150
MOST_BINS = 25


def rate_plot(statistics: BlinkStatistics) -> str:
    """Blinks per minute over the recording."""
    bins = statistics.rate
    rates = [each.blinks_per_minute for each in bins]
    highest = max([rate for rate in rates if math.isfinite(rate)], default=1.0)
    end_min = max(1.0, bins[-1].end_s / 60.0) if bins else 1.0
    start_min = bins[0].start_s / 60.0 if bins else 0.0
    plot = Plot(
        "Blinks per minute over the recording",
        (start_min, end_min),
        (0.0, max(highest, 1.0) * 1.15),
        width=1000.0,
        height=220.0,
    )
    plot.axes("time (min)", "blinks per minute", x_ticks=15)
    for each, rate in zip(bins, rates, strict=True):
        over = (each.start_s / 60.0, each.end_s / 60.0)
        if not math.isfinite(rate):
            plot.area(over, "window", tip=f"eyes seen for {each.seen_s:.0f} s only")
            continue
        plot.area(over, "bar", (0.0, rate), f"{each.blinks} blinks, seen {each.seen_s:.0f} s")
        if len(bins) <= 40:
            plot.text((over[0] + over[1]) / 2, rate + highest * 0.02, f"{rate:.0f}")
    if math.isfinite(statistics.blinks_per_minute):
        plot.level(statistics.blinks_per_minute, "limit")
    return plot.svg()


def histogram(values: Sequence[float], second: Sequence[float], label: str, names: str) -> str:
    """Return counts of `values`, and stacked on them, hatched, those of `second`."""
    known = [value for value in (*values, *second) if math.isfinite(value)]
    if not known:
        return ""
    low, high = padded(known, least=1e-6 + 0.02 * max(map(abs, known)), share=0.0)
    ticks = nice_ticks((low, high), MOST_BINS - 5)
    step = ticks[1] - ticks[0] if len(ticks) > 1 else high - low
    first = math.floor(low / step)
    edges = step * np.arange(first, math.floor(high / step) + 2)
    lower, _ = np.histogram([v for v in values if math.isfinite(v)], edges)
    upper, _ = np.histogram([v for v in second if math.isfinite(v)], edges)
    top = float(max((lower + upper).max(), 1)) * 1.1
    plot = Plot(f"Distribution: {label}", (float(edges[0]), float(edges[-1])), (0.0, top))
    plot.axes(label, f"number of {names}")
    for place, (below, above) in enumerate(zip(lower, upper, strict=True)):
        over = (float(edges[place]), float(edges[place + 1]))
        if below:
            plot.area(over, "bar", (0.0, float(below)))
        if above:
            plot.area(over, "bar2", (float(below), float(below + above)))
    median = float(np.median(known))
    plot.rule(median, "limit", f"median {number_text(float(f'{median:.3g}'))}")
    return plot.svg()


def kinematics_plot(blinks: Sequence[Blink]) -> str:
    """Closing speed against amplitude: in healthy lids nearly a straight line."""
    known = [blink for blink in blinks if math.isfinite(blink.peak_velocity_fec_per_s)]
    if not known:
        return ""
    amplitudes = [blink.amplitude_fec for blink in known]
    speeds = [blink.peak_velocity_fec_per_s for blink in known]
    plot = Plot(
        "Peak closing velocity against amplitude",
        (0.0, max(1.1, 1.05 * max(amplitudes))),
        (0.0, 1.1 * max(*speeds, 1.0)),
    )
    plot.axes("amplitude (FEC)", "peak closing velocity (FEC/s)")
    for kind, shape in (("complete", "disc"), ("partial", "ring")):
        chosen = [blink for blink in known if blink.completeness == kind]
        plot.marks(
            [blink.amplitude_fec for blink in chosen],
            [blink.peak_velocity_fec_per_s for blink in chosen],
            "disc" if shape == "disc" else "ring",
        )
    if len(known) >= 5 and np.ptp(amplitudes) > 0.05:
        # Through the origin, as a lid that does not move has no speed.
        slope = float(np.dot(amplitudes, speeds) / np.dot(amplitudes, amplitudes))
        ends = np.array([0.0, plot.x_range[1]])
        reach = np.minimum(ends, plot.y_range[1] / slope)
        plot.line(reach, slope * reach, "fit")
        plot.text_at(
            plot.left + 8, plot.top + 12, f"dashed: {slope:.1f} per second × amplitude", "note"
        )
    return plot.svg()


def profile_plot(session: AnalysedSession) -> str:
    """The closure of all blinks around their peak, and their mean."""
    blinks = [blink for blink in session.blinks if blink.kind == "blink"]
    grid_ms, rows = _profiles(session, blinks)
    if not len(rows):
        return ""
    mean = _mean_where_most(rows)
    shown = rows[:: max(1, math.ceil(len(rows) / MOST_PROFILES))]
    plot = Plot("Eyelid closure around the peak of each blink", PROFILE_MS, padded(mean, least=1.3))
    plot.axes("time from the peak (ms)", "FEC")
    low, high = plot.y_range
    for row in shown:
        plot.line(grid_ms, np.clip(row, low, high), "thin")
    plot.line(grid_ms, mean, "mean")
    plot.rule(0.0, "limit")
    return plot.svg()


def _profiles(session: AnalysedSession, blinks: Sequence[Blink]) -> tuple[Float64, Float64]:
    grid_ms = np.arange(PROFILE_MS[0], PROFILE_MS[1] + 1.0, PROFILE_STEP_MS)
    times_s, fec = session.trace.timestamps_s, session.fec()
    longest_s = 2.5 / session.trace.frame_rate_hz if len(times_s) > 1 else 0.0
    rows = []
    for blink in blinks:
        wanted_s = blink.peak_s + grid_ms / 1000.0
        first, last = np.searchsorted(times_s, [wanted_s[0] - 1.0, wanted_s[-1] + 1.0])
        near = slice(int(first), int(last))
        known = np.isfinite(fec[near])
        at_s, level = times_s[near][known], fec[near][known]
        if len(at_s) < 3:
            continue
        values = np.interp(wanted_s, at_s, level, np.nan, np.nan)
        after = np.clip(np.searchsorted(at_s, wanted_s), 1, len(at_s) - 1)
        rows.append(np.where(at_s[after] - at_s[after - 1] <= longest_s, values, np.nan))
    return grid_ms, np.array(rows).reshape(-1, len(grid_ms))


def _mean_where_most(rows: Float64) -> Float64:
    """Mean at the times that at least half of the rows know."""
    known = np.isfinite(rows)
    count = known.sum(axis=0)
    total = np.where(known, rows, 0.0).sum(axis=0)
    return np.where(2 * count >= len(rows), total / np.maximum(count, 1), np.nan)
