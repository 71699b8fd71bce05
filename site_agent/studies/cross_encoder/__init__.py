"""A study of cross-encoders: its settings, its runs, and its table, curve and verdict.

Each seed leaves other persons out. The rest are sites, one each, that train an encoder without
labels; a head is fitted to few labelled shots of a left-out person, and tested on other sessions
of hers. The baselines see the same shots.

The unit of the results is a left-out person: the mean over her draws of shots. Differences are
paired, person by person, as all methods have the same shots and the same test. Intervals are
Student's, as in studies of gaze networks: resampling six persons would give too narrow ones.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import numpy as np
from pydantic import Field

from site_agent.errors import InvalidInputError
from site_agent.networks.architectures import require_kind
from site_agent.pictures import plot_style
from site_agent.settings import Settings
from site_agent.studies.eyes import DrawnSettings, MethodRun
from site_agent.studies.gaze.results import Estimate, estimate
from site_agent.tables import Column, Table, columns_of, write_tables

FEDERATED = "cross-encoder"
METHODS: Mapping[str, str] = {
    FEDERATED: "federated cross-encoder",
    "centralised": "cross-encoder, centralised",
    "auto-encoder": "federated auto-encoder",
    "random": "random encoder",
    "pca": "PCA-12",
    "supervised": "supervised on the shots",
    "head-pose": "head pose only",
    "mean-gaze": "mean gaze",
}
"""Names for people; the others are compared with the federated cross-encoder."""
COMPARED: Mapping[str, str] = {"random": "a random encoder", "pca": "PCA-12"}
"""Encoders that the federated cross-encoder has to beat, as sentences call them."""
VERDICT_SHOTS = 100


class CrossEncoderStudySettings(Settings, error=InvalidInputError):
    """Everything that is chosen in a study, besides its data."""

    architecture: str = "cross-encoder-small"
    """cross-encoder-small or cross-encoder."""
    methods: tuple[str, ...] = tuple(METHODS)
    """cross-encoder, centralised, auto-encoder, random, pca, supervised, head-pose, mean-gaze."""
    seeds: int = Field(default=5, ge=1, le=10_000)
    """How often everything is repeated, with other starts and other persons left out."""
    left_out: int = Field(default=3, ge=1, le=10_000)
    """Persons that a seed leaves out."""
    shots: tuple[Annotated[int, Field(ge=1)], ...] = (5, 10, 20, 50, 100, 200)
    """Numbers of labelled samples to which heads are fitted."""
    draws: int = Field(default=5, ge=1, le=10_000)
    """How often the shots of a person are drawn."""
    test_share: float = Field(default=0.4, gt=0, le=0.9)
    """Share of a left-out person's sessions that test the heads; shots are of the others."""
    federation: str = "fedavgm"
    """How updates are combined: fedavg, or another aggregation method for networks."""
    rounds: int = Field(default=40, ge=1, le=10_000)
    """All sites take part in each."""
    epochs: int = Field(default=2, ge=1, le=10_000)
    """Passes of a site in a round. In one place there are rounds times epochs."""
    batch_size: int = Field(default=8, ge=4, le=65_536)
    """Patches in a step of a site."""
    learning_rate: float = Field(default=0.03, gt=0, le=10)
    """Of sites, for SGD with Nesterov's momentum."""
    central_batch_size: int = Field(default=32, ge=4, le=65_536)
    """Patches in a step in one place."""
    central_learning_rate: float = Field(default=0.002, gt=0, le=10)
    """In one place, for AdamW."""
    supervised_steps: int = Field(default=500, ge=1, le=10_000)
    """Of the network that learns from the shots alone; 16 of them in each."""
    site_frames: int = Field(default=0, ge=0, le=1_000_000)
    """Frames of a site that are used, spread over sessions; 0: all."""
    first_seed: int = 0
    """Of the drawn persons, too."""
    drawn: DrawnSettings = Field(
        default_factory=lambda: DrawnSettings(drawn_persons=15, frames=400, amount=2)
    )

    def __post_init__(self) -> None:
        require_kind(self.architecture, "representation", "architecture")
        if unknown := [name for name in self.methods if name not in METHODS]:
            raise InvalidInputError(
                f"methods: {', '.join(unknown)}; expected some of {', '.join(METHODS)}"
            )
        if FEDERATED not in self.methods:
            raise InvalidInputError(f"methods: expected {FEDERATED} among them")
        if not self.shots:
            raise InvalidInputError(f"shots: {self.shots}; expected numbers from 1")


