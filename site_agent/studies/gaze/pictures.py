"""Pictures of a gaze study, as in the paper: its figures 2, 3 and 4."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from site_agent.pictures.plot_style import (
    BLACK,
    BLUE,
    GREEN,
    LEGEND_PT,
    REFERENCE,
    SMALL_PT,
    VERMILION,
    draw_grid,
    new_figure,
    save_png,
)
from site_agent.studies.gaze import results as study_results
from site_agent.studies.gaze.protocol import Run
from site_agent.studies.gaze.settings import FEDERATED

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_COLOURS = {
    "individual": BLACK, "data-centre": BLUE, "fedavg": VERMILION, "adaptive": GREEN,
}  # fmt: skip
_LABELS = {"fedavg": "FedAvg", "data-centre": "data centre"}
_DEGREES = "mean angle error (degrees)"


def draw_pictures(folder: Path, runs: Sequence[Run], results: study_results.Results) -> list[Path]:
    """Draw all pictures for which there are results, and return their files."""
    files = []
    if found := study_results.matrix(runs, results):
        files.append(folder / "matrix.png")
        _draw_matrix(files[-1], found)
    if scores := study_results.method_scores(runs, results):
        files.append(folder / "persons.png")
        _draw_persons(files[-1], scores)
    if curves := list(_curves(runs, results)):
        files.append(folder / "curves.png")
        _draw_curves(files[-1], curves)
    if errors := study_results.robust_errors(runs, results, "noise"):
        files.append(folder / "noise.png")
        _draw_noise(files[-1], errors)
    return files


def _draw_matrix(path: Path, errors: dict[tuple[str, str], float]) -> None:
    rows = sorted({pair[0] for pair in errors})
    columns = sorted({pair[1] for pair in errors})
    values = _array([[errors[row, column] for column in columns] for row in rows])
    figure = new_figure(2.2 + 0.42 * len(columns), 1.6 + 0.36 * len(rows))
    axes = figure.subplots()
    shown = axes.imshow(values, cmap="viridis_r", aspect="auto")
    middle = (np.nanmin(values) + np.nanmax(values)) / 2
    for row, line in enumerate(values):
        for column, value in enumerate(line):
            colour = "white" if value > middle else "black"
            axes.text(column, row, f"{value:.1f}", ha="center", va="center", fontsize=SMALL_PT,
                      color=colour)  # fmt: skip
    axes.set_xticks(range(len(columns)), columns, fontsize=LEGEND_PT, rotation=90)
    axes.set_yticks(range(len(rows)), rows, fontsize=LEGEND_PT)
    axes.set(xlabel="tested on (diagonal: own held-out sessions)", ylabel="trained on")
    figure.colorbar(shown, label=_DEGREES)
    save_png(figure, path)


def _draw_persons(path: Path, scores: Sequence[study_results.MethodScores]) -> None:
    figure = new_figure(11, 4.4)
    left, right = figure.subplots(1, 2, width_ratios=(3, 1))
    specific = [each for each in scores if each.protocol == "person-specific"]
    for place, each in enumerate(specific):
        names, values = list(each.persons), _array(list(each.persons.values()))
        where = np.arange(len(names)) + (place - (len(specific) - 1) / 2) * 0.2
        left.bar(where, values, 0.18, color=_COLOURS[each.method], label=_label(each.method))
        left.set_xticks(range(len(names)), names, fontsize=LEGEND_PT, rotation=90)
    constant = np.mean([each.constant_error for each in specific])
    left.axhline(constant, color=REFERENCE, linestyle=":", linewidth=1, label="constant mean")
    left.set(ylabel=_DEGREES, title="person-specific", ylim=(0, 1.2 * left.get_ylim()[1]))
    left.legend(fontsize=LEGEND_PT, ncols=5)
    independent = [each for each in scores if each.protocol == "person-independent"]
    for place, each in enumerate(independent):
        half = 0.0 if math.isnan(each.error.half) else each.error.half
        right.bar(
            place, _array([each.error.mean]), yerr=half, capsize=4, color=_COLOURS[each.method]
        )
    if independent:
        constant = np.mean([each.constant_error for each in independent])
        right.axhline(constant, color=REFERENCE, linestyle=":", linewidth=1)
    labels = [_label(each.method) for each in independent]
    right.set_xticks(range(len(labels)), labels, fontsize=LEGEND_PT, rotation=20)
    right.set(title="person-independent", ylim=(0, None))
    for axes in (left, right):
        draw_grid(axes, "y")
    save_png(figure, path)


def _curves(
    runs: Sequence[Run], results: study_results.Results
) -> Iterator[tuple[str, np.ndarray]]:
    """Yield the mean learning curve of each federated method: passes, training, test."""
    for method in FEDERATED:
        found = [
            [
                [
                    run.training.epochs * done,
                    study_results.number(train),
                    study_results.number(test),
                ]
                for done, train, test in results[run.key]["curve"]
            ]
            for run in runs
            if run.method == method
            and run.protocol == "person-independent"
            and run.key in results
            and not results[run.key]["failed"]
        ]
        if found:
            yield method, np.mean(found, axis=0)


def _draw_curves(path: Path, curves: Sequence[tuple[str, np.ndarray]]) -> None:
    figure = new_figure(6.4, 4.4)
    axes = figure.subplots()
    for method, points in curves:
        look: dict[str, Any] = {"color": _COLOURS[method], "marker": ".", "linewidth": 1.2}
        axes.plot(points[:, 0], points[:, 1], linestyle="--", label=f"{_label(method)}, training",
                  **look)  # fmt: skip
        axes.plot(points[:, 0], points[:, 2], label=f"{_label(method)}, test persons", **look)
    axes.set(
        xlabel="passes over the data of the sites",
        ylabel=_DEGREES,
        title="person-independent, mean over folds and seeds",
    )
    _finish(axes)
    save_png(figure, path)


def _draw_noise(path: Path, errors: dict[tuple[str, str], dict[int, float]]) -> None:
    figure = new_figure(6.4, 4.4)
    axes = figure.subplots()
    for method in FEDERATED:
        found = {
            float(group.removesuffix("percent")): study_results.estimate(list(own.values()))
            for (name, group), own in errors.items()
            if name == method
        }
        if found:
            halves = [0.0 if math.isnan(each.half) else each.half for each in found.values()]
            axes.errorbar(list(found), _array([each.mean for each in found.values()]), yerr=halves,
                          capsize=3, marker="o", color=_COLOURS[method],
                          label=_label(method))  # fmt: skip
    axes.set(xlabel="sites with noisy training images (%)", ylabel=_DEGREES, ylim=(0, None))
    _finish(axes)
    save_png(figure, path)


def _finish(axes: Axes) -> None:
    draw_grid(axes)
    axes.legend(fontsize=LEGEND_PT)


def _array(values: Any) -> np.ndarray[Any, np.dtype[np.float64]]:
    """Return an array in which errors that are infinite are left out."""
    found = np.array(values, dtype=np.float64)
    found[~np.isfinite(found)] = np.nan
    return found


def _label(method: str) -> str:
    return _LABELS.get(method, method)
