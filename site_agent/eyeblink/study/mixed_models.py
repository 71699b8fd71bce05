"""Mixed models and generalised estimating equations of the trials of a study.

Trials of one animal, and of one session, resemble one another, so that they count for fewer in a
model with effects of the animal. Estimating equations are those of statsmodels (extra ``[study]``).
Mixed models are here, as lme4's ``lmer`` and ``glmer`` make them, by restricted likelihood and by
Laplace's approximation (D. Bates, M. Maechler, B. Bolker and S. Walker, "Fitting linear
mixed-effects models using lme4", Journal of Statistical Software 67, 2015): statsmodels has no
logistic one by likelihood, and its linear one reports convergence far from the maximum.
"""

import math
import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import numpy as np
from scipy.optimize import minimize
from scipy.special import expit, gammaln
from scipy.stats import norm

from site_agent.errors import ConditioningError, MissingExtraError
from site_agent.eyeblink.records import Float64, Int64
from site_agent.eyeblink.study.study_trials import StudyTrials

try:
    import statsmodels.api as models
    from statsmodels.tools.numdiff import approx_hess
except ImportError as error:
    raise MissingExtraError("statsmodels", "study") from error


_ROUNDING = 1e-18
# Chances of 6 in a million: so rare or certain is a CR in no study that has seen both.
_MOST_LOG_ODDS = 12.0


@dataclass(frozen=True)
class Term:
    """A coefficient of a model, or the SD of an effect that differs from animal to animal."""

    model: str
    term: str
    estimate: float
    standard_error: float = math.nan
    low: float = math.nan
    high: float = math.nan
    p_value: float = math.nan
    n_trials: int = 0
    n_participants: int = 0


@dataclass(frozen=True, eq=False)
class Fit:
    """Coefficients, their covariance, and the covariance of the animals' own effects."""

    values: Float64
    covariance: Float64
    effects: Float64
    """Of shape (q, q), in the order of the random terms; empty for estimating equations."""
    residual_sd: float = math.nan
    session_sd: float = math.nan
    log_likelihood: float = math.nan


def fit_linear(
    y: Float64, design: Float64, animal: Int64, varying: Float64, session: Int64 | None = None
) -> Fit:
    """Fit a linear mixed model by restricted likelihood.

    `design`, shape (n, p): the columns of the coefficients; `varying`, shape (n, q): those of the
    effects that each animal has of its own. `session`: numbers of sessions, which have levels of
    their own within the animal. Raises `ConditioningError` where trials do not differ.
    """
    deviance = RestrictedDeviance(y, design, animal, varying, session)
    rows, columns = np.tril_indices(deviance.effects)
    spreads = np.append(rows == columns, [True] * (session is not None))
    # Differences of sums of squares leave no more digits.
    if deviance.solve(spreads * 0.0)[2] <= 1e-12 * float(np.mean(y**2)):
        raise ConditioningError("its terms leave nothing of the trials unexplained")
    bounds = [(0.0, None) if spread else (None, None) for spread in spreads]
    # The deviance may have more than one minimum where few animals are alike.
    tried = [
        minimize(deviance, spreads * start, method="L-BFGS-B", bounds=bounds)
        for start in (0.1, 1.0, 5.0)
    ]
    best = min(tried, key=lambda optimum: float(optimum.fun))
    options = {"xatol": 1e-7, "fatol": 1e-9, "maxiter": 2000}
    best = minimize(deviance, best.x, method="Nelder-Mead", bounds=bounds, options=options)
    if not math.isfinite(best.fun):
        raise ConditioningError("its likelihood has no maximum that can be found")
    values, information, variance = deviance.solve(best.x)[:3]
    factor = _lower_triangle(best.x, deviance.effects)
    covariance = variance * np.linalg.inv(information)
    return Fit(
        values,
        covariance.astype(np.float64),
        variance * factor @ factor.T,
        math.sqrt(variance),
        math.nan if session is None else math.sqrt(variance) * float(best.x[-1]),
        -float(best.fun) / 2.0,
    )