QUICK = CrossEncoderStudySettings(
    seeds=3,
    left_out=2,
    rounds=12,
    supervised_steps=150,
    site_frames=120,
    drawn=DrawnSettings(drawn_persons=8, frames=200, amount=1),
)
"""A study of some ten minutes on one core."""


def plan_runs(persons: Sequence[str], settings: CrossEncoderStudySettings) -> tuple[MethodRun, ...]:
    """Return all runs of a study: all of the first seed, then of the next one.

    Raises `InvalidInputError`: fewer than 2 persons are left to train with.
    """
    if len(persons) < settings.left_out + 2:
        raise InvalidInputError(
            f"{len(persons)} persons; expected at least {settings.left_out + 2}: "
            f"{settings.left_out} are left out, and 2 or more are sites"
        )
    runs = []
    for place in range(settings.seeds):
        first = place * settings.left_out
        test = {persons[(first + offset) % len(persons)] for offset in range(settings.left_out)}
        train = tuple(name for name in persons if name not in test)
        seed = settings.first_seed + place
        runs += [MethodRun(name, seed, train, tuple(sorted(test))) for name in settings.methods]
    return tuple(runs)


_DEGREES = ".2f"
FEW_SHOT = Table(
    "few_shot",
    (
        *columns_of("method shots persons"),
        *columns_of("error_deg low_deg high_deg", _DEGREES),
        *columns_of("difference_deg difference_low_deg difference_high_deg", _DEGREES),
        Column("persons_worse"),
    ),
)
DRAWS = Table(
    "draws", (*columns_of("method seed person shots draw"), *columns_of("error_deg", _DEGREES))
)
_NOTES = (
    "Errors are mean angles in degrees on the test sessions of left-out persons, averaged over "
    "draws of shots and then over persons; low and high are the ends of 95 % intervals over "
    "persons, of whom those of one seed share an encoder. Differences are of each method less the "
    "federated cross-encoder, person by person; on persons worse, the method has the larger error. "
    "PCA-12 sees the patches of all sites in one place. All heads but the mean gaze know the head "
    "pose, too."
)
_APART = 0.03
"""Between the intervals of two methods, of the number of shots, so that none hides another."""
Results = Mapping[str, Mapping[str, Any]]
Unit = tuple[int, str]
"""Seed and person."""


@dataclass(frozen=True)
class Score:
    """The error of a method at a number of shots."""

    method: str
    shots: int
    persons: int
    error: Estimate
    """In degrees, over left-out persons."""
    difference: Estimate
    """Of the method less the federated cross-encoder, over the persons that both have; NaN for the
    latter."""
    persons_worse: int | None
    """On how many persons the error is larger than the federated cross-encoder's."""


def write_report(
    folder: Path, runs: Sequence[MethodRun], results: Results, repeat: Sequence[str]
) -> tuple[list[Path], list[str]]:
    """Write the tables and the curve; return their files, and the verdict."""
    scores = score_methods(runs, results)
    verdict = find_verdict(scores)
    rows: list[list[object]] = [
        [
            METHODS[score.method], score.shots, score.persons, *score.error.ends,
            *score.difference.ends, score.persons_worse,
        ]
        for score in scores
    ]  # fmt: skip
    tables = [(FEW_SHOT, rows), (DRAWS, _draw_rows(runs, results))]
    files = write_tables(
        folder,
        "Study of cross-encoders",
        tables,
        [verdict],
        _NOTES,
        repeat=repeat,
        only_csv=[DRAWS],
    )
    if scores:
        files.append(folder / "few_shot.png")
        _draw_curves(files[-1], scores)
    return files, [verdict]


def score_methods(runs: Sequence[MethodRun], results: Results) -> list[Score]:
    """Return the scores of all methods, by method and then by number of shots."""
    errors: dict[str, dict[int, dict[Unit, float]]] = {name: {} for name in METHODS}
    for run in runs:
        for person, by_count in results.get(run.key, {"errors": {}})["errors"].items():
            for count, draws in by_count.items():
                units = errors[run.method].setdefault(int(count), {})
                units[run.seed, person] = math.fsum(draws) / len(draws)
    return [
        _score(method, count, units, errors[FEDERATED].get(count, {}))
        for method, counts in errors.items()
        for count, units in sorted(counts.items())
    ]


