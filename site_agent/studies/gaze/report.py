"""Tables of a gaze study, as CSV and Markdown, and what they say in words."""

from __future__ import annotations

import csv
import math
import shlex
from collections.abc import Iterator, Sequence
from pathlib import Path

from site_agent.studies.gaze.pictures import draw_pictures
from site_agent.studies.gaze.protocol import Run
from site_agent.studies.gaze.results import (
    Estimate,
    MethodScores,
    Results,
    difference_percent,
    estimate,
    matrix,
    method_scores,
    number,
    ratio,
    robust_errors,
)
from site_agent.studies.gaze.settings import METHODS
from site_agent.studies.outcome import table_lines

Table = list[list[object]]
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
    scores = method_scores(runs, results)
    tables: dict[str, Table] = {
        "methods": _methods_table(scores),
        "persons": _persons_table(scores),
        "matrix": [["trained on", "tested on", "error_deg"],
                   *([*pair, _round(error)] for pair, error in matrix(runs, results).items())],
        "noise": _noise_table(runs, results),
        "hostile": _hostile_table(runs, results),
    }  # fmt: skip
    tables = {name: table for name, table in tables.items() if len(table) > 1}
    findings = list(_findings(scores, runs, results))
    files = [folder / "table.md"]
    shown = [name for name in ("methods", "noise", "hostile") if name in tables]
    text = _markdown({name: tables[name] for name in shown}, findings, repeat)
    files[0].write_text(text, encoding="utf-8")
    files += [_write_csv(folder / f"{name}.csv", table) for name, table in tables.items()]
    return files, findings


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
            errors.setdefault(key, []).extend(map(number, results[run.key]["errors"].values()))
    means = {key: math.fsum(values) / len(values) for key, values in errors.items()}
    names = ("learning_rate", "batch_size", "epochs", "eta", "tau", "beta")
    table: Table = [["method", *names, "error_deg", "best"]]
    best = {
        method: min((key for key in means if key[0] == method), key=means.__getitem__)
        for method in METHODS
        if any(key[0] == method for key in means)
    }
    for key, error in means.items():
        values = [getattr(facts[key], name) for name in names]
        table.append([key[0], *values, _round(error), "best" if key in best.values() else ""])
    findings = [f"{method}: best {facts[key]}" for method, key in best.items()]
    file = folder / "table.md"
    file.write_text(_markdown({"candidates": table}, findings, repeat), encoding="utf-8")
    return [file, _write_csv(folder / "candidates.csv", table)], findings


def _methods_table(scores: Sequence[MethodScores]) -> Table:
    table: Table = [[
        "protocol", "method", "error_deg", "interval_deg", "worst_person_deg", "best_person_deg",
        "range_deg", "sd_over_persons_deg", "constant_mean_deg", "better_percent",
        "against_data_centre_percent",
    ]]  # fmt: skip
    for each in scores:
        centre = _find(scores, each.protocol, "data-centre")
        gap = difference_percent(each, centre).mean if centre else math.nan
        table.append([
            each.protocol, each.method, _round(each.error.mean), _round(each.error.half),
            *map(_round, each.spread), _round(each.constant_error),
            _round(each.better_percent, 1), _round(gap, 1),
        ])  # fmt: skip
    return table


def _persons_table(scores: Sequence[MethodScores]) -> Table:
    table: Table = [["protocol", "method", "seed", "person", "error_deg", "constant_mean_deg"]]
    for each in scores:
        for seed, errors in each.errors.items():
            table += [
                [each.protocol, each.method, seed, name, _round(error),
                 _round(each.constant[seed][name])]
                for name, error in errors.items()
            ]  # fmt: skip
    return table


def _noise_table(runs: Sequence[Run], results: Results) -> Table:
    table: Table = [["method", "noisy_sites", "error_deg", "interval_deg", "times_clean"]]
    errors = robust_errors(runs, results, "noise")
    for (method, group), own in errors.items():
        clean = errors.get((method, "0percent"), {})
        times = ratio(own, clean).mean if clean else math.nan
        table.append([method, group.replace("percent", " %"), *_pair(own), _round(times)])
    return table


def _hostile_table(runs: Sequence[Run], results: Results) -> Table:
    table: Table = [[
        "rule", "attack", "error_deg", "interval_deg", "times_own_clean", "price_percent",
    ]]  # fmt: skip
    errors = robust_errors(runs, results, "hostile")
    for (rule, attack), own in errors.items():
        clean, mean = errors.get((rule, _CLEAN), {}), errors.get(("fedavg", _CLEAN), {})
        times = ratio(own, clean).mean if clean else math.nan
        price = 100 * (ratio(own, mean).mean - 1) if mean and attack == _CLEAN else math.nan
        table.append([rule, attack, *_pair(own), _round(times), _round(price, 1)])
    table[1:] = sorted(table[1:], key=lambda line: str(line[0]))
    return table


def _findings(
    scores: Sequence[MethodScores], runs: Sequence[Run], results: Results
) -> Iterator[str]:
    if scores:
        worst = min(scores, key=lambda each: each.better_percent)
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
            against = difference_percent(adaptive, mean)
            yield f"{protocol}: adaptive against FedAvg {_percent(against)}"
    errors = robust_errors(runs, results, "hostile")
    for (rule, attack), own in sorted(errors.items()):
        clean = errors.get((rule, _CLEAN))
        if attack != _CLEAN and clean:
            times = ratio(own, clean).mean
            verdict = "stands" if times <= _STANDS else "does not stand"
            yield f"{rule} {verdict} {attack}: {times:.2f} times its error without attackers"


def _find(scores: Sequence[MethodScores], protocol: str, method: str) -> MethodScores | None:
    return next((s for s in scores if (s.protocol, s.method) == (protocol, method)), None)


def _pair(errors: dict[int, float]) -> list[object]:
    found = estimate(list(errors.values()))
    return [_round(found.mean), _round(found.half)]


def _percent(value: Estimate) -> str:
    interval = f" ± {value.half:.1f}" if math.isfinite(value.half) else ""
    return f"{value.mean:+.1f} %{interval}"


def _round(value: float, digits: int = 2) -> object:
    return "" if math.isnan(value) else round(value, digits)


def _markdown(tables: dict[str, Table], findings: Sequence[str], repeat: Sequence[str]) -> str:
    lines = ["# Study of gaze networks", ""]
    for name, (header, *rows) in tables.items():
        lines += [f"## {name.capitalize()}", ""]
        lines += table_lines([str(word) for word in header], [[str(c) for c in r] for r in rows])
        lines.append("")
    lines += [
        "Errors are mean angles in degrees, averaged over persons and then over seeds; intervals",
        "are half widths of 95 % intervals over seeds. The constant mean always predicts the mean",
        "gaze of the same training samples. Worst and best person, range and standard deviation",
        "are of the persons' means over seeds. The price is the error without attackers against",
        "FedAvg's.", "", *(f"- {finding}" for finding in findings), "",
        "To repeat it:", "", "```bash", shlex.join(repeat), "```",
    ]  # fmt: skip
    return "\n".join(lines) + "\n"


def _write_csv(path: Path, table: Table) -> Path:
    with path.open("w", encoding="utf-8", newline="") as stream:
        csv.writer(stream, lineterminator="\n").writerows(table)
    return path