class RestrictedDeviance:
    """Minus twice the restricted log-likelihood of a linear mixed model.

    Called with the lower triangle of the Cholesky factor of the animals' covariance, row by row,
    and the SD of the sessions' levels if there are sessions; all by the SD of a trial, which has
    its best value, as the coefficients do (Bates and others, section 3.4). The arguments are those
    of `fit_linear`.
    """

    def __init__(
        self, y: Float64, design: Float64, animal: Int64, varying: Float64, session: Int64 | None
    ) -> None:
        self.count, self.effects = design.shape[1], varying.shape[1]
        self.spare = len(y) - self.count
        # Products of each animal's columns: of all trials, no more is needed.
        self.products = []
        for one in np.unique(animal):
            trials = animal == one
            columns = [varying[trials]]
            if session is not None:
                columns.append((session[trials, None] == np.unique(session[trials])) * 1.0)
            everything = np.column_stack([*columns, design[trials], y[trials]])
            self.products.append(everything.T @ everything)

    def __call__(self, spreads: Float64) -> float:
        _, information, variance, log_bends = self.solve(spreads)
        if not variance > 0:
            return math.inf
        log_size = float(np.linalg.slogdet(information)[1])
        of_trials = self.spare * (1.0 + math.log(2.0 * math.pi * variance))
        return float(log_bends + log_size + of_trials)

    def solve(self, spreads: Float64) -> tuple[Float64, Float64, float, float]:
        """Return coefficients, their information, a trial's variance, and the effects' log size."""
        effects, rest = self.effects, self.count + 1
        factor = _lower_triangle(spreads, effects)
        left, log_bends = np.zeros((rest, rest)), 0.0
        for products in self.products:
            scale = np.eye(len(products) - rest) * spreads[-1]
            scale[:effects, :effects] = factor
            size = len(scale)
            bend = scale.T @ products[:size, :size] @ scale + np.eye(size)
            shared = scale.T @ products[:size, size:]
            left += products[size:, size:] - shared.T @ np.linalg.solve(bend, shared)
            log_bends += float(np.linalg.slogdet(bend)[1])
        information, towards = left[:-1, :-1], left[:-1, -1]
        values = np.linalg.solve(information, towards)
        return values, information, float(left[-1, -1] - towards @ values) / self.spare, log_bends


