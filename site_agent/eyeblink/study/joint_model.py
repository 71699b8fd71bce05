"""Models of the trials of several labs, fitted to sums over the labs.

Each lab has an intercept of its own in the pooled model. At shared coefficients a lab solves its
intercept for itself and gives the derivatives of its *profile* likelihood. Their sums over labs
are those of the pooled profile likelihood, so Newton's steps on the sums end in the pooled fit
(for the logistic model: iteratively reweighted least squares). The clusters of the sandwich are the
animals: their scores are those of the shared coefficients given the intercept (the efficient
scores), so the sandwich is that of the pooled model, too.

`joint_fit` asks for one sum after another; `answer_question` is a lab's summand. Every lab makes
the same steps from the same sums, to the last bit: with plain additions and products in one order.
"""

import math
from collections.abc import Generator, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Literal, SupportsFloat

import numpy as np
from pydantic import BaseModel, ConfigDict, Field, model_validator
from scipy.optimize import brentq, minimize_scalar
from scipy.special import expit

from site_agent.errors import ConditioningError
from site_agent.eyeblink.records import Float64, Int64
from site_agent.eyeblink.study.mixed_models import LaplaceDeviance
from site_agent.eyeblink.study.study_trials import StudyTrials
from site_agent.wording import count_words

Model = Literal["meta-analysis", "logistic", "mixed"]
Numbers = Mapping[str, float]
AS_LISTED = "as-listed"
_SPREADS = ("level", "level x slope", "slope")
"""Lower triangle of the Cholesky factor of the animals' covariance, row by row."""
_FIRST_SPREAD = (0.5, 0.0, 0.5)
_SMALLEST_STEP = 1e-7
_MOST_ROUNDS = 25
_LONGEST_STEP = 2.0


class JointDesign(BaseModel):
    """The design, criterion and models of a joint study, on which the labs agree in a charter."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    models: Annotated[tuple[Model, ...], Field(min_length=1)] = ("logistic", "mixed")
    """``meta-analysis`` shows each lab's own estimates to all labs; the others show sums only."""
    criterion: str = "fec:0.1"
    """As ``poolctl blink compare-criteria`` takes it, from the default settings; ``as-listed``
    takes a table of trials with CRs by any other judgement."""
    sessions: tuple[float, float] = (1.0, 10.0)
    """First and last session; others are left out. Intercepts are those of the first."""
    groups: tuple[str, ...] = ()
    """The first is the one with which the others are compared."""
    least_animals: int = Field(default=5, ge=3)
    """A lab with fewer animals takes no part."""

    @model_validator(mode="after")
    def _check(self) -> "JointDesign":
        if not self.sessions[0] < self.sessions[1]:
            raise ValueError(f"sessions: found {self.sessions}, expected first < last")
        if len(self.groups) == 1 or len(set(self.groups)) < len(self.groups):
            raise ValueError(f"groups: found {self.groups}, expected none, or several that differ")
        return self

    @property
    def terms(self) -> tuple[str, ...]:
        """The names of the shared coefficients."""
        others = self.groups[1:]
        crossed = (f"session x group {group}" for group in others)
        return ("session", *(f"group {group}" for group in others), *crossed)

    @property
    def span(self) -> float:
        """Sessions for one unit of the design's column of sessions."""
        return self.sessions[1] - self.sessions[0]


