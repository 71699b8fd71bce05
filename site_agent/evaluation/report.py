"""Scores of several models as files: JSON, CSV, plots."""

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from site_agent.errors import EvaluationError, writing_to
from site_agent.evaluation.detection import DetectionScores
from site_agent.evaluation.gaze import GazeScores
from site_agent.evaluation.landmark_scores import FAILURE_THRESHOLDS, LandmarkScores
from site_agent.pictures import plot_style
from site_agent.plain_json import plain, write_json
from site_agent.tables import Table, columns_of

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure


Float64 = NDArray[np.float64]

_MARKS_PER_LINE = 8
_LARGEST_ERROR_SHOWN = 0.3
_BEYOND = 0.03
_UNITS = {
    "inter-ocular": " / distance of the eye centres",
    "outer-corners": " / distance of the outer eye corners",
    "box": " / square root of the box's area",
    "none": " (pixels)",
}


def plot_precision_recall(
    models: Sequence[tuple[str, DetectionScores]], path: Path, *, title: str = ""
) -> None:
    """Draw precision over recall of each detector, with its average precision.

    The large hollow mark is where the detector stands at its threshold.
    """
    figure, axes = titled_axes(title)
    for number, (name, scores) in enumerate(models):
        _, precision, recall = scores.precision_recall()
        style = plot_style.line_style(number)
        recall, precision = np.append(0.0, recall), np.append(1.0, precision)
        label = f"{name}  (AP {scores.average_precision:.3f})"
        axes.plot(
            recall, precision, label=label, markevery=_spread(recall, number), markersize=4, **style
        )
        axes.plot(
            scores.recall,
            scores.precision,
            linestyle="",
            marker=style["marker"],
            markersize=9,
            markerfacecolor="none",
            color=style["color"],
            clip_on=False,
        )
    axes.set(xlabel="recall", ylabel="precision", xlim=(0.0, 1.0), ylim=(0.0, 1.02))
    axes.legend(loc="lower left", fontsize=plot_style.LEGEND_PT)
    plot_style.save_png(figure, path)


def plot_cumulative_errors(
    models: Sequence[tuple[str, LandmarkScores]], path: Path, *, title: str = ""
) -> None:
    """Draw the share of faces with a mean error below each error, for each model.

    Vertical lines stand at the errors above which a face counts as failed.
    """
    figure, axes = titled_axes(title)
    largest = max(FAILURE_THRESHOLDS[-1], *(_shown_error(scores) for _, scores in models))
    for number, (name, scores) in enumerate(models):
        errors, part = scores.cumulative_errors()
        x, y = np.append(0.0, errors), np.append(0.0, part)
        x, y = np.append(x, max(largest, x[-1])), np.append(y, 1.0)
        label = f"{name}  (mean {scores.mean_error:.4f}, AUC {scores.auc:.3f})"
        axes.plot(
            x,
            y,
            drawstyle="steps-post",
            label=label,
            markevery=_spread(x, number),
            markersize=4,
            **plot_style.line_style(number),
        )
    for limit in FAILURE_THRESHOLDS:
        axes.axvline(limit, color=plot_style.REFERENCE, linewidth=0.8)
        axes.text(
            limit,
            1.01,
            f"{limit:.2f}",
            ha="center",
            fontsize=plot_style.LEGEND_PT,
            color="0.3",
            transform=axes.get_xaxis_transform(),
        )
    kinds = {scores.normaliser for _, scores in models}
    axes.set(
        xlabel=f"mean error of a face{_UNITS[kinds.pop()] if len(kinds) == 1 else ''}",
        ylabel="part of the faces",
        # Beyond the ends: the curve of a model without errors must not lie on the frame.
        xlim=(-_BEYOND * largest, largest),
        ylim=(-_BEYOND, 1.0 + _BEYOND),
    )
    axes.legend(loc="lower right", fontsize=plot_style.LEGEND_PT)
    plot_style.save_png(figure, path)


def titled_axes(title: str) -> "tuple[Figure, Axes]":
    """Return a figure and its axes, with a grid and a title that leaves room for a line below."""
    figure = plot_style.new_figure(8.0, 5.5)
    axes = figure.subplots()
    plot_style.draw_grid(axes)
    if title:
        axes.set_title(title, fontsize=plot_style.TITLE_PT, pad=20)
    return figure, axes