class LaplaceDeviance:
    """Minus twice the log-likelihood of a logistic mixed model, by Laplace's approximation.

    Called with the coefficients of `design` and the lower triangle of the Cholesky factor of the
    animals' covariance, row by row. `design`, `animal` and `varying` are those of `fit_linear`.
    """

    def __init__(
        self, hits: Float64, of: Float64, design: Float64, animal: Int64, varying: Float64
    ) -> None:
        self.hits, self.of, self.design, self.varying = hits, of, design, varying
        names, self.member = np.unique(animal, return_inverse=True)
        self.membership = (np.arange(len(names))[:, None] == self.member).astype(np.float64)
        self.constant = float((gammaln(of + 1) - gammaln(hits + 1) - gammaln(of - hits + 1)).sum())
        self.modes = np.zeros((len(names), varying.shape[1]))
        self.lower = np.tril_indices(varying.shape[1])

    def __call__(self, parameters: Float64) -> float:
        p, member, modes = self.design.shape[1], self.member, np.nan_to_num(self.modes)
        fixed, scaled = self.design @ parameters[:p], self.varying @ self.factor(parameters)

        def height(at: Float64) -> float:
            eta = fixed + (scaled * at[member]).sum(axis=1)
            kernel = (self.hits * eta - self.of * np.logaddexp(0.0, eta)).sum()
            return float(0.5 * (at**2).sum() - kernel)

        for _ in range(100):
            chance = expit(fixed + (scaled * modes[member]).sum(axis=1))
            slope = self._by_animal((self.hits - self.of * chance)[:, None] * scaled) - modes
            weight = self.of * chance * (1.0 - chance)
            bend = self._by_animal(weight[:, None, None] * scaled[:, :, None] * scaled[:, None, :])
            bend += np.eye(len(scaled.T))
            step, size = np.linalg.solve(bend, slope[..., None])[..., 0], 1.0
            # So close that `bend` is that of the mode, or derivatives would be of noise.
            if np.abs(step).max() < 1e-11:
                break
            most = height(modes)
            most += 1e-12 * (1.0 + abs(most))
            while height(modes + size * step) > most and size > 1e-4:
                size /= 2.0
            modes = modes + size * step
        self.modes = modes
        log_bends = float(np.linalg.slogdet(bend)[1].sum())
        return 2.0 * height(modes) + log_bends - 2.0 * self.constant

    def factor(self, parameters: Float64) -> Float64:
        """Return the Cholesky factor of the animals' covariance, shape (q, q)."""
        return _lower_triangle(parameters[self.design.shape[1] :], len(self.varying.T))

    def slopes(self, at: Float64) -> Float64:
        """Return the derivatives, by central differences of the fourth order."""
        step = 2e-3
        shifts = np.eye(len(at)) * step
        return np.array(
            [
                (8.0 * (self(at + one) - self(at - one)) - self(at + 2 * one) + self(at - 2 * one))
                / (12.0 * step)
                for one in shifts
            ]
        )

    def bends(self, at: Float64) -> Float64:
        """Return the second derivatives, shape (parameters, parameters)."""
        bends: Float64 = np.asarray(approx_hess(at, self, epsilon=5e-4))
        return bends

    def _by_animal(self, values: Float64) -> Float64:
        flat: Float64 = self.membership @ values.reshape(len(values), -1)
        return flat.reshape(-1, *values.shape[1:])


def _lower_triangle(entries: Float64, size: int) -> Float64:
    """Return a matrix with its lower triangle row by row; further entries are not read."""
    matrix = np.zeros((size, size))
    rows, columns = np.tril_indices(size)
    matrix[rows, columns] = entries[: len(rows)]
    return matrix


def fit_binomial(
    hits: Float64, of: Float64, design: Float64, animal: Int64, varying: Float64
) -> Fit:
    """Fit a logistic mixed model of counts by Laplace's approximation of the likelihood.

    Raises `ConditioningError` where no finite coefficients fit best.
    """
    deviance, p = LaplaceDeviance(hits, of, design, animal, varying), design.shape[1]
    rate = np.clip(hits.sum() / of.sum(), 0.01, 0.99)
    start = np.zeros(p + len(deviance.lower[0]))
    start[0] = math.log(rate / (1.0 - rate))
    start[p:][deviance.lower[0] == deviance.lower[1]] = 0.5
    optimum = minimize(deviance, start, jac=deviance.slopes, method="BFGS", options={"gtol": 1e-5})
    _require_finite(design @ optimum.x[:p])
    bend = deviance.bends(optimum.x) / 2.0
    factor = deviance.factor(optimum.x)
    return Fit(
        optimum.x[:p],
        np.linalg.pinv(bend)[:p, :p].astype(np.float64),
        factor @ factor.T,
        log_likelihood=-float(optimum.fun) / 2.0,
    )


def fit_estimating_equations(hits: Float64, of: Float64, design: Float64, animal: Int64) -> Fit:
    """Fit logistic estimating equations: exchangeable trials, sandwich over the animals.

    Raises `ConditioningError` where no finite coefficients fit best.
    """
    trial_row = np.repeat(np.arange(len(hits)), of.astype(np.int64))
    starts = np.concatenate([[0], np.cumsum(of)[:-1]]).astype(np.int64)
    y = (np.arange(len(trial_row)) - starts[trial_row] < hits[trial_row]).astype(np.float64)
    with warnings.catch_warnings():
        # Of separation, which is looked for below.
        warnings.simplefilter("ignore")
        fitted = models.GEE(
            y,
            design[trial_row],
            groups=animal[trial_row],
            family=models.families.Binomial(),
            cov_struct=models.cov_struct.Exchangeable(),
        ).fit()
    if not fitted.converged:
        raise ConditioningError("their solution does not converge")
    _require_finite(design @ np.asarray(fitted.params))
    return Fit(np.asarray(fitted.params), np.asarray(fitted.cov_params()), np.zeros((0, 0)))