@dataclass(frozen=True, eq=False)
class LabTrials:
    """The trials of one lab, counted in cells of animal and session."""

    hits: Float64
    of: Float64
    """Trials with a CR, and all trials."""
    design: Float64
    """Shape (cells, terms), without the intercept."""
    animal: Int64
    names: tuple[str, ...]
    """The animals; `animal` has their numbers."""
    sessions: tuple[float, float]
    """First and last session of these trials."""
    outside: int
    """Trials of sessions that the design leaves out."""

    @classmethod
    def count(cls, trials: StudyTrials, design: JointDesign) -> "LabTrials":
        """Count the trials of a design; raise `ConditioningError` where they do not fit it."""
        first, last = design.sessions
        used = (trials.session >= first) & (trials.session <= last)
        groups = np.array(trials.group, dtype=object)[used]
        if design.groups and (other := sorted(set(groups) - set(design.groups))):
            raise ConditioningError(
                f"found trials of the group {other[0]!r}, expected {', '.join(design.groups)}"
            )
        since = (trials.session[used] - first) / design.span
        shown = [(groups == group) * 1.0 for group in design.groups[1:]]
        columns = np.column_stack([since, *shown, *(column * since for column in shown)])
        labels = np.column_stack([trials.participant[used], columns])
        cells, cell = np.unique(labels, axis=0, return_inverse=True)
        hits = np.bincount(cell.ravel(), weights=trials.cr[used], minlength=len(cells))
        animals, animal = np.unique(cells[:, 0], return_inverse=True)
        if len(animals) < design.least_animals:
            raise ConditioningError(
                f"found {count_words(len(animals), 'animal')}, and the study asks for at least "
                f"{design.least_animals} in each lab: sums of fewer would show single ones"
            )
        of = np.bincount(cell.ravel()).astype(np.float64)
        if not 0 < hits.sum() < of.sum():
            raise ConditioningError(
                f"found CRs in {hits.sum():g} of {of.sum():g} trials: with none or all, the lab's "
                "own intercept is infinite, and it has no say about the coefficients"
            )
        names = tuple(trials.names[int(number)] for number in animals)
        sessions = float(trials.session[used].min()), float(trials.session[used].max())
        counted, outside = hits.astype(np.float64), int((~used).sum())
        return cls(counted, of, cells[:, 1:], animal, names, sessions, outside)


@dataclass(frozen=True)
class Question:
    """A sum that the labs are asked for: statistics of a model at shared coefficients."""

    kind: Literal["meta-analysis", "start", "logistic", "mixed"]
    point: tuple[float, ...] = ()


@dataclass(frozen=True)
class Estimate:
    """A coefficient of a joint model, for one session where it is of sessions."""

    model: str
    term: str
    estimate: float
    standard_error: float
    lab: str = ""
    """Empty for all labs together."""

    @property
    def interval(self) -> tuple[float, float]:
        """The limits of 95 % by the normal distribution; NaN where all animals are alike."""
        error = self.standard_error if self.standard_error > 1e-9 else math.nan
        half = 1.959963984540054 * error
        return self.estimate - half, self.estimate + half


@dataclass(frozen=True)
class JointResults:
    """The results of a joint study, the same at every lab."""

    estimates: tuple[Estimate, ...]
    rounds: Mapping[str, int]
    """Sums by model."""
    log_likelihoods: Mapping[str, float]
    trials: int
    animals: int


def list_numbers(kind: str, design: JointDesign, labs: Sequence[str]) -> dict[str, int]:
    """Return the names of the numbers of a sum, and the bits of their magnitudes."""
    terms = design.terms
    if kind == "meta-analysis":
        slots = [f"{what} {term}" for what in ("effect", "variance") for term in terms]
        return {f"{slot} of {lab}": 10 for lab in labs for slot in slots}
    if kind == "start":
        counts = {"trials": 24, "animals": 24}
        return counts | _named("score", terms, 24) | _paired("information", terms, 20)
    if kind == "mixed":
        terms = (*terms, *_SPREADS)
        numbers = {"log-likelihood": 24} | _named("score", terms, 22)
        return numbers | _paired("information", terms, 24)
    numbers = {"log-likelihood": 24} | _named("score", terms, 20)
    return numbers | _paired("information", terms, 20) | _paired("sandwich", terms, 32)


def answer_question(
    question: Question, trials: LabTrials, design: JointDesign, lab: str, labs: Sequence[str]
) -> dict[str, float]:
    """Return a lab's summands of the numbers of a question."""
    names = list_numbers(question.kind, design, labs)
    if question.kind == "mixed":
        log_likelihood, score, information = _differentiate_mixed(trials, np.array(question.point))
        values = [log_likelihood, *score, *_triangle(information)]
        return _name(names, values)
    if question.kind == "logistic":
        made = _differentiate_logistic(trials, np.array(question.point))
        values = [made.log_likelihood, *made.score]
        values += [*_triangle(made.information), *_triangle(made.sandwich)]
        return _name(names, values)
    alone, made = fit_alone(trials)
    if question.kind == "start":
        weighted = made.information @ alone
        counts = [trials.of.sum(), len(trials.names)]
        return _name(names, [*counts, *weighted, *_triangle(made.information)])
    variances = _robust_variances(made)
    slots = list_numbers(question.kind, design, [lab])
    return dict.fromkeys(names, 0.0) | _name(slots, [*alone, *variances])


