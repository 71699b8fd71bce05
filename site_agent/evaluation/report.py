"""Scores of several models as files: JSON, CSV, a Markdown table, plots."""

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

from aggregators.whole_file import write_whole
from site_agent.errors import EvaluationError, writing_to
from site_agent.evaluation import plots
from site_agent.evaluation.detection import DetectionScores
from site_agent.evaluation.gaze import GazeScores
from site_agent.evaluation.landmark_scores import LandmarkScores
from site_agent.plain_json import plain, write_json
from site_agent.tables import Table, columns_of

S = TypeVar("S", DetectionScores, LandmarkScores, GazeScores)
SCHEMA = "poolctl-evaluation-report/1"
CURVES = Table("precision_recall", columns_of(("model", "score", "precision", "recall")))
LANDMARKS = Table("landmark_error", columns_of(("model", "landmark", "mean_error")))
_PERSON_COLUMNS = ("model", "person", "samples", "mean_error_deg", "constant_error_deg")


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

    ``scores.json``, ``scores.csv`` (a row a model), ``scores.md``; for detectors
    ``precision_recall.png`` and ``precision_recall.csv``; for landmark models
    ``cumulative_error.png`` and ``landmark_error.csv``; for gaze networks ``persons.png`` and
    ``persons.csv``.
    """
    detectors = _of_kind(models, DetectionScores)
    landmarks = _of_kind(models, LandmarkScores)
    networks = _of_kind(models, GazeScores)
    legends = short_names([model.name for model in models])
    written = [folder / "scores.json", folder / "scores.csv", folder / "scores.md"]
    title = f"{dataset_name} ({{}} faces in {{}} images)"
    with writing_to(folder, EvaluationError):
        folder.mkdir(parents=True, exist_ok=True)
        data = report_data(models, dataset_name, dataset_digest, per_image=per_image)
        write_json(written[0], data)
        _scores_table(models).write_csv(written[1], _score_rows(models))
        write_whole(written[2], markdown(models, dataset_name, dataset_digest))
        if detectors:
            first = detectors[0][1]
            plot, table = folder / "precision_recall.png", folder / "precision_recall.csv"
            curves = [(legends[name], scores) for name, scores in detectors]
            plots.plot_precision_recall(curves, plot, title=title.format(first.faces, first.images))
            CURVES.write_csv(table, _curve_rows(detectors))
            written += [plot, table]
        if landmarks:
            counts = (landmarks[0][1].faces, landmarks[0][1].images)
            plot, table = folder / "cumulative_error.png", folder / "landmark_error.csv"
            shown = [(legends[name], scores) for name, scores in landmarks]
            plots.plot_cumulative_errors(shown, plot, title=title.format(*counts))
            LANDMARKS.write_csv(table, _landmark_rows(landmarks))
            written += [plot, table]
        if networks:
            named = [(legends[name], scores) for name, scores in networks]
            written += _write_gaze(folder, named, dataset_name)
    return written


def _of_kind(models: Sequence[ScoredModel], kind: type[S]) -> list[tuple[str, S]]:
    return [(model.name, model.scores) for model in models if isinstance(model.scores, kind)]


def _write_gaze(
    folder: Path, models: Sequence[tuple[str, GazeScores]], dataset_name: str
) -> list[Path]:
    table, bars = folder / "persons.csv", folder / "persons.png"
    columns = columns_of([models[0][1].named(name) for name in _PERSON_COLUMNS])
    Table("persons", columns).write_csv(
        table,
        (
            [name, person.person, person.samples, person.mean_error_deg, person.constant_error_deg]
            for name, scores in models
            for person in scores.persons
        ),
    )
    first = models[0][1]
    title = f"{dataset_name} ({first.images} samples of {len(first.persons)} persons)"
    plots.plot_persons(models, bars, title=title)
    return [table, bars]


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


def markdown(models: Sequence[ScoredModel], dataset_name: str, dataset_digest: str) -> str:
    """Return tables for a paper or a model's card: one for each kind of model."""
    lines = [f"Scores on {dataset_name} (data set {dataset_digest[:12]}), with 95 % intervals.", ""]
    for kind in (DetectionScores, LandmarkScores, GazeScores):
        some = [model for model in models if isinstance(model.scores, kind)]
        if not some:
            continue
        names = _metric_names(some)
        table = Table("scores", columns_of(["model", *names, "faces", "images"]))
        rows = [
            [
                model.name,
                *(_cell(model.scores, name) for name in names),
                model.scores.faces,
                model.scores.images,
            ]
            for model in some
        ]
        lines += [*table.markdown(rows), ""]
        if kind is LandmarkScores:
            kinds = {m.scores.normaliser for m in some if isinstance(m.scores, LandmarkScores)}
            lines += [f"Errors are divided by: {', '.join(sorted(kinds))}.", ""]
    return "\n".join(lines)


def _cell(scores: DetectionScores | LandmarkScores | GazeScores, name: str) -> str:
    value = scores.metrics.get(name)
    if value is None:
        return ""
    interval = scores.intervals.get(name)
    if interval is None:
        return f"{value:.4f}"
    return f"{value:.4f} ({interval[0]:.4f}–{interval[1]:.4f})"


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


def _curve_rows(detectors: Sequence[tuple[str, DetectionScores]]) -> Iterator[list[object]]:
    for name, scores in detectors:
        for point in zip(*scores.precision_recall(), strict=True):
            yield [name, *map(float, point)]


def _landmark_rows(models: Sequence[tuple[str, LandmarkScores]]) -> Iterator[list[object]]:
    for name, scores in models:
        for landmark, error in zip(scores.names, scores.per_landmark, strict=True):
            yield [name, landmark, float(error)]
