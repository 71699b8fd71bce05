"""Tables of a gaze study, as CSV and Markdown, and its findings in words."""

import math
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from site_agent import tables as written
from site_agent.pictures import plot_style
from site_agent.studies.gaze import results as study_results
from site_agent.studies.gaze.protocol import Run
from site_agent.studies.gaze.results import Estimate, MethodScores, Results
from site_agent.studies.gaze.settings import FEDERATED, METHODS
from site_agent.tables import Column, Table, columns_of

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_COLOURS = {
    "individual": plot_style.BLACK,
    "data-centre": plot_style.BLUE,
    "fedavg": plot_style.VERMILION,
    "adaptive": plot_style.GREEN,
}
_LABELS = {"fedavg": "FedAvg", "data-centre": "data centre"}
_DEGREES_OF_FIGURES = "mean angle error (degrees)"


def draw_pictures(folder: Path, runs: Sequence[Run], results: Results) -> list[Path]:
    """Draw all pictures for which there are results, and return their files."""
    files = []
    if matrix := study_results.matrix(runs, results):
        files.append(folder / "matrix.png")
        _draw_matrix(files[-1], matrix)
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
    figure = plot_style.new_figure(2.2 + 0.42 * len(columns), 1.6 + 0.36 * len(rows))
    axes = figure.subplots()
    shown = axes.imshow(values, cmap="viridis_r", aspect="auto")
    middle = (np.nanmin(values) + np.nanmax(values)) / 2
    for row, line in enumerate(values):
        for column, value in enumerate(line):
            colour = "white" if value > middle else "black"
            axes.text(column, row, f"{value:.1f}", ha="center", va="center",
                      fontsize=plot_style.SMALL_PT, color=colour)  # fmt: skip
    axes.set_xticks(range(len(columns)), columns, fontsize=plot_style.LEGEND_PT, rotation=90)
    axes.set_yticks(range(len(rows)), rows, fontsize=plot_style.LEGEND_PT)
    axes.set(xlabel="tested on (diagonal: own held-out sessions)", ylabel="trained on")
    figure.colorbar(shown, label=_DEGREES_OF_FIGURES)
    plot_style.save_png(figure, path)


def _draw_persons(path: Path, scores: Sequence[MethodScores]) -> None:
    figure = plot_style.new_figure(11, 4.4)
    left, right = figure.subplots(1, 2, width_ratios=(3, 1))
    specific = [score for score in scores if score.protocol == "person-specific"]
    for place, score in enumerate(specific):
        names, values = list(score.persons), _array(list(score.persons.values()))
        where = np.arange(len(names)) + (place - (len(specific) - 1) / 2) * 0.2
        left.bar(where, values, 0.18, color=_COLOURS[score.method], label=_label(score.method))
        left.set_xticks(range(len(names)), names, fontsize=plot_style.LEGEND_PT, rotation=90)
    constant = np.mean([score.constant_error for score in specific])
    left.axhline(
        constant, color=plot_style.REFERENCE, linestyle=":", linewidth=1, label="constant mean"
    )
    left.set(
        ylabel=_DEGREES_OF_FIGURES, title="person-specific", ylim=(0, 1.2 * left.get_ylim()[1])
    )
    left.legend(fontsize=plot_style.LEGEND_PT, ncols=5)
    independent = [score for score in scores if score.protocol == "person-independent"]
    for place, score in enumerate(independent):
        half = 0.0 if math.isnan(score.error.half) else score.error.half
        right.bar(
            place, _array([score.error.mean]), yerr=half, capsize=4, color=_COLOURS[score.method]
        )
    if independent:
        constant = np.mean([score.constant_error for score in independent])
        right.axhline(constant, color=plot_style.REFERENCE, linestyle=":", linewidth=1)
    labels = [_label(score.method) for score in independent]
    right.set_xticks(range(len(labels)), labels, fontsize=plot_style.LEGEND_PT, rotation=20)
    right.set(title="person-independent", ylim=(0, None))
    for axes in (left, right):
        plot_style.draw_grid(axes, "y")
    plot_style.save_png(figure, path)