def _require_finite(log_odds: Float64) -> None:
    """Refuse coefficients that grow without end; their errors would look small."""
    if not np.abs(log_odds).max() < _MOST_LOG_ODDS:
        raise ConditioningError(
            "all trials of a group or session have CRs, or none have, so that no finite log odds "
            "fit best; compare the shares of trials with CRs"
        )


def model_terms(trials: StudyTrials) -> tuple[tuple[Term, ...], tuple[str, ...]]:
    """Fit all models; return their terms, and why models are left out.

    Sessions are counted from the first, and coefficients are per session.
    """
    animals = len(np.unique(trials.participant))
    if not trials.can_be_modelled:
        raise ConditioningError(
            f"mixed models need three participants and two sessions, found {animals} participants"
        )
    design, names = _design(trials)
    if np.linalg.matrix_rank(design) < len(names):
        raise ConditioningError("mixed models need two sessions of each group")
    varying = design[:, :2]
    labels = np.column_stack([trials.participant, trials.session, design[:, 2:]])
    cells = np.unique(labels, axis=0, return_inverse=True)[1].ravel()
    first = np.unique(cells, return_index=True)[1]
    hits = np.bincount(cells, weights=trials.cr).astype(np.float64)
    of = np.bincount(cells).astype(np.float64)
    animal, known = trials.participant, np.isfinite(trials.amplitude)
    fits: dict[str, Callable[[], Fit]] = {
        "amplitude, linear mixed (FEC)": lambda: fit_linear(
            trials.amplitude[known], design[known], animal[known], varying[known], cells[known]
        ),
        "CR, logistic mixed (log odds)": lambda: fit_binomial(
            hits, of, design[first], animal[first], varying[first]
        ),
        "CR, estimating equations (log odds)": lambda: fit_estimating_equations(
            hits, of, design[first], animal[first]
        ),
    }
    terms, left_out = [], []
    for model, fit in fits.items():
        try:
            terms += terms_of(model, names, fit())
        except ConditioningError as error:
            left_out.append(f"no model {model}: {error}")
    counted = [replace(term, n_trials=len(trials.cr), n_participants=animals) for term in terms]
    return tuple(counted), tuple(left_out)


def _design(trials: StudyTrials) -> tuple[Float64, list[str]]:
    since = trials.session - trials.session.min()
    columns, names = [np.ones(len(since)), since], ["intercept", "session"]
    groups = np.array(trials.group)
    for group in sorted(set(trials.group))[1:]:
        columns += [(groups == group) * 1.0, (groups == group) * since]
        names += [f"group {group}", f"session x group {group}"]
    return np.column_stack(columns), names


def terms_of(model: str, names: Sequence[str], fit: Fit) -> list[Term]:
    """Return the coefficients with intervals by the normal distribution, and SDs of effects."""
    variances = np.diag(fit.covariance)
    # Where few participants do not tell the terms apart, or are all alike, they have none.
    errors = np.sqrt(np.where(variances > _ROUNDING, variances, np.nan))
    p_values = 2.0 * norm.sf(np.abs(fit.values) / errors)
    terms = [
        Term(model, name, value, error, value - 1.96 * error, value + 1.96 * error, p_value)
        for name, value, error, p_value in zip(
            names, *(column.tolist() for column in (fit.values, errors, p_values)), strict=True
        )
    ]
    spreads = [
        *zip(("intercept", "session"), np.sqrt(np.diag(fit.effects)).tolist(), strict=False),
        ("session's level", fit.session_sd),
        ("trial", fit.residual_sd),
    ]
    return terms + [Term(model, f"SD of {name}", sd) for name, sd in spreads if math.isfinite(sd)]