def fit_alone(trials: LabTrials) -> "tuple[Float64, LogisticStatistics]":
    """Return the coefficients of the logistic model of one lab's trials, and its statistics."""
    point = np.zeros(trials.design.shape[1])
    for _ in range(_MOST_ROUNDS):
        made = _differentiate_logistic(trials, point)
        inverse = np.linalg.pinv(made.information, rcond=1e-9, hermitian=True)
        step = inverse @ made.score
        step *= min(1.0, _LONGEST_STEP / max(np.abs(step).max(), 1e-300))
        point = point + step
        if np.abs(step).max() < _SMALLEST_STEP:
            return point, made
    raise ConditioningError(
        "this lab's trials have no logistic fit of their own: in some group or session all trials "
        "hold a CR, or none does"
    )


def estimate_alone(trials: LabTrials, design: JointDesign, lab: str) -> list[Estimate]:
    """Return the coefficients that one lab's trials give."""
    alone, made = fit_alone(trials)
    values = zip(design.terms, alone.tolist(), _robust_variances(made).tolist(), strict=True)
    return [
        _for_a_session(Estimate("alone", term, value, math.sqrt(variance), lab), design)
        for term, value, variance in values
        if variance > 0
    ]


def _robust_variances(made: "LogisticStatistics") -> Float64:
    inverse = np.linalg.pinv(made.information, rcond=1e-9, hermitian=True)
    variances: Float64 = np.diag(inverse @ made.sandwich @ inverse).copy()
    # A lab with one group alone knows nothing of the others: its variance of them is 0.
    variances[np.diag(made.information @ inverse) < 1.0 - 1e-6] = 0.0
    return variances


def joint_fit(
    design: JointDesign, labs: Sequence[str]
) -> Generator[Question, Numbers, JointResults]:
    """Ask for sums, and return the models fitted to them.

    Raises `ConditioningError` where the sums have no fit.
    """
    estimates: list[Estimate] = []
    rounds: dict[str, int] = {}
    log_likelihoods: dict[str, float] = {}
    trials = animals = 0
    point: tuple[float, ...] = ()
    if "meta-analysis" in design.models:
        numbers = yield Question("meta-analysis")
        rounds["meta-analysis"] = 1
        estimates += _combine_effects(numbers, design, labs)
    if {"logistic", "mixed"} & set(design.models):
        numbers = yield Question("start")
        trials, animals = round(numbers["trials"]), round(numbers["animals"])
        point = tuple(_solve("logistic", numbers, design.terms))
        point, numbers, rounds["logistic"] = yield from _climb("logistic", point, design.terms)
        log_likelihoods["logistic"] = numbers["log-likelihood"]
        estimates += _read_estimates("logistic", design, point, numbers)
    if "mixed" in design.models:
        further = (*design.terms, *_SPREADS)
        climbed = yield from _climb("mixed", (*point, *_FIRST_SPREAD), further)
        point, numbers, rounds["mixed"] = climbed
        log_likelihoods["mixed"] = numbers["log-likelihood"]
        estimates += _read_estimates("mixed", design, point, numbers)
    return JointResults(tuple(estimates), rounds, log_likelihoods, trials, animals)


@dataclass(frozen=True, eq=False)
class LogisticStatistics:
    """Derivatives of the profile likelihood of a lab at shared coefficients."""

    log_likelihood: float
    score: Float64
    information: Float64
    sandwich: Float64
    """The sum over animals of their scores' products."""


def _differentiate_logistic(trials: LabTrials, point: Float64) -> LogisticStatistics:
    fixed = trials.design @ point
    intercept = _solve_intercept(trials, fixed)
    eta = fixed + intercept
    chance = expit(eta)
    weight = trials.of * chance * (1.0 - chance)
    centred = trials.design - weight @ trials.design / weight.sum()
    rest = (trials.hits - trials.of * chance)[:, None] * centred
    members = (np.arange(len(trials.names))[:, None] == trials.animal).astype(np.float64)
    by_animal = members @ rest
    return LogisticStatistics(
        float((trials.hits * eta - trials.of * np.logaddexp(0.0, eta)).sum()),
        rest.sum(axis=0),
        centred.T @ (weight[:, None] * centred),
        by_animal.T @ by_animal,
    )


