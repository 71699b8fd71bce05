"""Numbers of a gaze study: errors by method and person over seeds, and their baselines."""

import math
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from site_agent.studies.gaze.protocol import Run
from site_agent.studies.gaze.settings import METHODS

Results = Mapping[str, Mapping[str, Any]]
Errors = dict[str, float]

# Student's t at 97.5 % for 1, 2, ... degrees of freedom; beyond, the next smaller one is safe.
_T = (12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262)


@dataclass(frozen=True)
class Estimate:
    """A mean over seeds with the half width of its 95 % interval; NaN of one seed."""

    mean: float
    half: float

    @property
    def low(self) -> float:
        return self.mean - self.half

    @property
    def high(self) -> float:
        return self.mean + self.half

    @property
    def ends(self) -> tuple[float, float, float]:
        """Mean, and both ends of the interval."""
        return self.mean, self.low, self.high


def estimate(values: Sequence[float]) -> Estimate:
    """Return the mean and the interval of one value for each seed."""
    mean = math.fsum(values) / len(values)
    if len(values) < 2 or not math.isfinite(mean):
        return Estimate(mean, math.nan)
    t = _T[min(len(values) - 1, len(_T)) - 1]
    return Estimate(mean, t * float(np.std(values, ddof=1)) / math.sqrt(len(values)))


@dataclass(frozen=True)
class MethodScores:
    """The scores of one method under one protocol.

    `errors` and `constant`: by seed and person: mean angle in degrees, and that of the mean gaze of
    the same training samples. `passes`: how often the training went over the samples: rounds times
    epochs.
    """

    protocol: str
    method: str
    errors: Mapping[int, Errors]
    constant: Mapping[int, Errors]
    passes: int

    @property
    def error(self) -> Estimate:
        """Mean over persons."""
        return estimate([_mean(errors.values()) for errors in self.errors.values()])

    @property
    def constant_error(self) -> float:
        return _mean(_mean(errors.values()) for errors in self.constant.values())

    @property
    def better_percent(self) -> float:
        """How much smaller the error is than the constant mean's."""
        return 100 * (1 - self.error.mean / self.constant_error)

    @property
    def persons(self) -> Errors:
        """Mean over seeds of each person's error."""
        names = sorted({name for errors in self.errors.values() for name in errors})
        return {
            name: _mean(errors[name] for errors in self.errors.values() if name in errors)
            for name in names
        }

    @property
    def spread(self) -> tuple[float, float, float, float]:
        """Worst and best person, their difference, and the standard deviation over persons."""
        values = list(self.persons.values())
        worst, best = max(values), min(values)
        return worst, best, worst - best, float(np.std(values, ddof=1))


def method_scores(runs: Sequence[Run], results: Results) -> list[MethodScores]:
    """Return the scores of each method, person-specific and person-independent.

    Of ``individual``, a person's person-independent error is the mean over the networks of the
    other persons.
    """
    errors: dict[tuple[str, str], dict[int, dict[str, list[float]]]] = {}
    constant: dict[tuple[str, str], dict[int, dict[str, list[float]]]] = {}
    passes: dict[tuple[str, str], int] = defaultdict(int)
    for run in runs:
        if run.protocol in ("noise", "hostile") or run.key not in results:
            continue
        result = results[run.key]
        for name in result["errors"]:
            protocol: str = run.protocol
            if protocol == "individual":
                protocol = "person-specific" if name in run.train else "person-independent"
            rounds = result["curve"][-1][0] if result["curve"] else 0
            key = (protocol, run.method)
            passes[key] = max(passes[key], run.training.epochs * rounds)
            for table, kind in ((errors, "errors"), (constant, "constant")):
                seeds = table.setdefault(key, {})
                values = seeds.setdefault(run.seed, defaultdict(list))
                values[name].append(number(result[kind][name]))
    return [
        MethodScores(protocol, method, _means(errors[key]), _means(constant[key]), passes[key])
        for protocol in ("person-specific", "person-independent")
        for method in METHODS
        if (key := (protocol, method)) in errors
    ]


def matrix(runs: Sequence[Run], results: Results) -> dict[tuple[str, str], float]:
    """Return the error of the network of one person on another, mean over seeds."""
    errors: dict[tuple[str, str], list[float]] = defaultdict(list)
    for run in runs:
        if run.protocol == "individual" and run.key in results:
            for name, error in results[run.key]["errors"].items():
                errors[run.train[0], name].append(number(error))
    return {pair: _mean(values) for pair, values in sorted(errors.items())}


def robust_errors(
    runs: Sequence[Run], results: Results, protocol: str
) -> dict[tuple[str, str], dict[int, float]]:
    """Return the mean error over test persons, by (method, group) and seed."""
    of_seeds: dict[tuple[str, str], dict[int, float]] = {}
    for run in runs:
        if run.protocol == protocol and run.key in results:
            errors = results[run.key]["errors"].values()
            of_seeds.setdefault((run.method, run.group), {})[run.seed] = _mean(map(number, errors))
    return of_seeds


def ratio(errors: Mapping[int, float], base: Mapping[int, float]) -> Estimate:
    """Return the ratio of errors of equal seeds."""
    return estimate([errors[seed] / base[seed] for seed in errors if seed in base])


def difference_percent(scores: MethodScores, base: MethodScores) -> Estimate:
    """Return how much larger the errors of a method are than another's of the same seeds, in %."""
    return estimate(
        [
            100 * (_mean(scores.errors[seed].values()) / _mean(base.errors[seed].values()) - 1)
            for seed in scores.errors
            if seed in base.errors
        ]
    )


def number(error: float | None) -> float:
    """Return an error, infinite for a network that gives no finite angles."""
    return math.inf if error is None else float(error)


def _means(table: Mapping[int, Mapping[str, Sequence[float]]]) -> dict[int, Errors]:
    return {
        seed: {name: _mean(values) for name, values in sorted(persons.items())}
        for seed, persons in table.items()
    }


def _mean(values: Iterable[float]) -> float:
    numbers = list(values)
    return math.fsum(numbers) / len(numbers)
