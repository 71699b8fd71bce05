"""A study of split training: its settings, its runs, and its tables, plot and findings."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any

import numpy as np
from pydantic import Field

from site_agent.errors import InvalidInputError
from site_agent.pictures import plot_style
from site_agent.settings import Settings
from site_agent.split.plan import SplitPlan, read_split_plan
from site_agent.studies.eyes import DrawnSettings, MethodRun
from site_agent.tables import Column, Table, write_tables

METHODS: Mapping[str, str] = {
    "mean-gaze": "mean gaze",
    "head-pose": "head pose only",
    "individual": "individual",
    "data-centre": "data centre",
    "fedavg": "FedAvg",
    "v1": "split, V1",
    "v2": "split, V2",
    "mean-smashed": "split, means of smashed data",
    "frozen-client": "split, frozen random client part",
    "dp-client": "V1, DP of the client part",
    "dp-whole": "V1, DP of both parts",
    "dp-person": "V1, DP of persons",
}
"""Names for people."""
INVERSION = "inversion"
_FEWEST_VICTIMS = 2
_ADAM_RATE = 0.001


class SplitStudySettings(Settings, error=InvalidInputError):
    """The settings of a study."""

    architecture: str = "gaze-lenet"
    """Of all networks."""
    cut: str = "pool1"
    """Where they are cut ('split plan --cuts')."""
    methods: tuple[str, ...] = Field(default=tuple(METHODS), description=", ".join(METHODS) + ".")
    seeds: int = Field(default=3, ge=1, le=1000)
    """Repetitions with other starts."""
    folds: int = Field(default=5, ge=1, le=1000)
    """Persons that are left out, one after the other."""
    images: int = Field(default=200, ge=8, le=1_000_000)
    """Of each person at most, evenly spaced."""
    rounds: int = Field(default=6, ge=1, le=10_000)
    """All persons take part in each."""
    epochs: int = Field(default=1, ge=1, le=1000)
    """Passes of a person in a round."""
    batch_size: int = Field(default=8, ge=1, le=65_536)
    """Images in a step."""
    learning_rate: float = Field(default=0.02, gt=0, le=10)
    """For SGD with momentum."""
    alone: int = Field(default=2, ge=1, le=1000)
    """Number of persons with a network trained on them alone."""
    dp_epsilon: float = Field(default=8.0, gt=0, le=1000)
    """Of all rounds, at delta 1e-5."""
    levels: tuple[Annotated[float, Field(ge=0)], ...] = (0.0, 0.2, 0.5, 1.0, 2.0)
    """Laplace noise on smashed data under attack, in units of the sensitivity."""
    passes: int = Field(default=6, ge=1, le=1000)
    """Of the attackers' training over shadow persons."""
    first_seed: int = Field(default=0, ge=0, le=2**31)
    """Of the drawn persons, too."""
    drawn: DrawnSettings = Field(
        default_factory=lambda: DrawnSettings(drawn_persons=15, frames=200, amount=1)
    )

    def __post_init__(self) -> None:
        if unknown := [name for name in self.methods if name not in METHODS]:
            raise InvalidInputError(
                f"methods: {', '.join(unknown)}; expected some of {', '.join(METHODS)}"
            )
        self.plan("v1", 0)

    def plan(
        self, method: str, seed: int, level: float = 0.0, *, by_adam: bool = False
    ) -> SplitPlan:
        """Return the plan of a method of split training."""
        covers = method.removeprefix("dp-")
        private = {"dp_epsilon": self.dp_epsilon} if method != covers else {}
        return read_split_plan(
            {
                "architecture": self.architecture, "cut": self.cut,
                "variant": "v1" if private else method,
                "optimiser": "adam" if by_adam else "sgd",
                "rounds": self.rounds, "noise_level": level,
                "dp_covers": covers if private else "client",
                "training": {
                    "epochs": self.epochs, "batch_size": self.batch_size,
                    "learning_rate": _ADAM_RATE if by_adam else self.learning_rate,
                    "seed": seed, **private,
                },
            }
        )  # fmt: skip


QUICK = SplitStudySettings(
    rounds=3,
    seeds=1,
    folds=2,
    images=120,
    alone=1,
    passes=4,
    drawn=DrawnSettings(drawn_persons=6, frames=120, amount=1),
)
"""A study of some minutes on one core."""


