"""Change of responses over sessions and participants: points, curve and confidence band."""

from __future__ import annotations

import math
import warnings
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from typing import Any, Literal

import numpy as np

from site_agent.errors import ConditioningError
from site_agent.eyeblink.records import Float64, Int64
from site_agent.plain_json import plain

LearningMeasure = Literal["cr_percent", "amplitude_all", "amplitude_cr"]
MEASURE_UNITS: Mapping[LearningMeasure, str] = {
    "cr_percent": "%",
    "amplitude_all": "FEC",
    "amplitude_cr": "FEC",
}
_BAND_POINTS = 41


@dataclass(frozen=True)
class LearningPoint:
    """One value of one participant: NaN without a valid trial."""

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
    low: float
    high: float
    p_value: float

    @property
    def verdict(self) -> Literal["positive", "negative", "unclear"]:
        """The sign of the effect by its interval; unclear when that holds zero or is not known."""
        if self.low > 0:
            return "positive"
        return "negative" if self.high < 0 else "unclear"

    def to_dict(self) -> dict[str, object]:
        """Return plain JSON types, None for NaN."""
        return {**plain(self), "verdict": self.verdict}


@dataclass(frozen=True, eq=False)
class LearningCurve:
    """A straight line over sessions with its 95 % confidence band.

    Attributes
    ----------
    positions, mean, low, high : float64, shape (k,)
        The line and its band; percentages stay within 0..100.
    """

    measure: LearningMeasure
    method: str
    positions: Float64
    mean: Float64
    low: Float64
    high: Float64
    slope: Effect
    observed: tuple[PositionMean, ...]
    points: tuple[LearningPoint, ...]
    n_participants: int
    remarks: tuple[str, ...]

    def to_dict(self) -> dict[str, object]:
        """Return plain JSON types, None for NaN."""
        own = {each.name: getattr(self, each.name) for each in fields(self)}
        return {**plain(own), "unit": MEASURE_UNITS[self.measure], "slope": self.slope.to_dict()}


