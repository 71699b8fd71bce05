"""Table, curve and verdict of a study of cross-encoders.

The unit is a left-out person: the mean over her draws of shots. Differences are paired, person by
person, as all methods have the same shots and the same test.
"""

from __future__ import annotations

import math
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from aggregators.whole_file import write_whole
from site_agent.pictures.plot_style import (
    LEGEND_PT,
    REFERENCE,
    draw_grid,
    line_style,
    new_figure,
    save_png,
)
from site_agent.studies.cross_encoder.settings import (
    COMPARED,
    FEDERATED,
    METHODS,
    VERDICT_SHOTS,
    Run,
)
from site_agent.studies.gaze.results import Estimate, estimate
from site_agent.tables import Table, columns_of

_DEGREES = ".2f"
FEW_SHOT = Table(
    "few_shot",
    (
        *columns_of(("method", "shots", "persons")),
        *columns_of(
            ("error_deg", "interval_deg", "difference_deg", "difference_interval_deg"), _DEGREES
        ),
    ),
)
DRAWS = Table(
    "draws",
    (
        *columns_of(("method", "seed", "person", "shots", "draw")),
        *columns_of(("error_deg",), _DEGREES),
    ),
)
Results = Mapping[str, Mapping[str, Any]]
Unit = tuple[int, str]
"""Seed and person."""


@dataclass(frozen=True)
class Score:
    """The error of a method at a number of shots.

    Attributes
    ----------
    error : Estimate
        Mean over left-out persons in degrees.
    difference : Estimate
        Of the method less the federated cross-encoder, over the persons that both have; NaN for
        the latter.
    """

    method: str
    shots: int
    persons: int
    error: Estimate
    difference: Estimate


def write_report(
    folder: Path, runs: Sequence[Run], results: Results, repeat: Sequence[str]
) -> tuple[list[Path], str]:
    """Write the table and the curve; return their files, the table first, and the verdict."""
    scores = score_methods(runs, results)
    verdict = find_verdict(scores)
    rows: list[list[object]] = [
        [
            METHODS[each.method], each.shots, each.persons, each.error.mean, each.error.half,
            each.difference.mean, each.difference.half,
        ]
        for each in scores
    ]  # fmt: skip
    markdown = folder / "table.md"
    write_whole(markdown, _markdown(rows, verdict, repeat))
    files = [
        markdown,
        FEW_SHOT.write_csv(folder / FEW_SHOT.file_name, rows),
        DRAWS.write_csv(folder / DRAWS.file_name, _draw_rows(runs, results)),
    ]
    if scores:
        files.append(folder / "few_shot.png")
        _draw_curves(files[-1], scores)
    return files, verdict


def score_methods(runs: Sequence[Run], results: Results) -> list[Score]:
    """Return the scores of all methods, by method and then by number of shots."""
    errors: dict[str, dict[int, dict[Unit, float]]] = {name: {} for name in METHODS}
    for run in runs:
        for person, by_count in results.get(run.key, {"errors": {}})["errors"].items():
            for count, draws in by_count.items():
                units = errors[run.method].setdefault(int(count), {})
                units[run.seed, person] = math.fsum(draws) / len(draws)
    return [
        Score(
            method,
            count,
            len(units),
            estimate(list(units.values())),
            _difference(units, errors[FEDERATED].get(count, {}) if method != FEDERATED else {}),
        )
        for method, counts in errors.items()
        for count, units in sorted(counts.items())
    ]


def _difference(units: Mapping[Unit, float], base: Mapping[Unit, float]) -> Estimate:
    both = [error - base[unit] for unit, error in units.items() if unit in base]
    return estimate(both) if both else Estimate(math.nan, math.nan)


def find_verdict(scores: Sequence[Score]) -> str:
    """Say whether the federated cross-encoder beats what it has to beat, at 100 shots or near."""
    counts = [each.shots for each in scores if each.method == FEDERATED]
    if not counts:
        return "no verdict: no federated cross-encoder was trained"
    count = min(counts, key=lambda each: abs(each - VERDICT_SHOTS))
    found = {each.method: each for each in scores if each.shots == count}
    own = found[FEDERATED].error
    parts = [
        f"{_verb(found[name].difference)} {words} ({found[name].error.mean:.2f}, difference "
        f"{_with_half(found[name].difference)})"
        for name, words in COMPARED.items()
        if name in found
    ]
    return f"At {count} shots the federated cross-encoder, {own.mean:.2f} degrees, is " + (
        " and ".join(parts) or "alone: nothing stands beside it"
    )


def _verb(difference: Estimate) -> str:
    """Judge by the interval of the other's error less the cross-encoder's."""
    low, high = difference.mean - difference.half, difference.mean + difference.half
    if low > 0:
        return "better than"
    if high < 0:
        return "worse than"
    return "not clearly different from"


def _with_half(value: Estimate) -> str:
    return f"{value.mean:+.2f}" + (f" ± {value.half:.2f}" if math.isfinite(value.half) else "")


def _draw_rows(runs: Sequence[Run], results: Results) -> list[list[object]]:
    return [
        [run.method, run.seed, person, int(count), draw, error]
        for run in runs
        if run.key in results
        for person, by_count in results[run.key]["errors"].items()
        for count, draws in by_count.items()
        for draw, error in enumerate(draws)
    ]


def _draw_curves(path: Path, scores: Sequence[Score]) -> None:
    figure = new_figure(10.5, 4.4)
    left, right = figure.subplots(1, 2)
    for number, method in enumerate(METHODS):
        own = [each for each in scores if each.method == method]
        look = {**line_style(number), "label": METHODS[method], "markersize": 4, "capsize": 3}
        for axes, values in (
            (left, [each.error for each in own]),
            (right, [each.difference for each in own if method != FEDERATED]),
        ):
            if values:
                halves = np.nan_to_num([each.half for each in values])
                counts = [each.shots for each in own]
                axes.errorbar(counts, [each.mean for each in values], yerr=halves, **look)
    counts = sorted({each.shots for each in scores})
    right.axhline(0, color=REFERENCE, linestyle=":", linewidth=1)
    left.set(ylabel="mean angle error (degrees)", ylim=(0, None), title="left-out persons")
    right.set(ylabel="difference (degrees)", title="error less that of the federated cross-encoder")
    for axes in (left, right):
        axes.set_xscale("log")
        axes.set_xticks(counts, [str(count) for count in counts])
        axes.minorticks_off()
        axes.set_xlabel("labelled shots")
        draw_grid(axes)
    left.legend(fontsize=LEGEND_PT)
    save_png(figure, path)


def _markdown(rows: Sequence[Sequence[object]], verdict: str, repeat: Sequence[str]) -> str:
    lines = [
        verdict, "",
        "# Study of cross-encoders", "",
        *FEW_SHOT.markdown(rows), "",
        "Errors are mean angles in degrees on the test sessions of left-out persons, averaged over",
        "draws of shots and then over persons; intervals are half widths of 95 % intervals over",
        "persons. Those of one seed share an encoder. Differences are of each method less the",
        "federated cross-encoder, person by person. PCA-12 sees the patches of all sites in one",
        "place. All heads but the mean gaze know the head pose, too.", "",
        "To repeat it:", "", "```bash", shlex.join(repeat), "```",
    ]  # fmt: skip
    return "\n".join(lines) + "\n"