def _solve_intercept(trials: LabTrials, fixed: Float64) -> float:
    far = 50.0 + float(np.abs(fixed).max())
    return float(
        brentq(
            lambda at: float((trials.hits - trials.of * expit(fixed + at)).sum()),
            -far,
            far,
            xtol=1e-13,
        )
    )


def _differentiate_mixed(trials: LabTrials, point: Float64) -> tuple[float, Float64, Float64]:
    """Return log-likelihood, score and information with the lab's own intercept profiled out."""
    ones = np.ones((len(trials.of), 1))
    design = np.column_stack([ones, trials.design])
    deviance = LaplaceDeviance(trials.hits, trials.of, design, trials.animal, design[:, :2])
    near = _solve_intercept(trials, trials.design @ point[: trials.design.shape[1]])
    intercept = minimize_scalar(
        lambda at: deviance(np.array([at, *point])), (near - 0.5, near + 0.5), tol=1e-10
    ).x
    at = np.array([intercept, *point])
    score, information = deviance.slopes(at) / -2.0, deviance.bends(at) / 2.0
    # The intercept has a small score left: one more step takes it off.
    share = information[0, 1:] / information[0, 0]
    rise = float(score[0] ** 2 / information[0, 0]) / 2.0
    # The number of ways in which trials of a cell can hold their CRs is no part of it, as in the
    # logistic model.
    log_likelihood = deviance(at) / -2.0 + rise - deviance.constant
    return (
        log_likelihood,
        score[1:] - share * score[0],
        information[1:, 1:] - np.outer(share, information[0, 1:]),
    )


def _climb(
    model: Literal["logistic", "mixed"], point: tuple[float, ...], terms: Sequence[str]
) -> Generator[Question, Numbers, tuple[tuple[float, ...], Numbers, int]]:
    """Climb to the maximum of the summed likelihood by Newton's steps."""
    best: tuple[tuple[float, ...], Numbers] | None = None
    for round_ in range(1, _MOST_ROUNDS + 1):
        numbers = yield Question(model, point)
        if best is not None and numbers["log-likelihood"] < best[1]["log-likelihood"] - 1e-6:
            point = tuple((a + b) / 2.0 for a, b in zip(best[0], point, strict=True))
            continue
        step = _solve(model, numbers, terms)
        longest = max(map(abs, step))
        if longest > _LONGEST_STEP:
            step = [value * _LONGEST_STEP / longest for value in step]
        best = point, numbers
        point = tuple(a + b for a, b in zip(point, step, strict=True))
        if longest < _SMALLEST_STEP:
            return point, numbers, round_
    raise ConditioningError(f"the {model} model has no maximum after {_MOST_ROUNDS} sums")


def _read_estimates(
    model: Literal["logistic", "mixed"],
    design: JointDesign,
    point: Sequence[float],
    numbers: Numbers,
) -> list[Estimate]:
    terms = design.terms if model == "logistic" else (*design.terms, *_SPREADS)
    inverse = np.linalg.inv(_square(numbers, "information", terms))
    covariance = inverse
    if model == "logistic":
        covariance = inverse @ _square(numbers, "sandwich", terms) @ inverse
    errors = np.sqrt(np.diag(covariance)).tolist()
    estimates = [
        _for_a_session(Estimate(model, *values), design)
        for values in zip(design.terms, point, errors, strict=False)
    ]
    if model == "mixed":
        level, both, slope = point[-3:]
        spreads = {"SD of level": abs(level), "SD of session": math.hypot(both, slope)}
        estimates += [
            _for_a_session(Estimate(model, *item, math.nan), design) for item in spreads.items()
        ]
    return estimates


def _for_a_session(estimate: Estimate, design: JointDesign) -> Estimate:
    """Return an estimate in units of one session, where it is of sessions."""
    unit = design.span if "session" in estimate.term.removeprefix("SD of ").split(" x ") else 1.0
    return Estimate(
        estimate.model,
        estimate.term,
        estimate.estimate / unit,
        estimate.standard_error / unit,
        estimate.lab,
    )


