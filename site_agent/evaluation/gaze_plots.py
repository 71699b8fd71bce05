"""Plots of the errors of gaze networks: by person, and by direction."""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from site_agent.evaluation.gaze import GazeScores
from site_agent.evaluation.plots import titled_axes
from site_agent.pictures.plot_style import (
    BLACK,
    COLOURS,
    LEGEND_PT,
    PANEL_PT,
    TITLE_PT,
    new_figure,
    save_png,
)

_MOST_COLUMNS = 3
_BIN_DEG, _FEWEST_IN_BIN = 4, 5


def plot_persons(models: Sequence[tuple[str, GazeScores]], path: Path, *, title: str = "") -> None:
    """Draw the mean error of each person, in the order of the first network's errors."""
    persons = sorted(models[0][1].persons, key=lambda each: each.mean_error_deg)
    names = [each.person for each in persons]
    figure, axes = titled_axes(title, max(8.0, 2 + 0.3 * len(names)))
    places = np.arange(len(names))
    wide = 0.8 / len(models)
    for number, (name, scores) in enumerate(models):
        found = {each.person: each.mean_error_deg for each in scores.persons}
        axes.bar(
            places + (number - (len(models) - 1) / 2) * wide,
            [found[person] for person in names],
            wide,
            label=f"{name}  (mean {scores.mean_error_deg:.2f})",
            color=COLOURS[(number + 1) % len(COLOURS)],
        )
    axes.hlines(
        [each.constant_error_deg for each in persons],
        places - 0.45,
        places + 0.45,
        color=BLACK,
        label=f"constant mean gaze  (mean {models[0][1].constant_error_deg:.2f})",
    )
    axes.set_xticks(places, names, rotation=90 if len(names) > 12 else 0, fontsize=LEGEND_PT)
    axes.set(xlabel="person", ylabel="mean angular error in degrees")
    # Room for the legend above the highest bar.
    axes.set_ylim(top=axes.get_ylim()[1] * (1.1 + 0.05 * len(models)))
    axes.legend(loc="upper left", fontsize=LEGEND_PT)
    save_png(figure, path)


def plot_directions(
    models: Sequence[tuple[str, GazeScores]], path: Path, *, title: str = ""
) -> None:
    """Draw a map of the mean error over yaw and pitch for each network, on one scale."""
    yaw, pitch = np.rad2deg(models[0][1].gaze).T
    sides = [
        np.arange(math.floor(angles.min() / _BIN_DEG) * _BIN_DEG, angles.max() + _BIN_DEG, _BIN_DEG)
        for angles in (yaw, pitch)
    ]
    counts, *_ = np.histogram2d(yaw, pitch, sides)
    maps = []
    for _, scores in models:
        sums, *_ = np.histogram2d(yaw, pitch, sides, weights=scores.errors_deg)
        enough = counts >= min(_FEWEST_IN_BIN, counts.max())
        maps.append(np.where(enough, sums / np.maximum(counts, 1), np.nan))
    columns = min(len(models), _MOST_COLUMNS)
    rows = math.ceil(len(models) / columns)
    figure = new_figure(1.5 + 5 * columns, 0.8 + 3.6 * rows)
    figure.suptitle(title, fontsize=TITLE_PT)
    panels = figure.subplots(rows, columns, squeeze=False).ravel()
    highest = max(float(np.nanmax(each)) for each in maps)
    for axes, (name, _), errors in zip(panels, models, maps, strict=False):
        drawn = axes.pcolormesh(*sides, errors.T, vmin=0, vmax=highest, cmap="viridis")
        axes.set_title(name, fontsize=PANEL_PT)
        # As the camera sees it: positive yaw is to the left of the picture.
        axes.invert_xaxis()
        axes.set(xlabel="yaw in degrees", ylabel="pitch in degrees", aspect="equal")
    for axes in panels[len(models) :]:
        axes.set_visible(False)
    figure.colorbar(drawn, ax=panels.tolist(), label="mean angular error in degrees", shrink=0.8)
    save_png(figure, path)