def _spread(values: Float64, number: int) -> list[int]:
    """Return the points to mark: spread evenly along the axis, at other places for each model."""
    if len(values) < 3:
        return list(range(len(values)))
    low, high = float(values[0]), float(values[-1])
    part = (np.arange(_MARKS_PER_LINE) + (number % 5) / 5.0) / _MARKS_PER_LINE
    positions = np.searchsorted(values, low + part * (high - low))
    return sorted({int(place) for place in positions if 0 < place < len(values)})


def _shown_error(scores: LandmarkScores) -> float:
    """Return the end of the axis for a model, such that nearly all of its faces are in view."""
    errors, _ = scores.cumulative_errors()
    high = float(np.percentile(errors, 98)) * 1.1
    return high if scores.normaliser == "none" else min(_LARGEST_ERROR_SHOWN, high)


S = TypeVar("S", DetectionScores, LandmarkScores, GazeScores)
SCHEMA = "poolctl-evaluation-report/1"


@dataclass(frozen=True, eq=False)
class ScoredModel:
    """A model and its scores."""

    name: str
    digest: str
    scores: DetectionScores | LandmarkScores | GazeScores


def write_report(
    folder: Path,
    models: Sequence[ScoredModel],
    *,
    dataset_name: str,
    dataset_digest: str,
    per_image: bool = False,
) -> list[Path]:
    """Write all that is known about the models on one data set.

    ``scores.json``, ``scores.csv`` (a row a model); for detectors ``precision_recall.png``; for
    landmark models ``cumulative_error.png``.
    """
    detectors = _of_kind(models, DetectionScores)
    landmarks = _of_kind(models, LandmarkScores)
    legends = short_names([model.name for model in models])
    written = [folder / "scores.json", folder / "scores.csv"]
    title = f"{dataset_name} ({{}} faces in {{}} images)"
    with writing_to(folder, EvaluationError):
        folder.mkdir(parents=True, exist_ok=True)
        data = report_data(models, dataset_name, dataset_digest, per_image=per_image)
        write_json(written[0], data)
        _scores_table(models).write_csv(written[1], _score_rows(models))
        if detectors:
            first = detectors[0][1]
            plot = folder / "precision_recall.png"
            curves = [(legends[name], scores) for name, scores in detectors]
            plot_precision_recall(curves, plot, title=title.format(first.faces, first.images))
            written.append(plot)
        if landmarks:
            counts = (landmarks[0][1].faces, landmarks[0][1].images)
            plot = folder / "cumulative_error.png"
            shown = [(legends[name], scores) for name, scores in landmarks]
            plot_cumulative_errors(shown, plot, title=title.format(*counts))
            written.append(plot)
    return written


def _of_kind(models: Sequence[ScoredModel], kind: type[S]) -> list[tuple[str, S]]:
    return [(model.name, model.scores) for model in models if isinstance(model.scores, kind)]


def short_names(names: Sequence[str]) -> dict[str, str]:
    """Return each model's name for a legend: a file's without its folder, where that is unique.

    A text that does not begin as a path does may be an address in a pool, and stays whole.
    """
    short = {
        name: Path(name).name if name.startswith((".", "~")) or Path(name).is_absolute() else name
        for name in names
    }
    counts = Counter(short.values())
    return {name: word if counts[word] == 1 else name for name, word in short.items()}


def report_data(
    models: Sequence[ScoredModel],
    dataset_name: str,
    dataset_digest: str,
    *,
    per_image: bool = False,
) -> dict[str, Any]:
    """Return plain data for JSON, without numbers that JSON does not have."""
    items = [
        {"model": model.name, "digest": model.digest, **model.scores.to_dict(per_image=per_image)}
        for model in models
    ]
    data = {
        "schema": SCHEMA,
        "dataset": dataset_name,
        "dataset_digest": dataset_digest,
        "items": items,
    }
    finite: dict[str, Any] = plain(data)
    return finite


def _scores_table(models: Sequence[ScoredModel]) -> Table:
    ends = (f"{name}{end}" for name in _metric_names(models) for end in ("", "_low", "_high"))
    return Table("scores", columns_of(["model", "digest", "kind", *ends, "faces", "images"]))


def _score_rows(models: Sequence[ScoredModel]) -> Iterator[list[object]]:
    for model in models:
        scores = model.scores
        row: list[object] = [model.name, model.digest, scores.to_dict()["kind"]]
        for name in _metric_names(models):
            row += [scores.metrics.get(name), *scores.intervals.get(name, (None, None))]
        yield [*row, scores.faces, scores.images]


def _metric_names(models: Sequence[ScoredModel]) -> list[str]:
    return list(dict.fromkeys(name for model in models for name in model.scores.metrics))
