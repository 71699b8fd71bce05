"""Pictures of a study: lines, marks and hatching distinguish, never colour alone."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from site_agent.eyeblink.conditioning.settings import (
    REJECT_RULES,
    ConditioningSettings,
    cr_rule_text,
)
from site_agent.eyeblink.study.criteria import CriteriaComparison, Criterion, CriterionRow
from site_agent.eyeblink.study.learning_curve import MEASURE_UNITS, LearningCurve, LearningMeasure
from site_agent.pictures.plot_style import (
    BLACK,
    DASHES,
    HATCHES,
    LEGEND_PT,
    MARKS,
    PANEL_PT,
    SMALL_PT,
    SOFT,
    TITLE_PT,
    draw_grid,
    new_figure,
    save_png,
    whole_numbers,
)

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_TITLES: Mapping[LearningMeasure, str] = {
    "cr_percent": "CR (% of valid trials)",
    "amplitude_all": "CR amplitude, all valid trials (FEC)",
    "amplitude_cr": "CR amplitude, trials with a CR (FEC)",
}


def draw_learning_curves(path: Path, curves: Mapping[str, Sequence[LearningCurve]]) -> None:
    """Draw each measure: every participant, the mean with its standard error, line and band."""
    fitted = {curve.measure for group in curves.values() for curve in group}
    measures = [measure for measure in MEASURE_UNITS if measure in fitted]
    figure = new_figure(5.2 * len(measures), 4.8)
    axes = figure.subplots(1, len(measures), squeeze=False)[0]
    for axis, measure in zip(axes, measures, strict=True):
        for place, (group, group_curves) in enumerate(curves.items()):
            for curve in group_curves:
                if curve.measure == measure:
                    _draw_curve(axis, curve, group, place, several=len(curves) > 1)
        axis.set_xlabel("session")
        axis.set_ylabel(_TITLES[measure])
        draw_grid(axis)
        if measure == "cr_percent":
            axis.set_ylim(-3, 103)
        whole_numbers(axis)
        axis.legend(
            fontsize=LEGEND_PT, loc="upper center", bbox_to_anchor=(0.5, -0.13), frameon=False
        )
    figure.suptitle(
        "Thin: participants; marks with bars: mean and standard error;\n"
        "thick: fitted line with its 95 % band",
        fontsize=TITLE_PT,
    )
    save_png(figure, path)


def _draw_curve(axis: Axes, curve: LearningCurve, group: str, place: int, *, several: bool) -> None:
    line = DASHES[place % len(DASHES)]
    people = sorted({point.participant for point in curve.points})
    for number, person in enumerate(people):
        own = [point for point in curve.points if point.participant == person]
        axis.plot(
            [point.position for point in own],
            [point.value for point in own],
            color=SOFT,
            linewidth=0.9,
            linestyle=line,
            marker=MARKS[number % len(MARKS)],
            markersize=5,
            markerfacecolor="white" if place % 2 == 0 else SOFT,
        )
    axis.fill_between(
        curve.positions,
        curve.low,
        curve.high,
        facecolor="0.5",
        alpha=0.22,
        edgecolor="0.3",
        hatch=HATCHES[place % len(HATCHES)],
        linewidth=0.5,
    )
    slope, unit = curve.slope, MEASURE_UNITS[curve.measure]
    interval = f"[{slope.low:+.2g}, {slope.high:+.2g}]"
    if math.isnan(slope.low):
        interval = "(too few values for an interval)"
    name = f"{group}: " if group else ""
    axis.plot(
        curve.positions,
        curve.mean,
        color=BLACK,
        linewidth=2.2,
        linestyle=line,
        label=f"{name}{slope.estimate:+.2g} {unit} per session {interval}, {curve.method}",
    )
    # Beside each other where groups would cover each other.
    shift = 0.04 * (2 * place - 1) if several else 0.0
    axis.errorbar(
        [mean.position + shift for mean in curve.observed],
        [mean.mean for mean in curve.observed],
        yerr=[0.0 if math.isnan(m.standard_error) else m.standard_error for m in curve.observed],
        color=BLACK,
        linestyle="none",
        marker="s" if place % 2 == 0 else "o",
        markersize=7,
        markerfacecolor=BLACK if place % 2 == 0 else "white",
        capsize=4,
        zorder=5,
    )


def draw_criteria(
    path: Path, comparison: CriteriaComparison, criteria: Sequence[Criterion]
) -> None:
    """Draw the effect under every criterion, and below each what the criterion is."""
    pairs = list(zip(comparison.rows, criteria, strict=True))
    own = pairs[0]
    pairs.sort(key=lambda pair: pair[0].effect.estimate if pair[0].effect else math.inf)
    options = _options([criterion.settings for _, criterion in pairs])
    figure = new_figure(max(8.0, 3.2 + 0.28 * len(pairs)), 3.6 + 0.2 * len(options))
    upper, lower = figure.subplots(
        2, 1, sharex=True, height_ratios=[14, max(4, len(options))], gridspec_kw={"hspace": 0.06}
    )
    for place, pair in enumerate(pairs):
        _draw_estimate(upper, place, pair[0], is_own=pair is own)
        for row, (_, _, chosen) in enumerate(options):
            lower.plot(
                [place],
                [row],
                marker="s" if chosen[place] else ".",
                markersize=6 if chosen[place] else 1.5,
                color=BLACK if chosen[place] else "0.6",
            )
    upper.axhline(0.0, color=BLACK, linewidth=0.8, linestyle=":")
    upper.set_ylabel(_effect_label(comparison), fontsize=LEGEND_PT)
    draw_grid(upper, "y")
    upper.set_xticks([])
    lower.set_yticks(range(len(options)), [label for _, label, _ in options], fontsize=SMALL_PT)
    for row in range(1, len(options)):
        if options[row][0] != options[row - 1][0]:
            lower.axhline(row - 0.5, color="0.5", linewidth=0.6)
    lower.set_ylim(len(options) - 0.5, -0.5)
    lower.set_xlabel(f"{len(pairs)} criteria, in the order of the effect")
    figure.suptitle(
        f"{comparison.conclusion}\n"
        "Star: the study's own criterion; filled: the same verdict, hollow: another one, "
        "cross: no effect can be had; bars: 95 % interval",
        fontsize=PANEL_PT,
    )
    save_png(figure, path)


def _draw_estimate(axis: Axes, place: int, row: CriterionRow, *, is_own: bool) -> None:
    if row.effect is None:
        axis.plot([place], [0.0], marker="x", color=BLACK, markersize=7)
        return
    effect = row.effect
    if math.isfinite(effect.low) and math.isfinite(effect.high):
        axis.plot([place, place], [effect.low, effect.high], color="0.35", linewidth=1.2)
    axis.plot(
        [place],
        [effect.estimate],
        marker="*" if is_own else "o",
        markersize=13 if is_own else 6,
        color=BLACK,
        markerfacecolor=BLACK if row.agrees else "white",
        zorder=5,
    )


def _effect_label(comparison: CriteriaComparison) -> str:
    unit = MEASURE_UNITS[comparison.measure]
    if comparison.question == "learning":
        return f"change of {comparison.measure}\nper session ({unit})"
    return f"difference of {comparison.measure}\nbetween the groups ({unit})"


def _options(settings: Sequence[ConditioningSettings]) -> list[tuple[str, str, list[bool]]]:
    """Rows of the lower picture: kind of option, its name, which criteria have it."""
    kinds: tuple[tuple[str, list[str]], ...] = (
        ("rule", [cr_rule_text(item.cr_rule, item.cr_threshold) for item in settings]),
        (
            "onset",
            [
                f"CR onset at or after {item.onset_floor_ms:g} ms"
                if item.cr_needs_onset
                else "no demand on the CR onset"
                for item in settings
            ],
        ),
        ("rejection", [_rejecting(item) for item in settings]),
        ("baseline", [_window("baseline", item.baseline_ms) for item in settings]),
        ("window", [_window("CR window", item.cr_window_ms) for item in settings]),
    )
    rows = []
    for kind, labels in kinds:
        distinct = sorted(set(labels))
        if kind in {"baseline", "window"} and len(distinct) == 1:
            continue
        for label in distinct:
            rows.append((kind, label, [own == label for own in labels]))
    return rows


def _rejecting(settings: ConditioningSettings) -> str:
    if set(settings.reject_rules) == set(REJECT_RULES):
        return "rejecting trials by all rules"
    return f"rejecting {', '.join(settings.reject_rules) or 'no trial'}"


def _window(name: str, window_ms: tuple[float, float]) -> str:
    return f"{name} {window_ms[0]:g} to {window_ms[1]:g} ms"
