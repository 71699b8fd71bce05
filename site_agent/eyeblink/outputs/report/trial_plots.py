"""Conditioned responses: trials on one time axis, from trial to trial, and the learning curve."""

from __future__ import annotations

import math

import numpy as np

from site_agent.errors import ConditioningError
from site_agent.eyeblink.conditioning.analysis import ConditioningResult
from site_agent.eyeblink.conditioning.summary import wilson_interval_percent
from site_agent.eyeblink.conditioning.trial_alignment import AlignedTrials, align_trials
from site_agent.eyeblink.conditioning.trials import TrialType
from site_agent.eyeblink.outputs.report.svg import Mark, Plot, padded
from site_agent.eyeblink.session import AnalysedSession
from site_agent.eyeblink.study.learning_curve import (
    LearningPoint,
    StudySession,
    fit_learning_curve,
    learning_points,
)

TYPE_TEXTS = {
    TrialType.PAIRED: "CS and US",
    TrialType.CS_ONLY: "CS alone",
    TrialType.US_ONLY: "US alone",
}
MOST_LINES = 80
LEAST_BLOCK, MOST_BLOCKS = 5, 10


def aligned_plots(session: AnalysedSession, conditioning: ConditioningResult) -> list[str]:
    """One plot for each type of trial: single trials, mean and its 95 % interval."""
    cs_us_ms = conditioning.summary.cs_us_ms
    window_ms = (-500.0, max(1000.0, cs_us_ms + 500.0))
    aligned = align_trials(
        session.trace.timestamps_s, session.fec(), conditioning.trials, window_ms=window_ms
    )
    found = [kind for kind in TYPE_TEXTS if kind in aligned.trial_types]
    means = [aligned.mean_and_error(kind) for kind in found]
    low, high = padded(np.concatenate([m for m, _, _ in means]) if means else [], least=1.2)
    limits = (min(low, -0.15), max(high, 1.1))
    return [_aligned_plot(aligned, kind, cs_us_ms, limits, conditioning) for kind in found]


def _aligned_plot(
    aligned: AlignedTrials,
    kind: TrialType,
    cs_us_ms: float,
    limits: tuple[float, float],
    conditioning: ConditioningResult,
) -> str:
    mean, error, count = aligned.mean_and_error(kind)
    time_ms = aligned.time_ms
    plot = Plot(
        f"{TYPE_TEXTS[kind]}: mean of {count} trials",
        (float(time_ms[0]), float(time_ms[-1])),
        limits,
        height=270.0,
        top=30.0,
    )
    zero = "US" if kind is TrialType.US_ONLY else "CS"
    if kind is not TrialType.US_ONLY:
        start_ms, end_ms = conditioning.settings.cr_window_ms
        plot.area((cs_us_ms + start_ms, cs_us_ms + end_ms), "window", tip="CR window")
    plot.axes(f"time from the {zero} (ms)", "FEC above baseline")
    rows = aligned.fec[aligned.valid & np.array([each is kind for each in aligned.trial_types])]
    for row in rows[:: max(1, math.ceil(len(rows) / MOST_LINES))]:
        plot.line(time_ms, np.clip(row, *limits), "thin")
    half = _t_quantile(count) * error
    plot.band(time_ms, np.clip(mean - half, *limits), np.clip(mean + half, *limits), "ci")
    plot.line(time_ms, mean, "mean")
    plot.rule(0.0, "us" if kind is TrialType.US_ONLY else "cs", zero)
    if kind is TrialType.PAIRED:
        plot.rule(cs_us_ms, "us", "US")
    elif kind is TrialType.CS_ONLY:
        plot.rule(cs_us_ms, "expected", "(no US)")
    plot.text_at(plot.left, 12, f"{TYPE_TEXTS[kind]}, {count} valid trials", "strong")
    return plot.svg()


def _t_quantile(count: int) -> float:
    from scipy.stats import t

    return float(t.ppf(0.975, count - 1)) if count > 1 else math.nan


def amplitude_plot(conditioning: ConditioningResult) -> str:
    """CR amplitude from trial to trial."""
    trials = [result for result in conditioning.trials if result.has_cs]
    if not trials:
        return ""
    amplitudes = [result.measures.cr_amplitude for result in trials]
    low, high = padded(amplitudes, least=0.6)
    plot = Plot(
        "CR amplitude of every trial with a CS",
        (0.0, len(trials) + 1.0),
        (min(low, -0.1), max(high, 0.5)),
        width=1000.0,
        height=240.0,
    )
    plot.axes("trial with a CS", "CR amplitude (FEC)", x_ticks=15)
    plot.level(0.0, "axis")
    if conditioning.settings.cr_rule.value == "fec":
        plot.level(conditioning.settings.cr_threshold, "limit", "CR criterion")
    for number, (result, amplitude) in enumerate(zip(trials, amplitudes, strict=True), start=1):
        shape: Mark = "disc" if result.cr else "ring"
        if not result.valid or result.cr is None:
            shape = "cross"
        shown = amplitude if math.isfinite(amplitude) or shape != "cross" else 0.0
        plot.marks([number], [float(np.clip(shown, *plot.y_range))], shape, 3.4)
    return plot.svg()


def learning_plot(conditioning: ConditioningResult) -> tuple[str, str]:
    """CR percentage over blocks of trials with a fitted line; and what the line says."""
    with_cs = sum(result.has_cs for result in conditioning.trials)
    block = max(LEAST_BLOCK, math.ceil(with_cs / MOST_BLOCKS))
    points = [
        point
        for point in learning_points(
            [StudySession("session", 1.0, conditioning)], trials_per_block=block
        )
        if math.isfinite(point.value)
    ]
    if len(points) < 2:
        return "", ""
    plot = Plot(
        "CR percentage over blocks of trials",
        (0.5, max(point.position for point in points) + 0.5),
        (-4.0, 104.0),
        height=270.0,
    )
    plot.axes(f"block of {block} trials with a CS", "CRs (%)", x_ticks=len(points))
    text = _draw_fit(plot, points)
    for point in points:
        low, high = wilson_interval_percent(
            round(point.value * point.n_trials / 100.0), point.n_trials
        )
        _whisker(plot, point.position, low, high)
    order = sorted(points, key=lambda point: point.position)
    plot.line(
        np.array([point.position for point in order]),
        np.array([point.value for point in order]),
        "mean",
    )
    plot.marks([p.position for p in points], [p.value for p in points], "disc", 4.0)
    return plot.svg(), text


def _draw_fit(plot: Plot, points: list[LearningPoint]) -> str:
    try:
        curve = fit_learning_curve(points)
    except ConditioningError:
        return ""
    if np.isfinite(curve.low).any():
        plot.band(curve.positions, curve.low, curve.high, "fitci")
    plot.line(curve.positions, curve.mean, "fit")
    slope = curve.slope
    text = f"CRs change by {slope.estimate:+.1f} percentage points from block to block"
    if math.isfinite(slope.low):
        text += f" (95 % interval {slope.low:+.1f} to {slope.high:+.1f})"
    return text + "."


def _whisker(plot: Plot, x: float, low: float, high: float) -> None:
    plot.line(np.array([x, x]), np.array([low, high]), "whisker")
    for end in (low, high):
        plot.line(np.array([x - 0.06, x + 0.06]), np.array([end, end]), "whisker")
