"""Change of responses over sessions and participants: points, curve and confidence band."""

import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, fields
from typing import Any, Literal

import numpy as np

from site_agent.errors import ConditioningError
from site_agent.eyeblink.records import Float64, Int64
from site_agent.plain_json import plain
from site_agent.wording import count_words

LearningMeasure = Literal["cr_percent", "amplitude_all", "amplitude_cr"]
MEASURE_UNITS: Mapping[LearningMeasure, str] = {
    "cr_percent": "%",
    "amplitude_all": "FEC",
    "amplitude_cr": "FEC",
}
CHANGE_UNITS: Mapping[LearningMeasure, str] = {**MEASURE_UNITS, "cr_percent": "points"}
"""Of changes and differences: from 67 % to 50 % are 17 points."""
FEWEST_PARTICIPANTS = 3
"""Fewer show nothing of how persons differ: no interval, no p value and no conclusion."""
UNTOLD: Literal["too few or too alike to tell"] = "too few or too alike to tell"
_BAND_POINTS = 41
_ROUNDING = 1e-9


@dataclass(frozen=True)
class LearningPoint:
    """One value of one participant: NaN where too few trials are valid."""

    participant: str
    position: float
    value: float
    n_trials: int
    group: str = ""


@dataclass(frozen=True)
class PositionMean:
    """Mean and standard error over the participants at one position."""

    position: float
    mean: float
    standard_error: float
    n_participants: int


@dataclass(frozen=True)
class Effect:
    """A number with its 95 % interval and two-sided p value; NaN where they cannot be had."""

    estimate: float
    low: float = math.nan
    high: float = math.nan
    p_value: float = math.nan

    @property
    def verdict(self) -> Literal["positive", "negative", "unclear", "too few or too alike to tell"]:
        """The sign of the effect by its interval; unclear when that holds zero."""
        if math.isnan(self.low):
            return UNTOLD
        if self.low > 0:
            return "positive"
        return "negative" if self.high < 0 else "unclear"

    @property
    def interval(self) -> str:
        """The interval in words, without a unit."""
        is_known = math.isfinite(self.low)
        return f"{self.low:+.3g} to {self.high:+.3g}" if is_known else UNTOLD

    def to_dict(self) -> dict[str, object]:
        """Return plain JSON types, None for NaN."""
        return {**plain(self), "verdict": self.verdict}


@dataclass(frozen=True, eq=False)
class LearningCurve:
    """A straight line over sessions with its 95 % confidence band."""

    measure: LearningMeasure
    method: str
    positions: Float64
    mean: Float64
    low: Float64
    high: Float64
    """Of shape (k,). The line and its band; percentages stay within 0..100."""
    slope: Effect
    observed: tuple[PositionMean, ...]
    points: tuple[LearningPoint, ...]
    n_participants: int
    remarks: tuple[str, ...]

    def to_dict(self) -> dict[str, object]:
        """Return plain JSON types, None for NaN."""
        values = {field.name: getattr(self, field.name) for field in fields(self)}
        units = {"unit": MEASURE_UNITS[self.measure], "slope_unit": CHANGE_UNITS[self.measure]}
        return {**plain(values), **units, "slope": self.slope.to_dict()}


def learning_points(
    sessions: Iterable[tuple[str, float, str, Mapping[str, Any]]],
    measure: LearningMeasure = "cr_percent",
) -> tuple[LearningPoint, ...]:
    """Return a point for each session.

    `sessions`: the position is the session's number among the participant's, or a day; the summary
    is that of a `SessionSummary`, with None or NaN for unknown values.
    """
    counted = "n_cr" if measure == "amplitude_cr" else "n_cs_valid"
    points = [
        LearningPoint(
            participant,
            position,
            math.nan
            if summary[measure] is None or summary.get("withheld")
            else float(summary[measure]),
            int(summary[counted]),
            group,
        )
        for participant, position, group, summary in sessions
    ]
    return tuple(sorted(points, key=lambda point: (point.participant, point.position)))


