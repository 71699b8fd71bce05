"""Pictures of a study: scores against the number of parts, and curves."""

import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from site_agent.evaluation import DetectionScores, LandmarkScores
from site_agent.evaluation.plots import plot_cumulative_errors, plot_precision_recall
from site_agent.pictures import plot_style
from site_agent.studies.table import StudyTable, TableLine

_LOOKS: dict[str, dict[str, Any]] = {
    "alone": {"color": plot_style.BLACK, "marker": "o", "linestyle": "none"},
    "union": {"color": plot_style.BLUE, "marker": "s", "linestyle": "-"},
    "merged": {"color": plot_style.VERMILION, "marker": "^", "linestyle": "--"},
    "cascade": {"color": plot_style.GREEN, "marker": "D", "linestyle": "-."},
    "refined": {"color": plot_style.COLOURS[4], "marker": "*", "linestyle": "none"},
}
_LEGENDS = {
    "alone": "alone",
    "union": "trained in one place",
    "merged": "merged (COM)",
    "cascade": "merged (CASCADE)",
    "refined": "REFINED",
}
_AXES = {"mean_error": "mean error", "recall": "recall", "precision": "precision"}


def draw_pictures(folder: Path, table: StudyTable) -> list[Path]:
    """Draw all pictures for which there are scores, and return their files."""
    if not any(line.scores for line in table.lines):
        return []
    files = [folder / "growing.png"]
    _draw_growing(files[0], table)
    chosen = _choose_lines(table)
    detectors = [(name, s) for name, s in chosen if isinstance(s, DetectionScores)]
    landmarks = [(name, s) for name, s in chosen if isinstance(s, LandmarkScores)]
    if detectors:
        files.append(folder / "precision_recall.png")
        plot_precision_recall(detectors, files[-1], title=table.name)
    if landmarks:
        files.append(folder / "cumulative_error.png")
        plot_cumulative_errors(landmarks, files[-1], title=table.name)
    return files


def _choose_lines(table: StudyTable) -> list[tuple[str, Any]]:
    lines = [
        table.best_alone(),
        table.find("all"),
        table.find("merged"),
        table.find("cascade"),
        table.find("refined"),
        table.find("refined", thinned=True),
    ]
    return [(line.row.name, line.scores) for line in lines if line is not None]


def _draw_growing(path: Path, table: StudyTable) -> None:
    names = table.headline
    figure = plot_style.new_figure(6.4 * len(names), 4.8)
    panels = figure.subplots(1, len(names), squeeze=False)[0]
    for axes, metric in zip(panels, names, strict=True):
        for place, (group, look) in enumerate(_LOOKS.items()):
            lines = [line for line in table.lines if _belongs(line, group) and line.scores]
            if not lines:
                continue
            # Beside each other where bars would cover each other.
            shift = 0.07 * (place - 2) if group != "alone" else 0.0
            points = [(line.row.parts + shift, line.value(metric)) for line in lines]
            if group == "refined":
                points = points[-1:]
                lines = lines[-1:]
            axes.errorbar(
                [x for x, _ in points],
                [y for _, y in points],
                yerr=_bars(lines, metric),
                label=_LEGENDS[group],
                capsize=3,
                elinewidth=0.7,
                markersize=10 if look["marker"] == "*" else 6,
                markerfacecolor="white" if group == "alone" else look["color"],
                **look,
            )
        axes.set(xlabel="parts whose data are in the model", ylabel=_AXES[metric])
        plot_style.whole_numbers(axes)
        plot_style.draw_grid(axes)
        axes.legend(fontsize=plot_style.LEGEND_PT)
    figure.suptitle(f"{table.name}: scores with 95 % intervals", fontsize=plot_style.TITLE_PT)
    plot_style.save_png(figure, path)


def _belongs(line: TableLine, group: str) -> bool:
    if "thinned" in line.row.name:
        return False
    return line.row.group == group or (group == "union" and line.row.group == "all")


def _bars(lines: Sequence[TableLine], metric: str) -> list[list[float]] | None:
    low, high = [], []
    for line in lines:
        value = line.value(metric)
        ends = line.scores.intervals.get(metric) if line.scores else None
        if ends is None or any(math.isnan(end) for end in ends):
            return None
        low.append(max(0.0, value - ends[0]))
        high.append(max(0.0, ends[1] - value))
    return [low, high]