def _score(
    method: str, shots: int, units: Mapping[Unit, float], base: Mapping[Unit, float]
) -> Score:
    error, nothing = estimate(list(units.values())), Estimate(math.nan, math.nan)
    differences = [error - base[unit] for unit, error in units.items() if unit in base]
    if method == FEDERATED or not differences:
        return Score(method, shots, len(units), error, nothing, None)
    worse = sum(difference > 0 for difference in differences)
    return Score(method, shots, len(units), error, estimate(differences), worse)


def find_verdict(scores: Sequence[Score]) -> str:
    """Say whether the federated cross-encoder beats the `COMPARED`, at 100 shots or near."""
    counts = [score.shots for score in scores if score.method == FEDERATED]
    if not counts:
        return "no verdict: no federated cross-encoder was trained"
    count = min(counts, key=lambda count: abs(count - VERDICT_SHOTS))
    by_method = {score.method: score for score in scores if score.shots == count}
    federated = by_method[FEDERATED].error
    parts = [
        f"{_verb(score.difference)} {label} ({score.error.mean:.2f}, difference "
        f"{_with_interval(score.difference)}, better on {score.persons_worse} of "
        f"{score.persons} persons)"
        for name, label in COMPARED.items()
        if (score := by_method.get(name))
    ]
    return f"At {count} shots the federated cross-encoder, {federated.mean:.2f} degrees, is " + (
        " and ".join(parts) or "alone: nothing is there to compare it with"
    )


def _verb(difference: Estimate) -> str:
    """Judge by the interval of the other's error less the cross-encoder's."""
    if difference.low > 0:
        return "better than"
    if difference.high < 0:
        return "worse than"
    return "not clearly different from"


def _with_interval(value: Estimate) -> str:
    interval = "" if math.isnan(value.low) else f" [{value.low:.2f}, {value.high:.2f}]"
    return f"{value.mean:+.2f}{interval}"


def _draw_rows(runs: Sequence[MethodRun], results: Results) -> list[list[object]]:
    return [
        [run.method, run.seed, person, int(count), draw, error]
        for run in runs
        if run.key in results
        for person, by_count in results[run.key]["errors"].items()
        for count, draws in by_count.items()
        for draw, error in enumerate(draws)
    ]


def _draw_curves(path: Path, scores: Sequence[Score]) -> None:
    figure = plot_style.new_figure(10.5, 4.4)
    left, right = figure.subplots(1, 2)
    for number, method in enumerate(METHODS):
        curve = [score for score in scores if score.method == method]
        if not curve:
            continue
        look = {**plot_style.line_style(number), "markersize": 4}
        if method == "mean-gaze":
            look["color"] = plot_style.REFERENCE
        shots = np.array([score.shots for score in curve])
        left.plot(shots, [score.error.mean for score in curve], label=METHODS[method], **look)
        if method != FEDERATED:
            gains = [score.difference for score in curve]
            ends = [(gain.mean - gain.low, gain.high - gain.mean) for gain in gains]
            right.errorbar(
                shots * (1 + _APART * (number - len(METHODS) / 2)), [gain.mean for gain in gains],
                yerr=np.nan_to_num(np.array(ends).T), capsize=2, elinewidth=0.8, **look,
            )  # fmt: skip
    counts = sorted({score.shots for score in scores})
    right.axhline(0, color=plot_style.REFERENCE, linestyle=":", linewidth=1)
    left.set(ylabel="mean angle error (degrees)", ylim=(0, None), title="left-out persons")
    right.set(ylabel="difference (degrees)", title="error less that of the federated cross-encoder")
    for axes in (left, right):
        axes.set_xscale("log")
        axes.set_xticks(counts, [str(count) for count in counts])
        axes.minorticks_off()
        axes.set_xlabel("labelled shots")
        plot_style.draw_grid(axes)
    figure.legend(fontsize=plot_style.LEGEND_PT, ncols=4, loc="outside lower center")
    plot_style.save_png(figure, path)