def fit_learning_curve(
    points: Sequence[LearningPoint], measure: LearningMeasure = "cr_percent"
) -> LearningCurve:
    """Fit how the measure changes from session to session.

    With three participants or more: the mean of their own lines, with an interval that holds for
    other persons, too. With one or two: a regression with a level for each, without an interval.
    Nor have lines that are all alike one.
    """
    counts = Counter((point.participant, point.position) for point in points)
    if twice := [place for place, count in counts.items() if count > 1]:
        raise ConditioningError(
            f"participant {twice[0][0]!r} has two sessions {twice[0][1]:g}; number the sessions of "
            "each participant"
        )
    known = [point for point in points if math.isfinite(point.value)]
    positions = sorted({point.position for point in known})
    if len(positions) < 2:
        raise ConditioningError(
            f"a learning curve needs values of at least two sessions, found {len(positions)}"
        )
    remarks = []
    if len(known) < len(points):
        remarks.append(
            f"{len(points) - len(known)} of {len(points)} sessions have no trial or too few valid "
            "ones for this measure and are left out"
        )
    grid = np.linspace(positions[0], positions[-1], _BAND_POINTS)
    fit = fit_line(
        np.array([point.position for point in known]),
        np.array([point.value for point in known]),
        [point.participant for point in known],
        grid,
    )
    most = 100.0 if measure == "cr_percent" else math.inf
    least = 0.0 if measure == "cr_percent" else -math.inf
    mean, low, high = (np.clip(line, least, most) for line in (fit.mean, fit.low, fit.high))
    return LearningCurve(
        measure=measure,
        method=fit.method,
        positions=grid,
        mean=mean,
        low=low,
        high=high,
        slope=fit.slope,
        observed=_average_observed(known, positions),
        points=tuple(known),
        n_participants=len({point.participant for point in known}),
        remarks=(*remarks, *fit.remarks),
    )


def group_difference(points: Sequence[LearningPoint]) -> tuple[Effect, tuple[str, str], int]:
    """Return by how much the second group exceeds the first, the names of both, and the pairs.

    Each participant counts once in a group, with the mean over the sessions. Where the same
    participants (three or more) stand in both groups, their differences count, and only theirs;
    otherwise Welch's interval. Values that are all alike have none.

    Raises `ConditioningError`: fewer than three participants in a group.
    """
    values: dict[str, dict[str, list[float]]] = {}
    for point in points:
        if math.isfinite(point.value):
            members = values.setdefault(point.group, {})
            members.setdefault(point.participant, []).append(point.value)
    names = sorted(values)
    both = sorted(values[names[0]].keys() & values[names[1]]) if len(names) == 2 else []
    if len(both) >= FEWEST_PARTICIPANTS:
        of_each = np.array([[np.mean(values[name][who]) for name in names] for who in both])
        steps = of_each[:, 1] - of_each[:, 0]
        effect = _effect(steps.mean(), _standard_error(steps), len(steps) - 1, of_each)
        return effect, (names[0], names[1]), len(both)
    if len(names) != 2 or any(len(values[name]) < FEWEST_PARTICIPANTS for name in names):
        counts = ", ".join(f"{name or '(none)'}: {len(values[name])}" for name in names) or "none"
        raise ConditioningError(
            "a group difference needs two groups with at least three participants each; found "
            f"participants by group: {counts}"
        )
    first, second = (
        np.array([float(np.mean(person_values)) for person_values in values[name].values()])
        for name in names
    )
    return _mean_difference(first, second), (names[0], names[1]), 0


LEARNED_PERCENT, LEARNED_RUN = 60.0, (8, 10)
"""A participant has learned in the first session with this percentage of CRs, and with the trial
that completes a run in which this number of trials in a row held CRs."""


def sessions_to_criterion(points: Sequence[LearningPoint]) -> int | None:
    """Return the count of one participant's sessions up to the first with 60 % of CRs, or None."""
    ordered = sorted(points, key=lambda point: point.position)
    learned = [count for count, point in enumerate(ordered, 1) if point.value >= LEARNED_PERCENT]
    return learned[0] if learned else None


def trials_to_criterion(crs: Sequence[bool]) -> int | None:
    """Return the count of one participant's valid trials up to 8 CRs within 10 trials, or None."""
    hits, of = LEARNED_RUN
    within = np.convolve(np.asarray(crs, dtype=np.int64), np.ones(of, dtype=np.int64))[: len(crs)]
    learned = np.flatnonzero(within >= hits)
    return int(learned[0]) + 1 if len(learned) else None


def _average_observed(
    points: Sequence[LearningPoint], positions: Sequence[float]
) -> tuple[PositionMean, ...]:
    means = []
    for position in positions:
        values = np.array([point.value for point in points if point.position == position])
        error = float(values.std(ddof=1) / math.sqrt(len(values))) if len(values) > 1 else math.nan
        means.append(PositionMean(position, float(values.mean()), error, len(values)))
    return tuple(means)


@dataclass(frozen=True, eq=False)
class LineFit:
    """A line with its 95 % band at the positions asked for; see `LearningCurve`."""

    method: str
    mean: Float64
    low: Float64
    high: Float64
    slope: Effect
    remarks: tuple[str, ...] = ()