def _curves(runs: Sequence[Run], results: Results) -> Iterator[tuple[str, np.ndarray]]:
    """Yield the mean learning curve of each federated method: passes, training, test."""
    for method in FEDERATED:
        curves = [
            [
                [
                    run.training.epochs * round_,
                    study_results.number(train),
                    study_results.number(test),
                ]
                for round_, train, test in results[run.key]["curve"]
            ]
            for run in runs
            if run.method == method
            and run.protocol == "person-independent"
            and run.key in results
            and not results[run.key]["failed"]
        ]
        if curves:
            yield method, np.mean(curves, axis=0)


def _draw_curves(path: Path, curves: Sequence[tuple[str, np.ndarray]]) -> None:
    figure = plot_style.new_figure(6.4, 4.4)
    axes = figure.subplots()
    for method, points in curves:
        look: dict[str, Any] = {"color": _COLOURS[method], "marker": ".", "linewidth": 1.2}
        axes.plot(points[:, 0], points[:, 1], linestyle="--", label=f"{_label(method)}, training",
                  **look)  # fmt: skip
        axes.plot(points[:, 0], points[:, 2], label=f"{_label(method)}, test persons", **look)
    axes.set(
        xlabel="passes over the data of the sites",
        ylabel=_DEGREES_OF_FIGURES,
        title="person-independent, mean over folds and seeds",
    )
    _finish(axes)
    plot_style.save_png(figure, path)


def _draw_noise(path: Path, errors: dict[tuple[str, str], dict[int, float]]) -> None:
    figure = plot_style.new_figure(6.4, 4.4)
    axes = figure.subplots()
    for method in FEDERATED:
        estimates = {
            float(group.removesuffix("percent")): study_results.estimate(list(by_person.values()))
            for (name, group), by_person in errors.items()
            if name == method
        }
        if estimates:
            halves = [
                0.0 if math.isnan(estimate.half) else estimate.half
                for estimate in estimates.values()
            ]
            means = _array([estimate.mean for estimate in estimates.values()])
            axes.errorbar(list(estimates), means, yerr=halves, capsize=3, marker="o",
                          color=_COLOURS[method], label=_label(method))  # fmt: skip
    axes.set(
        xlabel="sites with noisy training images (%)", ylabel=_DEGREES_OF_FIGURES, ylim=(0, None)
    )
    _finish(axes)
    plot_style.save_png(figure, path)


def _finish(axes: "Axes") -> None:
    plot_style.draw_grid(axes)
    axes.legend(fontsize=plot_style.LEGEND_PT)


def _array(values: Any) -> np.ndarray[Any, np.dtype[np.float64]]:
    """Return an array in which errors that are infinite are left out."""
    array = np.array(values, dtype=np.float64)
    array[~np.isfinite(array)] = np.nan
    return array


def _label(method: str) -> str:
    return _LABELS.get(method, method)


