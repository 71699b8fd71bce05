"""The figures of the report: statistics of blinks, and conditioned responses."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import ArrayLike, NDArray

from site_agent.datasets.trials import TrialType
from site_agent.eyeblink.blinks.statistics import BlinkStatistics
from site_agent.eyeblink.conditioning.analysis import ConditioningResult
from site_agent.eyeblink.conditioning.cr_onset import GAP_FACTOR, cut_trial
from site_agent.eyeblink.conditioning.summary import TrialResult, wilson_interval_percent
from site_agent.eyeblink.records import Float64
from site_agent.eyeblink.session import AnalysedSession
from site_agent.pictures import plot_style

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

RATE_CAPTION = (
    "Blinks per minute in which the eyes were seen; dotted: mean over the recording; hatched: seen "
    "for less than 10 s."
)
TYPE_TEXTS = {
    TrialType.PAIRED: "CS and US",
    TrialType.CS_ONLY: "CS alone",
    TrialType.US_ONLY: "US alone",
}
MOST_LINES = 80
LEAST_BLOCK, MOST_BLOCKS = 5, 10


def rate_figure(statistics: BlinkStatistics) -> "Figure":
    """Draw the rate of blinks over the recording."""
    figure = plot_style.new_figure_with_margins(10.0, 3.0)
    axis = figure.subplots()
    for rate in statistics.rate:
        start_min, width_min = rate.start_s / 60.0, (rate.end_s - rate.start_s) / 60.0
        if math.isfinite(rate.blinks_per_minute):
            axis.bar(
                start_min,
                rate.blinks_per_minute,
                width_min,
                align="edge",
                facecolor=plot_style.BLUE,
                alpha=0.6,
                edgecolor="black",
                linewidth=0.6,
            )
        else:
            axis.axvspan(
                start_min, start_min + width_min, facecolor="none", hatch="--", ec=plot_style.SOFT
            )
    if math.isfinite(statistics.blinks_per_minute):
        axis.axhline(statistics.blinks_per_minute, color="black", linestyle=":")
    axis.set(xlabel="time (min)", ylabel="blinks per minute")
    plot_style.draw_grid(axis)
    return figure


def aligned_figure(session: AnalysedSession, conditioning: ConditioningResult) -> "Figure":
    """Draw for each type of trial the single trials, their mean and its 95 % interval."""
    cs_us_ms = conditioning.summary.cs_us_ms
    after_ms = cs_us_ms + 500.0 if math.isfinite(cs_us_ms) else 0.0
    aligned = align_trials(
        session.trace.timestamps_s,
        session.fec(),
        conditioning.trials,
        window_ms=(-500.0, max(1000.0, after_ms)),
    )
    kinds = [kind for kind in TYPE_TEXTS if kind in aligned.trial_types]
    figure = plot_style.new_figure_with_margins(10.0, 3.4, wspace=0.2)
    axes = figure.subplots(1, max(1, len(kinds)), sharey=True, squeeze=False)[0]
    for axis, kind in zip(axes, kinds, strict=False):
        _draw_aligned(axis, aligned, kind)
        _draw_stimuli(axis, kind, cs_us_ms, conditioning.settings.cr_window_ms)
    axes[0].set(ylabel="FEC above baseline", ylim=(-0.3, 1.3))
    return figure


def _draw_aligned(axis: "Axes", aligned: "AlignedTrials", kind: TrialType) -> None:
    from scipy.special import stdtrit

    rows = aligned.fec[
        aligned.valid & np.array([trial_type is kind for trial_type in aligned.trial_types])
    ]
    mean, count = mean_of_known(rows), len(rows)
    shown = rows[:: max(1, math.ceil(len(rows) / MOST_LINES))]
    axis.plot(aligned.time_ms, shown.T, color=plot_style.SOFT, linewidth=0.5, alpha=0.4)
    if count > 2:  # an interval of two trials hides the picture
        known = np.isfinite(rows).sum(axis=0)
        spread = np.ma.masked_invalid(rows).std(axis=0, ddof=1).filled(np.nan)
        half = float(stdtrit(count - 1, 0.975)) * spread / np.sqrt(np.maximum(known, 1))
        axis.fill_between(
            aligned.time_ms, mean - half, mean + half, color=plot_style.BLUE, alpha=0.25, lw=0
        )
    axis.plot(aligned.time_ms, mean, color=plot_style.BLUE, linewidth=2.2)
    axis.set_title(f"{TYPE_TEXTS[kind]}, {count} valid trials", fontsize=plot_style.TITLE_PT)
    plot_style.draw_grid(axis)
    axis.set_xlim(aligned.time_ms[0], aligned.time_ms[-1])


def _draw_stimuli(
    axis: "Axes", kind: TrialType, cs_us_ms: float, cr_window_ms: tuple[float, float]
) -> None:
    if kind is TrialType.US_ONLY:
        axis.axvline(0.0, color=plot_style.US_COLOUR, linestyle="--")
        axis.set_xlabel("time from the US (ms)")
        return
    start_ms, end_ms = cr_window_ms
    axis.axvspan(cs_us_ms + start_ms, cs_us_ms + end_ms, facecolor="none", hatch="---", ec="0.7")
    axis.axvline(0.0, color=plot_style.CS_COLOUR)
    axis.axvline(
        cs_us_ms, color=plot_style.US_COLOUR, linestyle="--" if kind is TrialType.PAIRED else ":"
    )
    axis.set_xlabel("time from the CS (ms)")


def learning_figure(conditioning: ConditioningResult) -> "Figure | None":
    """Draw CR percentage over blocks of trials; None for fewer than two blocks."""
    trials = [result for result in conditioning.trials if result.has_cs]
    size = _block_size(len(trials))
    places, percent, bars = [], [], []
    for place, start in enumerate(range(0, len(trials), size), start=1):
        judged = [bool(trial.cr) for trial in trials[start : start + size] if trial.cr is not None]
        if judged:
            value = 100.0 * sum(judged) / len(judged)
            low, high = wilson_interval_percent(sum(judged), len(judged))
            places.append(place)
            percent.append(value)
            bars.append((value - low, high - value))
    if len(places) < 2:
        return None
    figure = plot_style.new_figure_with_margins(6.0, 3.4)
    axis = figure.subplots()
    yerr = np.abs(np.array(bars).T)
    axis.errorbar(
        places, percent, yerr=yerr, color=plot_style.BLUE, ecolor="black", marker="o", capsize=3
    )
    axis.set(xlabel=f"block of {size} trials with a CS", ylabel="CRs (%)", ylim=(-4, 104))
    axis.set_xticks(places)
    plot_style.draw_grid(axis)
    return figure


def _block_size(trials: int) -> int:
    return max(LEAST_BLOCK, math.ceil(trials / MOST_BLOCKS))


TRIALS_CAPTION = (
    "Left: every trial with a CS, a row each from the first (top); the darker, the more closed. "
    "White: not seen. Middle: the means of blocks of trials, the first at the bottom, each shifted "
    "up by 0.5. Right: closure around the US, with the peaks of the URs (ticks): did the puff "
    "reach the eye? Lines: CS (solid) and US (dashed)."
)
_UR_FEC = 0.1


def trials_figure(session: AnalysedSession, conditioning: ConditioningResult) -> "Figure | None":
    """Draw a heat map and a waterfall of the trials, and closure around the US."""
    trials = [result for result in conditioning.trials if result.has_cs]
    with_us = [
        result for result in conditioning.trials if math.isfinite(result.measures.ur_peak_ms)
    ]
    if not trials:
        return None
    figure = plot_style.new_figure_with_margins(10.0, 4.2, wspace=0.3)
    heat, blocks, around_us = figure.subplots(1, 3)
    signal, us_ms = (session.trace.timestamps_s, session.fec()), conditioning.summary.cs_us_ms
    aligned = align_trials(*signal, trials, window_ms=(-200.0, us_ms + 400.0))
    draw_heat_map(heat, aligned.time_ms, aligned.fec)
    size = _block_size(len(trials))
    for place, start in enumerate(range(0, len(trials), size)):
        rows = aligned.fec[start : start + size][aligned.valid[start : start + size]]
        if len(rows):
            blocks.plot(aligned.time_ms, 0.5 * place + mean_of_known(rows), color="black", lw=1.0)
    blocks.set(xlabel="time from the CS (ms)", ylabel=f"FEC, blocks of {size} trials")
    for axis in (heat, blocks):
        axis.axvline(0.0, color=plot_style.CS_COLOUR)
        axis.axvline(us_ms, color=plot_style.US_COLOUR, linestyle="--")
    if with_us:
        reflex = align_trials(*signal, with_us, window_ms=(-100.0, 300.0), at_us=True)
        around_us.plot(
            reflex.time_ms, reflex.fec.T, color=plot_style.SOFT, linewidth=0.5, alpha=0.4
        )
        around_us.plot(reflex.time_ms, mean_of_known(reflex.fec), color=plot_style.BLUE, lw=2.2)
        peaks_ms = [result.measures.ur_peak_ms for result in with_us]
        around_us.plot(peaks_ms, np.full(len(peaks_ms), -0.2), "k|", markersize=8)
        reached = sum(result.measures.ur_amplitude >= _UR_FEC for result in with_us)
        around_us.set_title(
            f"UR in {reached} of {len(with_us)}, peak at {np.median(peaks_ms):.0f} ms",
            fontsize=plot_style.PANEL_PT,
        )
    around_us.axvline(0.0, color=plot_style.US_COLOUR, linestyle="--")
    around_us.set(xlabel="time from the US (ms)", ylim=(-0.3, 1.3))
    return figure


def draw_heat_map(axis: "Axes", time_ms: Float64, rows: Float64) -> None:
    """Draw closure of trials, a row each; dark is closed."""
    edges_ms = (float(time_ms[0]), float(time_ms[-1]))
    axis.imshow(
        np.ma.masked_invalid(rows),
        aspect="auto",
        interpolation="nearest",
        cmap="Greys",
        vmin=-0.1,
        vmax=1.0,
        extent=(*edges_ms, len(rows) + 0.5, 0.5),
    )
    axis.set(xlabel="time from the CS (ms)", ylabel="trial with a CS")


def mean_of_known(rows: Float64) -> Float64:
    """Return the mean of the known values at each time, shape (k,); NaN where there is none."""
    known = np.isfinite(rows)
    count = known.sum(axis=0)
    mean: Float64 = np.where(known, rows, 0.0).sum(axis=0) / np.maximum(count, 1)
    return np.where(count > 0, mean, np.nan)


@dataclass(frozen=True, eq=False)
class AlignedTrials:
    """FEC around the stimuli."""

    time_ms: Float64
    """Of shape (k,). After the CS (the US in `us_only` trials)."""
    fec: Float64
    """Of shape (trials, k). Less each trial's baseline; NaN where nothing is known."""
    trial_types: tuple[TrialType, ...]
    valid: NDArray[np.bool_]
    """Of shape (trials,). Rejected trials are there too, for a picture; no average takes them."""


