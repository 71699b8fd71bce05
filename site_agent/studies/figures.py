"""The plots of a study: lines, bars and matrices of rows of its results, in one style."""

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from site_agent.pictures import plot_style
from site_agent.studies.protocol_file import FigurePart, PanelPart
from site_agent.studies.results import Results

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

_PANEL_IN = (6.4, 4.4)
_SERIES_APART = 0.8
_MOST_MARKS, _MOST_TICKS = 50, 12
Points = list[dict[str, Any]]


def draw_figures(folder: Path, parts: Sequence[FigurePart], results: Results) -> list[Path]:
    """Draw the figures that have points, and return their files."""
    files = []
    for part in parts:
        panels = []
        for panel in part.panels:
            header, rows = results.query(panel.sql)
            points = [dict(zip(header, row, strict=True)) for row in rows]
            for name, some in _groups(points, "panel").items():
                title = ": ".join(filter(None, (name, panel.title)))
                panels.append((panel.model_copy(update={"title": title}), some))
        if not panels:
            continue
        width, height = _PANEL_IN
        figure = plot_style.new_figure(width * len(panels), height)
        for axes, (panel, points) in zip(
            figure.subplots(1, len(panels), squeeze=False)[0], panels, strict=True
        ):
            _DRAWINGS[panel.kind](figure, axes, points)
            _finish(axes, panel, points)
        files.append(folder / f"{part.name}.png")
        plot_style.save_png(figure, files[-1])
    return files


def _draw_lines(_figure: "Figure", axes: "Axes", points: Points) -> None:
    for number, (series, line) in enumerate(_groups(points, "series").items()):
        places = [point["x"] for point in line]
        look = plot_style.line_style(number)
        if len(set(places)) == 1:
            look["linestyle"] = "none"
        axes.errorbar(
            places, _heights(line), yerr=_halves(line), capsize=3, elinewidth=0.7,
            markersize=5 if len(line) < _MOST_MARKS else 0, label=series, **look,
        )  # fmt: skip


def _draw_bars(_figure: "Figure", axes: "Axes", points: Points) -> None:
    names = list(dict.fromkeys(str(point["x"]) for point in points))
    groups = _groups(points, "series")
    width = _SERIES_APART / len(groups)
    for number, (series, line) in enumerate(groups.items()):
        shift = (number - (len(groups) - 1) / 2) * width
        axes.bar(
            [names.index(str(point["x"])) + shift for point in line], _heights(line), width,
            yerr=_halves(line), capsize=3, label=series,
            color=plot_style.COLOURS[number % len(plot_style.COLOURS)],
        )  # fmt: skip
    axes.set_xticks(range(len(names)), names, fontsize=plot_style.LEGEND_PT, rotation=30)


def _draw_matrix(figure: "Figure", axes: "Axes", points: Points) -> None:
    columns = sorted({str(point["x"]) for point in points})
    rows = sorted({str(point["y"]) for point in points})
    values = np.full((len(rows), len(columns)), np.nan)
    for point in points:
        place = rows.index(str(point["y"])), columns.index(str(point["x"]))
        values[place] = _number(point["value"])
    shown = axes.imshow(values, cmap="viridis_r", aspect="auto")
    middle = (np.nanmin(values) + np.nanmax(values)) / 2
    for (row, column), value in np.ndenumerate(values):
        axes.text(
            column, row, f"{value:.1f}", ha="center", va="center",
            fontsize=plot_style.SMALL_PT, color="white" if value > middle else "black",
        )  # fmt: skip
    axes.set_xticks(range(len(columns)), columns, fontsize=plot_style.LEGEND_PT, rotation=90)
    axes.set_yticks(range(len(rows)), rows, fontsize=plot_style.LEGEND_PT)
    figure.colorbar(shown)


_DRAWINGS = {"lines": _draw_lines, "bars": _draw_bars, "matrix": _draw_matrix}


def _finish(axes: "Axes", panel: PanelPart, points: Points) -> None:
    axes.set(xlabel=panel.x, ylabel=panel.y, title=panel.title)
    if panel.kind == "matrix":
        return
    if panel.log:
        axes.set_xscale("log")
    places = sorted({point["x"] for point in points})
    if panel.kind == "lines" and len(places) <= _MOST_TICKS:
        axes.set_xticks(places, [f"{place:g}" for place in places])
        axes.minorticks_off()
    if panel.lowest is not None:
        axes.set_ylim(bottom=panel.lowest)
    plot_style.draw_grid(axes)
    if any(axes.get_legend_handles_labels()[1]):
        axes.legend(fontsize=plot_style.LEGEND_PT)


def _groups(points: Points, column: str) -> dict[str, Points]:
    groups: dict[str, Points] = {}
    for point in points:
        groups.setdefault(str(point.get(column) or ""), []).append(point)
    return groups


def _heights(points: Points) -> list[float]:
    return [_number(point["y"]) for point in points]


def _halves(points: Points) -> Any:
    """Return the lengths of the error bars; None where no point has ends of an interval."""
    if not all({"low", "high"} <= set(point) for point in points):
        return None
    ends = [
        (_number(point["y"]) - _number(point["low"]), _number(point["high"]) - _number(point["y"]))
        for point in points
    ]
    return np.clip(np.nan_to_num(np.array(ends).T), 0, None)


def _number(value: Any) -> float:
    """Return a number that can be drawn: NaN, where one is missing or infinite."""
    return float(value) if value is not None and np.isfinite(value) else float("nan")
