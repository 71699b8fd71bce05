"""The outcome of a study: a table in the paper's form, and everything needed to repeat it."""

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from aggregators.methods import recipe_path
from site_agent.evaluation.detection import DetectionScores
from site_agent.evaluation.landmark_scores import LandmarkScores
from site_agent.evaluation.plots import plot_cumulative_errors, plot_precision_recall
from site_agent.pictures import plot_style
from site_agent.plain_json import write_json
from site_agent.studies.model_study import StudyRun
from site_agent.studies.parts import StudyData
from site_agent.studies.protocol import Row, StudySettings
from site_agent.studies.steps import StudyFolder
from site_agent.studies.table import StudyTable, TableLine, read_scores
from site_agent.tables import Table, columns_of, write_tables
from site_agent.wording import count_words

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


SCHEMA = "poolctl-model-study/1"
_WORDS = {"mean_error": "Mean error rate", "recall": "Recall", "precision": "Precision"}
_FEW_FACES = 100
_COMBINED = ("merged", "cascade", "refined")


def describe_study(
    folder: StudyFolder, data: StudyData, settings: StudySettings, versions: Mapping[str, str],
    repeat: Sequence[str],
) -> None:  # fmt: skip
    """Write ``study.json``: all that is needed to repeat a study.

    `repeat`: the words of the command that repeats it from the parts that lie in the folder.
    """
    content = {
        "schema": SCHEMA,
        "kind": settings.kind,
        "name": data.name,
        "seed": settings.seed,
        "settings": {
            "training": asdict(settings.training),
            "combination": asdict(settings.combination),
            "refinement": asdict(settings.refinement) if settings.kind == "landmarks" else None,
            "evaluation": asdict(settings.evaluation),
        },
        "parts": [part.to_dict(folder.path) for part in data.parts],
        "test": data.test.to_dict(folder.path),
        "remarks": list(data.remarks),
        "versions": dict(versions),
        "repeat": list(repeat),
    }
    write_json(folder.path / "study.json", content)


def make_table(run: StudyRun) -> StudyTable:
    """Gather the results of every row."""
    lines = tuple(_line(run, row) for row in run.protocol.rows)
    table = StudyTable(run.settings.kind, run.data.name, lines, ())
    remarks = (_verdict(table), *_findings(table), *run.data.remarks, *_warnings(lines))
    return StudyTable(table.kind, table.name, lines, remarks)


def write_outcome(run: StudyRun, table: StudyTable, repeat: Sequence[str]) -> list[Path]:
    """Write ``table.md``, ``table.csv``, ``table.json`` and the pictures; return their paths."""
    folder = run.folder.path
    kind = "landmark models" if table.kind == "landmarks" else "detectors"
    short, more, parts = _short_table(table), _more_table(table), _parts_table(run)
    header, *rows = _csv_rows(table)
    whole = Table("table", columns_of(map(str, header)))
    files = write_tables(
        folder,
        f"Study of {kind}: {table.name}, {count_words(len(run.data.parts), 'part')}",
        [short, more, parts, (whole, rows)],
        table.remarks,
        _notes(run, table),
        repeat=repeat,
        only_csv=[whole],
        only_text=[short[0], more[0], parts[0]],
    )
    write_json(folder / "table.json", table_data(run, table))
    return [*files, folder / "table.json", *draw_pictures(folder, table)]