_STEP_MS = 5.0


def align_trials(
    timestamps_s: ArrayLike,
    fec: ArrayLike,
    results: Sequence[TrialResult],
    *,
    window_ms: tuple[float, float] = (-500.0, 1000.0),
    at_us: bool = False,
) -> AlignedTrials:
    """Read every trial at the same times; straight lines between frames, NaN within gaps.

    The window lies around each trial's time zero, or around its US.
    """
    times_s, level = (np.asarray(values, dtype=np.float64) for values in (timestamps_s, fec))
    grid_ms = np.arange(window_ms[0], window_ms[1] + _STEP_MS / 2.0, _STEP_MS)
    rows = np.full((len(results), len(grid_ms)), np.nan)
    for row, result in zip(rows, results, strict=True):
        measures = result.measures
        is_us_only = measures.trial_type is TrialType.US_ONLY
        zero_s = measures.us_onset_s if is_us_only or at_us else measures.cs_onset_s
        signal = cut_trial(times_s, level, zero_s, window_ms[0] - 200.0, window_ms[1] + 200.0)
        if len(signal.time_ms) < 2:
            continue
        baseline = measures.baseline if np.isfinite(measures.baseline) else 0.0
        after = np.clip(np.searchsorted(signal.time_ms, grid_ms), 1, len(signal.time_ms) - 1)
        width_ms = signal.time_ms[after] - signal.time_ms[after - 1]
        known = width_ms <= 2 * GAP_FACTOR * signal.frame_ms
        known &= (grid_ms >= signal.time_ms[0]) & (grid_ms <= signal.time_ms[-1])
        values = np.interp(grid_ms, signal.time_ms, signal.fec) - baseline
        row[:] = np.where(known, values, np.nan)
    return AlignedTrials(
        grid_ms,
        rows,
        tuple(result.measures.trial_type for result in results),
        np.array([result.valid for result in results], dtype=bool),
    )