def _combine_effects(numbers: Numbers, design: JointDesign, labs: Sequence[str]) -> list[Estimate]:
    """Return each lab's estimates, and their fixed- and random-effects meta-analyses.

    The variance between labs is that of R. DerSimonian and N. Laird, "Meta-analysis in clinical
    trials", Controlled Clinical Trials 7, 1986.
    """
    estimates = []
    for term in design.terms:
        known = [lab for lab in labs if numbers[f"variance {term} of {lab}"] > 0]
        if len(known) < 2:
            continue
        effects = np.array([numbers[f"effect {term} of {lab}"] for lab in known])
        variances = np.array([numbers[f"variance {term} of {lab}"] for lab in known])
        estimates += [
            Estimate("alone", term, float(effect), float(error), lab)
            for effect, error, lab in zip(effects, np.sqrt(variances), known, strict=True)
        ]
        weights = 1.0 / variances
        fixed = weights @ effects / weights.sum()
        spare = weights @ (effects - fixed) ** 2 - (len(known) - 1)
        between = max(0.0, spare / (weights.sum() - (weights**2).sum() / weights.sum()))
        for kind, weight in (("fixed", weights), ("random", 1.0 / (variances + between))):
            mean, error = weight @ effects / weight.sum(), weight.sum() ** -0.5
            estimates.append(Estimate(f"{kind} effects", term, float(mean), float(error)))
    return [_for_a_session(estimate, design) for estimate in estimates]


def _name(names: Iterable[str], values: Iterable[SupportsFloat]) -> dict[str, float]:
    return dict(zip(names, map(float, values), strict=True))


def _named(what: str, terms: Sequence[str], bits: int) -> dict[str, int]:
    return {f"{what} {term}": bits for term in terms}


def _paired(what: str, terms: Sequence[str], bits: int) -> dict[str, int]:
    return {
        f"{what} {term}, {other}": bits
        for place, term in enumerate(terms)
        for other in terms[: place + 1]
    }


def _triangle(matrix: Float64) -> list[float]:
    lower: list[float] = matrix[np.tril_indices(len(matrix))].tolist()
    return lower


def _square(numbers: Numbers, what: str, terms: Sequence[str]) -> Float64:
    matrix = np.zeros((len(terms), len(terms)))
    lower = np.tril_indices(len(terms))
    matrix[lower] = [numbers[name] for name in _paired(what, terms, 0)]
    matrix.T[lower] = matrix[lower]
    return matrix


def _solve(model: str, numbers: Numbers, terms: Sequence[str]) -> list[float]:
    """Return information^-1 score by plain products and sums, the same on every machine.

    Where the information of a mixed model is not positive definite, as it may be far from the
    maximum, its diagonal is raised until it is.
    """
    matrix = _square(numbers, "information", terms).tolist()
    size, most, raised = len(terms), max(row[at] for at, row in enumerate(matrix)), 0.0
    while True:
        rows = [[*row, numbers[f"score {term}"]] for row, term in zip(matrix, terms, strict=True)]
        for at in range(size):
            rows[at][at] += raised
        flat = next((at for at in range(size) if not _eliminate(rows, at, 1e-8 * most)), None)
        if flat is None:
            break
        if model != "mixed" or not most > 0:
            raise ConditioningError(
                f"the trials do not tell {terms[flat]!r}: in each lab it goes with the lab's own "
                "intercept, as a group does where no lab has two, or all or none of a group's "
                "trials have CRs"
            )
        raised = max(10.0 * raised, 1e-3 * most)
    solved = [0.0] * size
    for at in reversed(range(size)):
        rest = rows[at][size]
        for column in range(at + 1, size):
            rest -= rows[at][column] * solved[column]
        solved[at] = rest / rows[at][at]
    return solved


def _eliminate(rows: list[list[float]], at: int, least: float) -> bool:
    """Take multiples of a row off those below; return False where its pivot is too small."""
    if not rows[at][at] > least:
        return False
    for below in rows[at + 1 :]:
        ratio = below[at] / rows[at][at]
        for column in range(at, len(below)):
            below[column] -= ratio * rows[at][column]
    return True
