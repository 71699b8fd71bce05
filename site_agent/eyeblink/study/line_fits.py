"""Straight lines through the values of several participants: the door to statsmodels."""

from __future__ import annotations

import math
import warnings
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from site_agent.eyeblink.records import Float64, Int64

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

    Parameters
    ----------
    x, y : float64, shape (n,)
        At least two different positions; finite.
    participants : sequence of str, length n
    grid : float64, shape (k,)
        Where the line and its band are wanted.
    """
    names, member = np.unique(np.asarray(participants), return_inverse=True)
    sessions = np.array([len(np.unique(x[member == index])) for index in range(len(names))])
    if np.ptp(y) == 0:
        return _constant(float(y[0]), grid)
    if (sessions >= 2).sum() == 0:
        fit = _regression(x, y, np.zeros_like(member), grid)
        return _remark(fit, "every participant has one session only: the line is across persons")
    if len(names) < FEWEST_FOR_MIXED:
        fit = _regression(x, y, member, grid)
        text = "one participant" if len(names) == 1 else f"{len(names)} participants"
        return _remark(fit, f"{text}: a regression, whose band does not speak for other persons")
    remarks: list[str] = []
    wants_slope = len(names) >= FEWEST_FOR_RANDOM_SLOPE and np.median(sessions) >= 3
    for random_slope in (True, False) if wants_slope else (False,):
        try:
            fit = _mixed(x, y, member, grid, random_slope)
            return replace(fit, remarks=(*remarks, *fit.remarks))
        except _NoFitError as error:
            remarks.append(str(error))
    if (sessions >= 2).sum() >= 2:
        fit = _participant_slopes(x, y, member, grid)
        remarks.append("the line is the mean of the participants' own lines")
    else:
        fit = _regression(x, y, np.zeros_like(member), grid)
        remarks.append("the line is one regression over all values")
    return replace(fit, remarks=(*remarks, *fit.remarks))


def mean_difference(first: Float64, second: Float64) -> tuple[float, float, float, float]:
    """Return mean of `second` minus mean of `first`, its 95 % limits and p value, after Welch.

    B. L. Welch, "The generalization of Student's problem when several different population
    variances are involved", Biometrika 34 (1947).
    """
    parts = [float(values.var(ddof=1)) / len(values) for values in (first, second)]
    variance = sum(parts)
    difference = float(second.mean() - first.mean())
    spread = sum(
        part**2 / (len(values) - 1) for part, values in zip(parts, (first, second), strict=True)
    )
    freedom = variance**2 / spread if spread > 0 else float(len(first) + len(second) - 2)
    return _interval(difference, math.sqrt(variance), freedom)


class _NoFitError(Exception):
    """A model that the values do not determine; the text is a remark."""


def _mixed(x: Float64, y: Float64, member: Int64, grid: Float64, random_slope: bool) -> LineFit:
    """Linear mixed model, restricted maximum likelihood.

    N. M. Laird and J. H. Ware, "Random-effects models for longitudinal data", Biometrics 38
    (1982). Intervals use Student's t with as many degrees of freedom as there are participants,
    less one, for a random slope: few participants must not look like many.
    """
    name = "a random slope" if random_slope else "a random intercept"
    try:
        from statsmodels.regression.mixed_linear_model import MixedLM
    except ImportError as error:
        raise _NoFitError("statsmodels is not installed: no mixed model was fitted") from error
    centre, scale_x, scale_y = float(x.mean()), float(x.std()), float(y.std())
    design = np.column_stack([np.ones_like(x), (x - centre) / scale_x])
    with warnings.catch_warnings():
        # What they say is read from the fit itself and told in remarks.
        warnings.simplefilter("ignore")
        try:
            fit = MixedLM(
                (y - y.mean()) / scale_y,
                design,
                member,
                exog_re=design if random_slope else design[:, :1],
            ).fit(reml=True, method=["lbfgs", "bfgs", "powell"])
            line = np.asarray(fit.fe_params, dtype=np.float64)
            covariance = np.asarray(fit.cov_params(), dtype=np.float64)[:2, :2]
            between = np.asarray(fit.cov_re, dtype=np.float64) / float(fit.scale)
        except (np.linalg.LinAlgError, ValueError, FloatingPointError, ZeroDivisionError) as error:
            raise _NoFitError(f"a mixed model with {name} has no solution here") from error
    if not (fit.converged and np.isfinite(covariance).all() and (np.diag(covariance) > 0).all()):
        raise _NoFitError(f"a mixed model with {name} did not converge")
    smallest = float(np.linalg.eigvalsh(between).min())
    if random_slope and smallest < _SINGULAR:
        raise _NoFitError(
            "the participants' slopes do not differ measurably: no random slope was fitted"
        )
    remarks: tuple[str, ...] = ()
    if not random_slope and smallest < _SINGULAR:
        remarks = ("the participants' levels do not differ measurably",)
    count = int(member.max()) + 1
    freedom = count - 1 if random_slope else max(len(x) - count - 1, 1)
    at = np.column_stack([np.ones_like(grid), (grid - centre) / scale_x])
    mean = at @ line * scale_y + float(y.mean())
    error_of_mean = np.sqrt(np.einsum("ki,ij,kj->k", at, covariance, at)) * scale_y
    slope = _interval(
        float(line[1]) * scale_y / scale_x,
        math.sqrt(covariance[1, 1]) * scale_y / scale_x,
        freedom,
    )
    half = _quantile(freedom) * error_of_mean
    method = "mixed-slope" if random_slope else "mixed-intercept"
    return LineFit(method, mean, mean - half, mean + half, *slope, remarks)


def _regression(x: Float64, y: Float64, member: Int64, grid: Float64) -> LineFit:
    """Least squares with one slope and an intercept for each participant."""
    count = int(member.max()) + 1
    levels = (member[:, None] == np.arange(count)).astype(np.float64)
    design = np.column_stack([levels, x - x.mean()])
    solution, _, rank, _ = np.linalg.lstsq(design, y, rcond=None)
    freedom = len(y) - int(rank)
    residual = y - design @ solution
    variance = float(residual @ residual) / freedom if freedom > 0 else math.nan
    covariance = np.linalg.pinv(design.T @ design) * variance
    # The line stands for the average of these participants.
    at = np.column_stack([np.full((len(grid), count), 1.0 / count), grid - x.mean()])
    mean = at @ solution
    error = np.sqrt(np.maximum(np.einsum("ki,ij,kj->k", at, covariance, at), 0.0))
    half = _quantile(freedom) * error
    slope = _interval(float(solution[-1]), math.sqrt(max(covariance[-1, -1], 0.0)), freedom)
    remarks = () if freedom > 0 else ("too few values for a confidence band",)
    return LineFit("regression", mean, mean - half, mean + half, *slope, remarks)


def _participant_slopes(x: Float64, y: Float64, member: Int64, grid: Float64) -> LineFit:
    """Mean of one line for each participant: needs no model of how they differ."""
    slopes, lines = [], []
    for index in range(int(member.max()) + 1):
        own = member == index
        if len(np.unique(x[own])) < 2:
            continue
        slope, level = np.polyfit(x[own] - x[own].mean(), y[own], 1)
        slopes.append(float(slope))
        lines.append(level + slope * (grid - x[own].mean()))
    freedom = len(slopes) - 1
    curves = np.array(lines)
    mean = curves.mean(axis=0)
    half = _quantile(freedom) * curves.std(axis=0, ddof=1) / math.sqrt(len(slopes))
    error = float(np.std(slopes, ddof=1)) / math.sqrt(len(slopes))
    slope = _interval(float(np.mean(slopes)), error, freedom)
    return LineFit("participant-slopes", mean, mean - half, mean + half, *slope)


def _constant(value: float, grid: Float64) -> LineFit:
    flat = np.full(len(grid), value)
    remark = "all values are the same: nothing to fit"
    return LineFit("regression", flat, flat, flat, 0.0, 0.0, 0.0, 1.0, (remark,))


def _remark(fit: LineFit, text: str) -> LineFit:
    return replace(fit, remarks=(*fit.remarks, text))


def _interval(estimate: float, error: float, freedom: float) -> tuple[float, float, float, float]:
    """The estimate with its 95 % limits and two-sided p value."""
    if not freedom > 0 or not math.isfinite(error):
        return estimate, math.nan, math.nan, math.nan
    half = _quantile(freedom) * error
    if error == 0:
        return estimate, estimate, estimate, 1.0 if estimate == 0 else 0.0
    from scipy.special import stdtr

    p_value = 2.0 * float(stdtr(freedom, -abs(estimate) / error))
    return estimate, estimate - half, estimate + half, p_value


def _quantile(freedom: float) -> float:
    """Student's t that 97.5 % lie below."""
    if not freedom > 0:
        return math.nan
    from scipy.special import stdtrit

    return float(stdtrit(freedom, 0.975))