def plan_runs(persons: Sequence[str], settings: SplitStudySettings) -> tuple[MethodRun, ...]:
    """Return all runs of a study: all of the first seed, then of the next one.

    Raises `InvalidInputError`: too few persons for averages over 3 sites.
    """
    victims = max(_FEWEST_VICTIMS, len(persons) // 3)
    if len(persons) - victims < 3:
        raise InvalidInputError(f"{len(persons)} persons; expected at least 5")
    runs = []
    for seed in range(settings.first_seed, settings.first_seed + settings.seeds):
        for left_out in persons[: settings.folds]:
            sites = tuple(name for name in persons if name != left_out)
            runs += [
                MethodRun(name, seed, sites, (left_out,), left_out) for name in settings.methods
            ]
        if settings.levels:
            runs.append(
                MethodRun(INVERSION, seed, tuple(persons[:-victims]), tuple(persons[-victims:]))
            )
    return tuple(runs)


Results = Mapping[str, Mapping[str, Any]]

ERRORS = Table(
    "errors",
    (
        Column("method"),
        Column("error", "number", "deg", "Mean over persons left out and seeds.", ".2f"),
        Column(
            "seed_noise", "number", "deg", "Standard deviation over seeds, for one person.", ".2f"
        ),
        Column("worst_person", "number", "deg", "Mean over seeds of the worst person.", ".2f"),
    ),
    "Errors on persons left out, in degrees",
)
INVERSIONS = Table(
    "inversion",
    (
        Column("noise", "number", format=".2f"),
        Column("error", "number", "deg", "Of V1 with this noise, on the victims.", ".2f"),
        Column("signal_to_noise", "number", "dB", "Of the smashed data.", ".1f"),
        Column("attacker"),
        Column("gain", "number", "", "0: as good as the mean eye; 1: the eye itself.", ".3f"),
        Column("mse", "number", format=".4f"),
        Column("ssim", "number", format=".3f"),
        Column("gaze_error", "number", "deg", "Of a fixed network on the pictures.", ".2f"),
        Column("persons_found", "number", format=".2f"),
        Column("chance", "number", format=".2f"),
    ),
    "What smashed data show",
)
_NOTES = (
    "Gain: 0 is as good as the mean eye, 1 is the eye itself. Under noise, errors are of V1 with "
    "this noise on the victims, trained by SGD, or by Adam where SGD diverges. Pictures of what "
    "the attackers made are in `sheets`."
)
_LOWEST_GAIN = -0.5
_SCORES = ("gain", "mse", "ssim", "gaze_error_deg", "persons_found", "chance")


def write_report(
    folder: Path, runs: Sequence[MethodRun], results: Results, repeat: Sequence[str]
) -> tuple[list[Path], list[str]]:
    """Write the tables and the plot; return their files, the table first, and the findings."""
    errors, shown = error_rows(runs, results), inversion_rows(runs, results)
    findings = [*_accuracy(errors), *_leaks(shown), *_private(errors)]
    files = write_tables(
        folder,
        "Split training",
        [(ERRORS, errors), (INVERSIONS, shown)],
        findings,
        _NOTES,
        repeat=repeat,
    )
    if shown:
        files.append(folder / "inversion.png")
        _draw(files[-1], errors, shown)
        files += sorted((folder / "sheets").glob("*.png"))
    return files, findings


def error_rows(runs: Sequence[MethodRun], results: Results) -> list[list[Any]]:
    """Return a row of `ERRORS` for each method."""
    rows: list[list[Any]] = []
    for method, label in METHODS.items():
        errors: dict[str, list[float]] = {}
        for run in runs:
            if run.method == method and run.key in results:
                errors.setdefault(run.test[0], []).append(results[run.key]["error_deg"])
        if not errors:
            continue
        means = [float(np.mean(seeds)) for seeds in errors.values()]
        spreads = [np.var(seeds, ddof=1) for seeds in errors.values() if len(seeds) > 1]
        noise = float(np.sqrt(np.mean(spreads))) if spreads else None
        rows.append([label, float(np.mean(means)), noise, max(means)])
    return rows


def inversion_rows(runs: Sequence[MethodRun], results: Results) -> list[list[Any]]:
    """Return a row of `INVERSIONS` for each noise and attacker: means over seeds."""
    runs_by_attack: dict[tuple[float, str], list[Mapping[str, Any]]] = {}
    for run in runs:
        for level in results.get(run.key, {}).get("levels", ()) if run.method == INVERSION else ():
            for attacker, scores in level["attackers"].items():
                runs_by_attack.setdefault((level["level"], attacker), []).append(
                    {**level, **scores}
                )
    return [
        [
            level, _mean(runs_, "error_deg"), _mean(runs_, "signal_to_noise_db"), attacker,
            *(_mean(runs_, name) for name in _SCORES),
        ]
        for (level, attacker), runs_ in sorted(runs_by_attack.items())
    ]  # fmt: skip


def _mean(runs: Sequence[Mapping[str, Any]], name: str) -> float | None:
    values = [run[name] for run in runs if run[name] is not None]
    return float(np.mean(values)) if values else None


def _accuracy(errors: Sequence[Sequence[Any]]) -> list[str]:
    """Compare V1 with FedAvg; they differ only in which batches are held back."""
    by_name = {row[0]: row for row in errors}
    split, whole = by_name.get(METHODS["v1"]), by_name.get(METHODS["fedavg"])
    if split is None or whole is None:
        return []
    apart = split[1] - whole[1]
    text = f"V1 has an error of {split[1]:.2f} degrees, FedAvg {whole[1]:.2f}: "
    if whole[2] is None:
        return [f"{text}{apart:+.2f}, with one seed, so that nothing says what is noise."]
    noise = max(split[2], whole[2])
    place = "within" if abs(apart) <= noise else "beyond"
    return [f"{text}{apart:+.2f}, {place} the noise of one seed ({noise:.2f})."]


def _private(errors: Sequence[Sequence[Any]]) -> list[str]:
    """State the cost of differential privacy, next to training nothing at home."""
    by_name = {row[0]: row[1] for row in errors}
    noisy = {name: METHODS[name] for name in METHODS if name.startswith("dp-")}
    costs = [
        f"{by_name[label]:.2f} ({label.removeprefix('V1, ')})"
        for label in noisy.values()
        if label in by_name
    ]
    if not costs:
        return []
    text = f"With differential privacy V1 has errors of {', '.join(costs)} degrees"
    others = [METHODS[name] for name in ("v1", "frozen-client", "mean-gaze")]
    beside = [f"{label} {by_name[label]:.2f}" for label in others if label in by_name]
    return [f"{text}; without it: {', '.join(beside)}." if beside else f"{text}."]


def _leaks(shown: Sequence[Sequence[Any]]) -> list[str]:
    """State the best attacker's gain without noise and with the most, and the cost of noise."""
    if not shown:
        return []
    ends = []
    for level in dict.fromkeys((shown[0][0], shown[-1][0])):
        best = max((row for row in shown if row[0] == level), key=lambda row: float(row[4]))
        noise = f"at noise {level:g}" if level else "without noise"
        ends.append(
            f"{noise} attacker {best[3]} has a gain of {best[4]:.2f} over the mean eye, and V1 "
            + ("cannot be trained" if best[1] is None else f"an error of {best[1]:.2f} degrees")
        )
    return [f"Smashed data show eyes: {'; '.join(ends)}."]


def _draw(path: Path, errors: Sequence[Sequence[Any]], shown: Sequence[Sequence[Any]]) -> None:
    """Draw the error and the attackers' gains over the noise."""
    figure = plot_style.new_figure(7.0, 4.2)
    axes = figure.subplots()
    gains = axes.twinx()
    levels = sorted({row[0] for row in shown})
    heights = {row[0]: np.nan if row[1] is None else row[1] for row in shown}
    axes.plot(
        levels,
        [heights[level] for level in levels],
        label="error of V1",
        **plot_style.line_style(0),
    )
    for row in errors:
        if row[0] == METHODS["mean-gaze"]:
            axes.axhline(
                row[1], color=plot_style.REFERENCE, linestyle=":", label="error of the mean gaze"
            )
    for number, attacker in enumerate(sorted({row[3] for row in shown}), 1):
        attacker_gains = [row[4] for row in shown if row[3] == attacker]
        gains.plot(
            levels,
            attacker_gains,
            label=f"gain of attacker {attacker}",
            **plot_style.line_style(number),
        )
    axes.set(xlabel="Laplace noise (sensitivities)", ylabel="error (degrees)", ylim=(0, None))
    # Results far worse than the mean eye are cut off: they show nothing, and hide the others.
    lowest = max(_LOWEST_GAIN, min(0, *(row[4] for row in shown)))
    gains.set(ylabel="gain over the mean eye", ylim=(lowest, 1))
    plot_style.draw_grid(axes)
    figure.legend(fontsize=plot_style.LEGEND_PT, ncols=3, loc="outside lower center")
    plot_style.save_png(figure, path)