_DEGREES, _PERCENT = ".2f", ".1f"
SCORES = Table(
    "methods",
    (
        *columns_of("protocol method passes"),
        *columns_of(
            "error_deg interval_deg worst_person_deg best_person_deg range_deg sd_over_persons_deg "
            "constant_mean_deg",
            _DEGREES,
        ),
        *columns_of("better_percent against_data_centre_percent", _PERCENT),
    ),
)
PERSONS = Table(
    "persons", columns_of("protocol method seed person error_deg constant_mean_deg", _DEGREES)
)
MATRIX = Table(
    "matrix",
    (
        Column("trained on"),
        Column("tested on"),
        Column("error_deg", "number", "deg", format=_DEGREES),
    ),
)
NOISE = Table(
    "noise", columns_of("method noisy_sites error_deg interval_deg times_clean", _DEGREES)
)
HOSTILE = Table(
    "hostile",
    (
        *columns_of(("rule", "attack", "error_deg", "interval_deg", "times_own_clean"), _DEGREES),
        Column("price_percent", format=_PERCENT),
    ),
)
CANDIDATES = Table(
    "candidates",
    (
        *columns_of(("method", "learning_rate", "batch_size", "epochs", "eta", "tau", "beta")),
        Column("error_deg", format=_DEGREES),
        Column("best"),
    ),
)
_TITLE = "Study of gaze networks"
_NOTES = (
    "Errors are mean angles in degrees, averaged over persons and then over seeds; intervals are "
    "half widths of 95 % intervals over seeds. The constant mean always predicts the mean gaze of "
    "the same training samples. Worst and best person, range and standard deviation are of the "
    "persons' means over seeds. The price is the error without attackers against FedAvg's. "
    "Noise at sites is in standard deviations of each picture, unless noise_unit is its range. tau "
    "is relative to the root mean square of the first mean update, so that at the paper's rate "
    "(study gaze-paper) the adaptive methods are ahead of FedAvg on drawn eyes, as in the paper."
)
Rows = list[list[object]]
_CLEAN = "none"
_STANDS = 1.2
"""A rule stands an attack if its error is at most this many times its own without attackers."""


def write_report(
    folder: Path, runs: Sequence[Run], results: Results, repeat: Sequence[str]
) -> tuple[list[Path], list[str]]:
    """Write all tables and pictures; return their files, and the findings."""
    files, findings = write_tables(folder, runs, results, repeat)
    return files + draw_pictures(folder, runs, results), findings


def write_tables(
    folder: Path, runs: Sequence[Run], results: Results, repeat: Sequence[str]
) -> tuple[list[Path], list[str]]:
    """Write all tables; return their files, and the findings."""
    scores = study_results.method_scores(runs, results)
    noise = _noise_rows(runs, results)
    tables: list[tuple[Table, Rows]] = [
        (SCORES, _methods_rows(scores)),
        (PERSONS, _persons_rows(scores)),
        (MATRIX, [[*pair, error] for pair, error in study_results.matrix(runs, results).items()]),
        (NOISE, noise),
        (HOSTILE, _hostile_rows(runs, results)),
    ]
    findings = list(_findings(scores, noise, runs, results))
    long = [PERSONS, MATRIX]
    return written.write_tables(
        folder, _TITLE, tables, findings, _NOTES, repeat=repeat, only_csv=long
    ), findings


def write_tuning(
    folder: Path, runs: Sequence[Run], results: Results, repeat: Sequence[str]
) -> tuple[list[Path], list[str]]:
    """Write the error of each candidate, and name the best of each method."""
    errors: dict[tuple[str, str], list[float]] = {}
    facts = {}
    for run in runs:
        if run.key in results:
            key = (run.method, run.group.partition("-")[0])
            facts[key] = run.training
            errors.setdefault(key, []).extend(
                map(study_results.number, results[run.key]["errors"].values())
            )
    means = {key: math.fsum(values) / len(values) for key, values in errors.items()}
    best = {
        method: min((key for key in means if key[0] == method), key=means.__getitem__)
        for method in METHODS
        if any(key[0] == method for key in means)
    }
    # The settings of training are the columns between the method and its error.
    names = CANDIDATES.header[1:-2]
    rows: Rows = [
        [
            key[0],
            *(getattr(facts[key], name) for name in names),
            error,
            "best" if key in best.values() else "",
        ]
        for key, error in means.items()
    ]
    findings = [f"{method}: best {facts[key]}" for method, key in best.items()]
    tables = [(CANDIDATES, rows)]
    return written.write_tables(folder, _TITLE, tables, findings, _NOTES, repeat=repeat), findings