def learning_points(
    sessions: Iterable[tuple[str, float, str, Mapping[str, Any]]],
    measure: LearningMeasure = "cr_percent",
) -> tuple[LearningPoint, ...]:
    """Return a point for each session.

    Parameters
    ----------
    sessions : iterable of (participant, position, group, summary)
        The position is the session's number among the participant's, or a day; the summary is
        that of a `SessionSummary`, with None or NaN for what is not known.
    """
    counted = "n_cr" if measure == "amplitude_cr" else "n_cs_valid"
    points = [
        LearningPoint(
            participant,
            position,
            math.nan if summary[measure] is None else float(summary[measure]),
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

    Three participants and more: a linear mixed model, ``value ~ session`` with a random intercept
    by participant, and a random slope where five or more were seen in three sessions or more.
    Where it cannot be fitted, and for one or two participants, a regression with an intercept for
    each; `remarks` says why.
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
            f"{len(points) - len(known)} of {len(points)} sessions have no valid trial "
            "for this measure and are missing"
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
        slope=Effect(fit.slope, fit.slope_low, fit.slope_high, fit.p_value),
        observed=_average_observed(known, positions),
        points=tuple(known),
        n_participants=len({point.participant for point in known}),
        remarks=(*remarks, *fit.remarks),
    )


def group_difference(points: Sequence[LearningPoint]) -> tuple[Effect, tuple[str, str]]:
    """Return by how much the second group exceeds the first, and the names of both.

    Each participant counts once, with the mean over the sessions; Welch's interval.
    """
    values: dict[str, dict[str, list[float]]] = {}
    for point in points:
        if math.isfinite(point.value):
            members = values.setdefault(point.group, {})
            members.setdefault(point.participant, []).append(point.value)
    names = sorted(values)
    if len(names) != 2 or any(len(values[name]) < 2 for name in names):
        counts = ", ".join(f"{name or '(none)'}: {len(values[name])}" for name in names) or "none"
        raise ConditioningError(
            "a group difference needs two groups with at least two participants each; found "
            f"participants by group: {counts}"
        )
    first, second = (
        np.array([float(np.mean(own)) for own in values[name].values()]) for name in names
    )
    return Effect(*mean_difference(first, second)), (names[0], names[1])


def _average_observed(
    points: Sequence[LearningPoint], positions: Sequence[float]
) -> tuple[PositionMean, ...]:
    means = []
    for position in positions:
        values = np.array([point.value for point in points if point.position == position])
        error = float(values.std(ddof=1) / math.sqrt(len(values))) if len(values) > 1 else math.nan
        means.append(PositionMean(position, float(values.mean()), error, len(values)))
    return tuple(means)


FEWEST_FOR_MIXED = 3
FEWEST_FOR_RANDOM_SLOPE = 5
_SINGULAR = 1e-4


@dataclass(frozen=True, eq=False)
class LineFit:
    """A line with its 95 % band at the positions asked for; see `LearningCurve`."""

    method: str
    mean: Float64
    low: Float64
    high: Float64
    slope: float
    slope_low: float
    slope_high: float
    p_value: float
    remarks: tuple[str, ...] = ()


def fit_line(x: Float64, y: Float64, participants: Sequence[str], grid: Float64) -> LineFit:
    """Fit ``y ~ x`` with participants as random effects as far as the values allow.

    The values are finite, at two different positions at least; the line is returned at `grid`.
    """
    names, member = np.unique(np.asarray(participants), return_inverse=True)
    sessions = np.array([len(np.unique(x[member == index])) for index in range(len(names))])
    if np.ptp(y) == 0:
        flat = np.full(len(grid), y[0])
        remark = "all values are the same: nothing to fit"
        return LineFit("regression", flat, flat, flat, 0.0, 0.0, 0.0, 1.0, (remark,))
    if (sessions >= 2).sum() == 0:
        remark = "every participant has one session only: the line is across persons"
        return _regression(x, y, np.zeros_like(member), grid, remark)
    if len(names) < FEWEST_FOR_MIXED:
        text = "one participant" if len(names) == 1 else f"{len(names)} participants"
        remark = f"{text}: a regression, whose band does not speak for other persons"
        return _regression(x, y, member, grid, remark)
    wants_slope = len(names) >= FEWEST_FOR_RANDOM_SLOPE and np.median(sessions) >= 3
    remarks: list[str] = []
    for random_slope in (True, False) if wants_slope else (False,):
        fit = _fit_mixed(x, y, member, grid, random_slope)
        if isinstance(fit, LineFit):
            return replace(fit, remarks=(*remarks, *fit.remarks))
        remarks.append(fit)
    remarks.append("a regression with a level for each participant instead")
    return _regression(x, y, member, grid, *remarks)


def mean_difference(first: Float64, second: Float64) -> tuple[float, float, float, float]:
    """Return mean of `second` minus mean of `first`, its 95 % limits and p value, after Welch."""
    from scipy.stats import ttest_ind

    difference = float(second.mean() - first.mean())
    if np.ptp(first) == np.ptp(second) == 0:
        return difference, difference, difference, float(difference == 0)
    found = ttest_ind(second, first, equal_var=False)
    limits = found.confidence_interval(0.95)
    return difference, float(limits.low), float(limits.high), float(found.pvalue)


def _fit_mixed(
    x: Float64, y: Float64, member: Int64, grid: Float64, random_slope: bool
) -> LineFit | str:
    """Fit a linear mixed model by restricted maximum likelihood, or say why it cannot be fitted.

    N. M. Laird and J. H. Ware, "Random-effects models for longitudinal data", Biometrics 38
    (1982). Intervals use Student's t with as many degrees of freedom as there are participants,
    less one, for a random slope: few participants must not look like many.
    """
    from scipy.stats import t
    from statsmodels.regression.mixed_linear_model import MixedLM

    name = "a random slope" if random_slope else "a random intercept"
    centre, scale_x, scale_y = float(x.mean()), float(x.std()), float(y.std())
    design = _design(x, centre, scale_x)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # the fit itself is checked below
            fit = MixedLM(
                (y - y.mean()) / scale_y,
                design,
                member,
                exog_re=design if random_slope else design[:, :1],
            ).fit(reml=True, method=["lbfgs", "bfgs", "powell"])
            line = np.asarray(fit.fe_params, dtype=np.float64)
            covariance = np.asarray(fit.cov_params(), dtype=np.float64)[:2, :2]
            between = np.asarray(fit.cov_re, dtype=np.float64) / float(fit.scale)
    except (np.linalg.LinAlgError, ValueError, FloatingPointError, ZeroDivisionError):
        return f"a mixed model with {name} has no solution here"
    if not (fit.converged and np.isfinite(covariance).all() and (np.diag(covariance) > 0).all()):
        return f"a mixed model with {name} did not converge"
    alike = float(np.linalg.eigvalsh(between).min()) < _SINGULAR
    if random_slope and alike:
        return "the participants' slopes do not differ measurably: no random slope was fitted"
    count = int(member.max()) + 1
    freedom = count - 1 if random_slope else max(len(x) - count - 1, 1)
    quantile = float(t.ppf(0.975, freedom))
    at = _design(grid, centre, scale_x)
    mean = at @ line * scale_y + float(y.mean())
    half = quantile * np.sqrt(np.einsum("ki,ij,kj->k", at, covariance, at)) * scale_y
    slope, error = (
        value * scale_y / scale_x for value in (float(line[1]), math.sqrt(covariance[1, 1]))
    )
    return LineFit(
        "mixed-slope" if random_slope else "mixed-intercept",
        mean,
        mean - half,
        mean + half,
        slope,
        slope - quantile * error,
        slope + quantile * error,
        2.0 * float(t.sf(abs(slope) / error, freedom)),
        ("the participants' levels do not differ measurably",) if alike else (),
    )


def _design(x: Float64, centre: float, scale: float) -> Float64:
    return np.column_stack([np.ones_like(x), (x - centre) / scale])


def _regression(x: Float64, y: Float64, member: Int64, grid: Float64, *remarks: str) -> LineFit:
    from statsmodels.regression.linear_model import OLS

    count = int(member.max()) + 1
    levels = (member[:, None] == np.arange(count)).astype(np.float64)
    with warnings.catch_warnings(), np.errstate(all="ignore"):
        warnings.simplefilter("ignore")  # too few values are remarked on below
        fit: Any = OLS(y, np.column_stack([x - x.mean(), levels])).fit()
        # The line stands for the average of these participants.
        at = np.column_stack([grid - x.mean(), np.full((len(grid), count), 1.0 / count)])
        line = fit.get_prediction(at)
        band = line.conf_int(alpha=0.05)
        limits, p_value = fit.conf_int()[0], float(fit.pvalues[0])
    if not fit.df_resid > 0:
        remarks = (*remarks, "too few values for a confidence band")
        band, limits, p_value = np.full_like(band, np.nan), (math.nan, math.nan), math.nan
    return LineFit(
        "regression",
        np.asarray(line.predicted_mean),
        band[:, 0],
        band[:, 1],
        float(fit.params[0]),
        float(limits[0]),
        float(limits[1]),
        p_value,
        remarks,
    )
