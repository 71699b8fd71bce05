"""Tables, curves and findings of the study of personalised rounds."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from site_agent.evaluation import bootstrap_intervals
from site_agent.evaluation.plots import plot_scores_over_passes, titled_axes
from site_agent.pictures.plot_style import LEGEND_PT, line_style, save_png
from site_agent.studies.egocentric import EYES, PLAIN, Run
from site_agent.tables import Column, Table, columns_of, write_tables

Results = Mapping[str, Mapping[str, Any]]

PAPER_F1 = {
    "local": (30.41, 20.83), "fedavg": (17.59, 13.20), "fedprox": (27.00, 23.66),
    "fedpac": (36.91, 26.27), "fedselect": (39.28, 29.52), "cpf-random": (36.13, 25.62),
    "fedcpf": (40.48, 29.92),
}  # fmt: skip
"""F1 in per cent on EGTEA Gaze+ and Ego4D, as the FedCPF paper states them."""

_NUMBER = ".3f"
METHODS = Table(
    "methods",
    (
        *columns_of(("world", "method", "learning_rate")),
        *columns_of(("score", "recall", "precision"), _NUMBER),
        *columns_of(("against_fedavg", "fedavg_low", "fedavg_high"), "+.3f"),
        *columns_of(("against_local", "local_low", "local_high"), "+.3f"),
        *columns_of(("personal_share", "overlap"), ".2f"),
        *columns_of(("paper_egtea_f1", "paper_ego4d_f1")),
    ),
)
PERSONS = Table(
    "persons",
    (*columns_of(("world", "method", "options", "seed", "person")), Column("score", format=".4f")),
)
SWEEPS = Table(
    "sweeps", (*columns_of(("option", "value")), *columns_of(("score", "low", "high"), _NUMBER))
)

_NOTES = (
    "Scores are means over persons and seeds: of clips the F1 of coverage (larger is better), of "
    "eyes the angular error in degrees (smaller is better). Intervals are 95 %, of paired "
    "differences over persons and seeds. The learning rate of each method is the best of the same "
    "candidates on validation samples of other persons, and the best personalised method is "
    "chosen by validation. In worlds of drawn clips all methods begin with a network that other "
    "persons have trained, each with a last layer of her own. The paper's F1 are per cent."
)


def write_report(
    folder: Path, runs: Sequence[Run], results: Results, repeat: Sequence[str]
) -> tuple[list[Path], list[str]]:
    """Write all tables and pictures; return their files, and the findings, the verdict first."""
    worlds = list(dict.fromkeys(run.world for run in runs))
    scores = {run: results[run.key]["scores"] for run in runs if run.key in results}
    rows = [row for world in worlds for row in _method_rows(world, runs, results)]
    sweeps = _sweep_rows(scores)
    persons = [
        [run.world, run.method, " ".join(f"{n}={v:g}" for n, v in run.options), run.seed, *pair]
        for run, by_person in scores.items()
        for pair in by_person.items()
    ]
    findings = [line for world in worlds for line in _find(world, runs, results)]
    tables = [(METHODS, rows), (SWEEPS, sweeps), (PERSONS, persons)]
    files = write_tables(
        folder, "Study of personalised rounds", tables, findings, _NOTES, repeat=repeat,
        only_csv=[PERSONS],
    )  # fmt: skip
    for world in worlds:
        files.append(_draw_rounds(folder, world, runs, results))
    if sweeps:
        files.append(_draw_sweeps(folder, sweeps))
    return files, findings


def _plain_runs(world: str, method: str, runs: Sequence[Run], results: Results) -> list[Run]:
    return [
        run
        for run in runs
        if run.world == world and run.method == method and not run.options and run.key in results
    ]


def _values(world: str, method: str, runs: Sequence[Run], results: Results) -> dict[Any, float]:
    """Return the scores of a method, by seed and person."""
    return {
        (run.seed, person): score
        for run in _plain_runs(world, method, runs, results)
        for person, score in results[run.key]["scores"].items()
    }


def _validation(world: str, method: str, runs: Sequence[Run], results: Results) -> float:
    runs_there = _plain_runs(world, method, runs, results)
    return _mean(score for run in runs_there for score in results[run.key]["validation"].values())


def difference(mine: Mapping[Any, float], other: Mapping[Any, float]) -> tuple[float, float, float]:
    """Return the mean of paired differences with its 95 % interval; NaN without pairs."""
    gaps = np.array([mine[key] - other[key] for key in mine if key in other])
    if not len(gaps):
        return (float("nan"),) * 3
    low_high = bootstrap_intervals(
        lambda times: {"gap": float((times * gaps).sum() / times.sum())},
        len(gaps), resamples=2000, seed=0,
    ).get("gap", (float("nan"), float("nan")))  # fmt: skip
    return float(gaps.mean()), *low_high


def _method_rows(world: str, runs: Sequence[Run], results: Results) -> list[list[Any]]:
    rows = []
    for method in dict.fromkeys(run.method for run in runs if run.world == world):
        plain = _plain_runs(world, method, runs, results)
        values = _values(world, method, runs, results)
        if not plain:
            continue
        run_results = [results[run.key] for run in plain]
        details = [detail for one in run_results for detail in one["details"].values()]
        shares = [share for one in run_results for share in one["share"].values()]
        overlaps = [one["overlap"] for one in run_results if one["overlap"] is not None]
        rows.append(
            [
                world, method, f"{plain[0].rate:g}", _mean(values.values()),
                _mean(detail["recall"] for detail in details),
                _mean(detail["precision"] for detail in details),
                *difference(values, _values(world, "fedavg", runs, results)),
                *difference(values, _values(world, "local", runs, results)),
                _mean(shares) if shares else 0.0, _mean(overlaps),
                *(PAPER_F1.get(method, (None, None)) if world != EYES else (None, None)),
            ]
        )  # fmt: skip
    return rows


def _mean(values: Any) -> float:
    numbers = list(values)
    return float(np.mean(numbers)) if numbers else float("nan")


def _sweep_rows(scores: Mapping[Run, Mapping[str, float]]) -> list[list[Any]]:
    sweeps: dict[tuple[str, float], list[float]] = {}
    for run, by_person in scores.items():
        for option in run.options:
            sweeps.setdefault(option, []).extend(by_person.values())
    rows = []
    for (name, value), values in sorted(sweeps.items()):
        zero = dict.fromkeys(range(len(values)), 0.0)
        mean, low, high = difference(dict(enumerate(values)), zero)
        rows.append([name, f"{value:g}", mean, low, high])
    return rows


def _find(world: str, runs: Sequence[Run], results: Results) -> list[str]:
    """Say for a world whether a personalised method beats FedAvg and local."""
    sign = -1.0 if world == EYES else 1.0
    unit = " degrees" if world == EYES else ""
    scores = {
        method: _values(world, method, runs, results)
        for method in dict.fromkeys(run.method for run in runs if run.world == world)
    }
    means = {method: sign * _mean(values.values()) for method, values in scores.items() if values}
    personal = [method for method in means if method not in PLAIN]
    if not personal or "fedavg" not in means or "local" not in means:
        return []
    # Chosen by validation, as the test scores of the best of several are too good by chance.
    best = max(personal, key=lambda method: sign * _validation(world, method, runs, results))
    gaps = {other: difference(scores[best], scores[other]) for other in ("fedavg", "local")}
    verdicts = {other: _verdict(gap, sign) for other, gap in gaps.items()}
    name = "F1" if world != EYES else "error"
    lines = [
        f"{world}: {best} is the best personalised method ({name} {abs(means[best]):.3f}{unit}); "
        + "; ".join(
            f"{verdicts[other]} {other} ({abs(means[other]):.3f}, difference {gap[0]:+.3f} "
            f"[{gap[1]:+.3f}, {gap[2]:+.3f}])"
            for other, gap in gaps.items()
        )
    ]
    plain = _plain_runs(world, best, runs, results)
    begun = {
        (run.seed, person): score
        for run in plain
        for person, score in results[run.key]["begun"].items()
    }
    gap = difference(scores[best], begun)
    lines.append(
        f"{world}: {best} is {_verdict(gap, sign)} the network that all begin with "
        f"({_mean(begun.values()):.3f}, difference {gap[0]:+.3f} [{gap[1]:+.3f}, {gap[2]:+.3f}])"
    )
    for other in ("fedselect", "cpf-random"):
        if "fedcpf" in means and other in means:
            gap = difference(scores["fedcpf"], scores[other])
            lines.append(
                f"{world}: fedcpf is {_verdict(gap, sign)} {other} ({gap[0]:+.3f} "
                f"[{gap[1]:+.3f}, {gap[2]:+.3f}])"
            )
    return lines


def _verdict(gap: tuple[float, float, float], sign: float) -> str:
    low, high = sorted((sign * gap[1], sign * gap[2]))
    if low > 0:
        return "better than"
    return "worse than" if high < 0 else "not different from"


def _draw_rounds(folder: Path, world: str, runs: Sequence[Run], results: Results) -> Path:
    curves = []
    for method in dict.fromkeys(run.method for run in runs if run.world == world):
        plain_curves = [
            results[run.key]["curve"] for run in _plain_runs(world, method, runs, results)
        ]
        if plain_curves:
            means = np.mean([[score for _, score in curve] for curve in plain_curves], axis=0)
            worst = (np.max if world == EYES else np.min)(
                [[score for _, score in curve] for curve in plain_curves], axis=0
            )
            passes = int(plain_curves[0][0][0])
            curves.append((method, passes, means.tolist(), worst.tolist()))
    path = folder / f"rounds-{world.replace('=', '')}.png"
    measure = "error (degrees)" if world == EYES else "F1"
    plot_scores_over_passes(curves, None, path, measure=measure, thin="worst seed")
    return path


def _draw_sweeps(folder: Path, rows: Sequence[Sequence[Any]]) -> Path:
    figure, axes = titled_axes("")
    for number, name in enumerate(dict.fromkeys(row[0] for row in rows)):
        chosen = [row for row in rows if row[0] == name]
        x = [float(row[1]) for row in chosen]
        y, low, high = (np.array([row[place] for row in chosen]) for place in (2, 3, 4))
        axes.errorbar(x, y, yerr=[y - low, high - y], capsize=3, label=name, **line_style(number))
    axes.set(xlabel="value of the option of FedCPF", ylabel="F1, 95 % interval")
    axes.set_ylim(bottom=0.0)
    axes.legend(loc="best", fontsize=LEGEND_PT)
    path = folder / "sweeps.png"
    save_png(figure, path)
    return path
