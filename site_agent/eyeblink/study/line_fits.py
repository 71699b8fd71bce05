"""Straight lines through the values of several participants: the door to statsmodels."""

from __future__ import annotations

import math
import warnings
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

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