def _methods_rows(scores: Sequence[MethodScores]) -> Rows:
    rows: Rows = []
    for score in scores:
        centre = _find(scores, score.protocol, "data-centre")
        gap = study_results.difference_percent(score, centre).mean if centre else math.nan
        error = (score.error.mean, score.error.half)
        better = (score.better_percent, gap)
        rows.append(
            [
                *(score.protocol, score.method, score.passes),
                *(*error, *score.spread, score.constant_error, *better),
            ]
        )
    return rows


def _persons_rows(scores: Sequence[MethodScores]) -> Rows:
    return [
        [score.protocol, score.method, seed, name, error, score.constant[seed][name]]
        for score in scores
        for seed, errors in score.errors.items()
        for name, error in errors.items()
    ]


def _noise_rows(runs: Sequence[Run], results: Results) -> Rows:
    rows: Rows = []
    errors = study_results.robust_errors(runs, results, "noise")
    for (method, group), by_person in errors.items():
        clean = errors.get((method, "0percent"), {})
        times = study_results.ratio(by_person, clean).mean if clean else math.nan
        estimate = study_results.estimate(list(by_person.values()))
        rows.append([method, group.replace("percent", " %"), estimate.mean, estimate.half, times])
    return rows


def _hostile_rows(runs: Sequence[Run], results: Results) -> Rows:
    rows: Rows = []
    errors = study_results.robust_errors(runs, results, "hostile")
    for (rule, attack), by_seed in errors.items():
        clean, mean = errors.get((rule, _CLEAN), {}), errors.get(("fedavg", _CLEAN), {})
        times = study_results.ratio(by_seed, clean).mean if clean else math.nan
        price = (
            100 * (study_results.ratio(by_seed, mean).mean - 1)
            if mean and attack == _CLEAN
            else math.nan
        )
        estimate = study_results.estimate(list(by_seed.values()))
        rows.append([rule, attack, estimate.mean, estimate.half, times, price])
    return sorted(rows, key=lambda row: str(row[0]))


def _findings(
    scores: Sequence[MethodScores], noise: Rows, runs: Sequence[Run], results: Results
) -> Iterator[str]:
    if scores:
        worst = min(scores, key=lambda score: score.better_percent)
        yield (
            f"every method is at least {worst.better_percent:.0f} % better than the constant mean "
            f"of its training samples ({worst.method}, {worst.protocol})"
        )
    for run in runs:
        if run.key in results and results[run.key]["failed"]:
            yield f"{run.key} ended early: {results[run.key]['failed']}"
    for protocol in ("person-specific", "person-independent"):
        adaptive, mean = (_find(scores, protocol, name) for name in ("adaptive", "fedavg"))
        if adaptive and mean:
            against = study_results.difference_percent(adaptive, mean)
            yield f"{protocol}: adaptive against FedAvg {_percent(against)}"
    # Shares of noisy sites ascend: the last row of a method is that of its largest share.
    most = {row[0]: row[1:] for row in noise}
    for method, (share, error, _, times) in most.items():
        result = f"{error:.2f} degrees, {times:.2f} times its error without"
        yield f"{method} with noise at {share} of the sites: {result}"
    errors = study_results.robust_errors(runs, results, "hostile")
    for (rule, attack), by_seed in sorted(errors.items()):
        clean = errors.get((rule, _CLEAN))
        if attack != _CLEAN and clean:
            times = study_results.ratio(by_seed, clean).mean
            verdict = "stands" if times <= _STANDS else "does not stand"
            yield f"{rule} {verdict} {attack}: {times:.2f} times its error without attackers"


def _find(scores: Sequence[MethodScores], protocol: str, method: str) -> MethodScores | None:
    return next((s for s in scores if (s.protocol, s.method) == (protocol, method)), None)


def _percent(value: Estimate) -> str:
    interval = f" ± {value.half:.1f}" if math.isfinite(value.half) else ""
    return f"{value.mean:+.1f} %{interval}"