def table_data(run: StudyRun, table: StudyTable) -> dict[str, Any]:
    """Return the table as plain data for JSON."""
    best, everything = table.best_alone(), table.find("all")
    items = []
    for line in table.lines:
        recipe = f"{line.model}{recipe_path(Path('x')).name.removeprefix('x')}"
        item: dict[str, Any] = {
            **asdict(line.row),
            "model": line.model or None,
            "digest": line.digest or None,
            "recipe": recipe if (run.folder.path / recipe).is_file() else None,
            "size_bytes": line.size_bytes,
            "took_s": line.took_s,
            "against_best_alone_percent": _finite(table.against(line, best)),
            "against_all_percent": _finite(table.against(line, everything)),
            "reason": line.reason,
            "warnings": list(line.warnings),
        }
        if line.scores is not None:
            item["metrics"] = {key: _finite(v) for key, v in line.scores.metrics.items()}
            item["intervals"] = {
                key: [_finite(low), _finite(high)]
                for key, (low, high) in line.scores.intervals.items()
            }
        items.append(item)
    return {
        "schema": SCHEMA,
        "kind": table.kind,
        "name": table.name,
        "test_digest": run.data.test.digest,
        "rows": items,
        "remarks": list(table.remarks),
    }


def _line(run: StudyRun, row: Row) -> TableLine:
    made, scored = run.outcomes[row.key], run.outcomes[row.score_key]
    if made.record is None:
        return TableLine(row, None, reason=made.reason)
    result = made.record.result
    scores = None
    if scored.record is not None:
        scores = read_scores(run.folder.path / scored.record.result.name)
    return TableLine(
        row,
        scores,
        result.name,
        result.sha256,
        result.size,
        made.record.took_s,
        scored.reason,
        made.record.warnings,
    )


def _verdict(table: StudyTable) -> str:
    """Say how the best combined model compares with the best model of one part."""
    metric, best = table.headline[0], table.best_alone()
    combined = [line for group in _COMBINED if (line := table.find(group)) is not None]
    if best is None or not combined:
        return "No combined model can be compared with one of a single part: see the reasons below."
    choose = min if table.kind == "landmarks" else max
    line = choose(combined, key=lambda candidate: candidate.value(metric))
    change = table.against(line, best)
    unit = metric.replace("_", " ")
    if line.value(metric) == best.value(metric):
        compared = "as large as"
    elif math.isnan(change):
        compared = "beside"
    else:
        compared = f"{abs(change):.1f} % {'larger' if change > 0 else 'smaller'} than"
    return (
        f"The {unit} of {line.row.name} is {_cell(line, metric)}, {compared} that of "
        f"{best.row.name}, the best model of one part ({_cell(best, metric)})."
    )


def _findings(table: StudyTable) -> Iterator[str]:
    best, everything = table.best_alone(), table.find("all")
    metric = table.headline[0].replace("_", " ")
    lines = [table.find("merged"), table.find("cascade"), table.find("refined")]
    lines.append(table.find("refined", thinned=True))
    for line in lines:
        if line is None or best is None:
            continue
        findings = [f"{table.against(line, best):+.1f} % against the best alone ({best.row.name})"]
        if everything is not None:
            findings.append(
                f"{table.against(line, everything):+.1f} % against {everything.row.name}"
            )
        yield f"{line.row.name}: {metric} {', '.join(findings)}"
    in_order = table.find("merged")
    others = [line for line in table.lines if line.row.group == "order" and line.scores]
    if in_order is not None and others:
        same = all(line.value(name) == in_order.value(name)
                   for line in others for name in table.headline)  # fmt: skip
        files = "; their files are equal" * all(line.digest == in_order.digest for line in others)
        verdict = f"the same scores{files}" if same else "other scores: see the table"
        yield f"merged in {count_words(len(others), 'other order')}: {verdict}"
    scored = next((line.scores for line in table.lines if line.scores), None)
    if scored is not None and scored.faces < _FEW_FACES:
        yield (
            f"only {scored.faces} faces in {scored.images} pictures were tested: differences "
            "within the intervals say little"
        )


def _warnings(lines: Sequence[TableLine]) -> Iterator[str]:
    by_text: dict[str, list[str]] = {}
    for line in lines:
        if line.reason:
            yield f"{line.row.name} has no scores: {line.reason.splitlines()[0]}"
        for warning in line.warnings:
            by_text.setdefault(warning, []).append(line.row.name)
    for warning, names in by_text.items():
        more = f" and {len(names) - 1} more" if len(names) > 1 else ""
        yield f"{names[0]}{more}: {warning}"