def fit_line(x: Float64, y: Float64, participants: Sequence[str], grid: Float64) -> LineFit:
    """Fit ``y ~ x``, each participant's own line first where there are enough of them.

    The values are finite, at two different positions at least; the line is returned at `grid`.
    """
    names, member = np.unique(np.asarray(participants), return_inverse=True)
    several = [person for person in range(len(names)) if np.ptp(x[member == person]) > 0]
    if np.ptp(y) == 0:
        unknown = np.full(len(grid), math.nan)
        remark = "all values are the same: nothing to fit"
        flat = np.full(len(grid), y[0])
        return LineFit("regression", flat, unknown, unknown, Effect(0.0), (remark,))
    if not several:
        remark = "every participant has one session only: the line is across persons"
        return _regression(x, y, np.zeros_like(member), grid, freedom=len(y) - 2, remark=remark)
    if len(several) < FEWEST_PARTICIPANTS:
        remark = (
            f"{count_words(len(several), 'participant')} with two sessions or more: a regression "
            f"without an interval, which takes {FEWEST_PARTICIPANTS} participants"
        )
        return _regression(x, y, member, grid, freedom=0, remark=remark)
    left_out = len(names) - len(several)
    remarks = (f"{count_words(left_out, 'participant')} with one session left out",)
    return _mean_of_lines(
        x, y, [member == person for person in several], grid, remarks[: left_out > 0]
    )


def _mean_of_lines(
    x: Float64, y: Float64, persons: Sequence[np.ndarray], grid: Float64, remarks: tuple[str, ...]
) -> LineFit:
    """Average the participants' own lines, with Student's interval over the participants.

    The analysis by summary measures of J. N. S. Matthews, D. G. Altman, M. J. Campbell and
    P. Royston, "Analysis of serial measurements in medical research", BMJ 300 (1990). For
    balanced data it is the estimate of a mixed model with random slopes.
    """
    lines = np.array([np.polyfit(x[points], y[points], 1) for points in persons])
    at = lines[:, :1] * grid + lines[:, 1:]
    mean = at.mean(axis=0)
    low, high, _ = _limits(mean, _standard_error(at), len(lines) - 1, y)
    slopes = lines[:, 0]
    slope = _effect(slopes.mean(), _standard_error(slopes), len(lines) - 1, y)
    return LineFit("mean of lines", mean, low, high, slope, remarks)


def _standard_error(values: Float64) -> Float64:
    error: Float64 = values.std(axis=0, ddof=1) / math.sqrt(len(values))
    return error


def _limits(mean: Any, error: Any, freedom: float, values: Float64) -> tuple[Any, Any, Any]:
    """Return the 95 % limits of a mean and its two-sided p value, by Student's t.

    All are NaN where the error is no more than the rounding of `values`: a sample without spread
    says nothing about spread.
    """
    from scipy.stats import t

    error = np.where(error > _ROUNDING * np.abs(values).max(), error, math.nan)
    half = t.ppf(0.975, freedom) * error
    return mean - half, mean + half, 2.0 * t.sf(np.abs(mean) / error, freedom)


def _effect(mean: Any, error: Any, freedom: float, values: Float64) -> Effect:
    return Effect(float(mean), *map(float, _limits(mean, error, freedom, values)))


def _mean_difference(first: Float64, second: Float64) -> Effect:
    """Return mean of `second` minus mean of `first`, after Welch."""
    parts = np.array([_standard_error(values) ** 2 for values in (first, second)])
    of_each = parts**2 / (len(first) - 1, len(second) - 1)
    freedom = parts.sum() ** 2 / max(of_each.sum(), math.ulp(0.0))
    difference, values = second.mean() - first.mean(), np.concatenate([first, second])
    return _effect(difference, math.sqrt(parts.sum()), freedom, values)


def _regression(
    x: Float64, y: Float64, member: Int64, grid: Float64, *, freedom: int, remark: str
) -> LineFit:
    """Fit one slope and a level for each participant by least squares.

    There is no interval where no degree of `freedom` is left.
    """
    count = int(member.max()) + 1
    design = np.column_stack([x - x.mean(), member[:, None] == np.arange(count)])
    inverse = np.linalg.pinv(design.T @ design)
    fitted = inverse @ design.T @ y
    # The line stands for the average of these participants.
    at = np.column_stack([grid - x.mean(), np.full((len(grid), count), 1.0 / count)])
    variance = float(((y - design @ fitted) ** 2).sum()) / freedom if freedom > 0 else math.nan
    error = np.sqrt(variance * np.einsum("ki,ij,kj->k", at, inverse, at))
    low, high, _ = _limits(at @ fitted, error, freedom, y)
    slope = _effect(fitted[0], math.sqrt(variance * inverse[0, 0]), freedom, y)
    return LineFit("regression", at @ fitted, low, high, slope, (remark,))