def _short_table(table: StudyTable) -> tuple[Table, list[list[str]]]:
    """Return the table in the paper's form."""
    names = table.headline
    shown = Table("scores", columns_of(["Dataset", *(_WORDS[name] for name in names)]))
    rows = [
        [f"{table.name}-{line.row.name}", *(_cell(line, name) for name in names)]
        for line in table.lines
    ]
    return shown, rows


def _more_table(table: StudyTable) -> tuple[Table, list[list[str]]]:
    best, everything = table.best_alone(), table.find("all")
    header = ["model", *table.metrics, "against best alone", "against Pall", "MB", "made in s"]
    rows = []
    for line in table.lines:
        cells = [_cell(line, name, interval=True) for name in table.metrics]
        compared = [table.against(line, other) for other in (best, everything)]
        cells += ["" if math.isnan(value) else f"{value:+.1f} %" for value in compared]
        size = f"{line.size_bytes / 1e6:.2f}" if line.model else ""
        rows.append([line.row.name, *cells, size, f"{line.took_s:.1f}" if line.model else ""])
    return Table("more_of_each", columns_of(header)), rows


def _parts_table(run: StudyRun) -> tuple[Table, list[list[Any]]]:
    rows = [
        [part.name, part.images, part.faces, part.digest[:16], part.source]
        for part in (*run.data.parts, run.data.test)
    ]
    return Table("parts", columns_of(("part", "pictures", "faces", "digest", "from"))), rows


def _notes(run: StudyRun, table: StudyTable) -> str:
    """Return the notes below the table."""
    method = "MWMA" if table.kind == "detectors" else "WBA (wba-final)"
    notes = (
        "P: trained on these parts as if they lay in one place. COM: merged from the models of "
        f"these parts by {method}. "
    )
    if table.kind == "landmarks":
        normalisers = (line.scores.normaliser for line in table.lines
                       if isinstance(line.scores, LandmarkScores))  # fmt: skip
        notes += (
            "CASCADE: merged by wba-cascade, an ordinary dlib file. REFINED: that with leaves "
            "fitted again by all parts, in rounds. Errors are divided by: "
            f"{next(normalisers, 'unknown')}. "
        )
    versions = ", ".join(f"{name} {version}" for name, version in run.versions.items())
    return (
        f"{notes}Seed {run.settings.seed}; {versions}. All settings and whole digests: study.json. "
        "The recipe beside a merged model makes the same bytes again (poolctl merge --replay)."
    )


def _cell(line: TableLine, metric: str, *, interval: bool = False) -> str:
    value = line.value(metric)
    if line.scores is None or math.isnan(value):
        return "-"
    digits = 4 if metric == "mean_error" or interval else 3
    ends = line.scores.intervals.get(metric) if interval else None
    interval_text = "" if ends is None else f" ({ends[0]:.{digits}f}-{ends[1]:.{digits}f})"
    return f"{value:.{digits}f}{interval_text}"


def _csv_rows(table: StudyTable) -> Iterator[list[object]]:
    best, everything = table.best_alone(), table.find("all")
    yield [
        "dataset", "group", "parts",
        *(f"{name}{end}" for name in table.metrics for end in ("", "_low", "_high")),
        "against_best_alone_percent", "against_all_percent",
        "model", "sha256", "size_bytes", "took_s", "reason",
    ]  # fmt: skip
    for line in table.lines:
        cells: list[object] = []
        for name in table.metrics:
            ends = line.scores.intervals.get(name, (math.nan, math.nan)) if line.scores else ()
            cells += [line.value(name), *(ends or (math.nan,) * 2)]
        compared = [table.against(line, other) for other in (best, everything)]
        yield [
            f"{table.name}-{line.row.name}", line.row.group, line.row.parts, *cells, *compared,
            line.model, line.digest, line.size_bytes, line.took_s, line.reason,
        ]  # fmt: skip


def _finite(value: float) -> float | None:
    return value if math.isfinite(value) else None
