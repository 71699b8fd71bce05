"""Change of responses over sessions and participants: points, curve and confidence band."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Literal

import numpy as np

from site_agent.errors import ConditioningError
from site_agent.eyeblink.conditioning.analysis import ConditioningResult
from site_agent.eyeblink.conditioning.summary import TrialResult
from site_agent.eyeblink.records import Float64
from site_agent.eyeblink.study.line_fits import fit_line, mean_difference
from site_agent.plain_json import plain

LearningMeasure = Literal["cr_percent", "amplitude_all", "amplitude_cr"]
MEASURE_UNITS: Mapping[LearningMeasure, str] = {
    "cr_percent": "%",
    "amplitude_all": "FEC",
    "amplitude_cr": "FEC",
}
_BAND_POINTS = 41


@dataclass(frozen=True)
class StudySession:
    """The result of one session of one participant.

    `session` is its number among the participant's sessions, or another position, such as a day.
    """

    participant: str
    session: float
    result: ConditioningResult
    group: str = ""


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
        return {
            **plain({name: getattr(self, name) for name in ("measure", "method", "remarks")}),
            "unit": MEASURE_UNITS[self.measure],
            **{
                name: plain(getattr(self, name).tolist())
                for name in ("positions", "mean", "low", "high")
            },
            "slope": self.slope.to_dict(),
            "observed": plain([asdict(item) for item in self.observed]),
            "points": plain([asdict(point) for point in self.points]),
            "n_participants": self.n_participants,
        }


def learning_points(
    sessions: Sequence[StudySession], measure: LearningMeasure = "cr_percent"
) -> tuple[LearningPoint, ...]:
    """Return a point for each session."""
    points = []
    for session in sorted(sessions, key=lambda item: (item.participant, item.session)):
        trials = [result for result in session.result.trials if result.has_cs]
        value, count = _value(trials, measure)
        points.append(
            LearningPoint(session.participant, session.session, value, count, session.group)
        )
    return tuple(points)


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


def _value(trials: Sequence[TrialResult], measure: LearningMeasure) -> tuple[float, int]:
    judged = [trial for trial in trials if trial.cr is not None]
    if measure == "cr_percent":
        count = sum(bool(trial.cr) for trial in judged)
        return (100.0 * count / len(judged) if judged else math.nan), len(judged)
    used = judged if measure == "amplitude_all" else [trial for trial in judged if trial.cr]
    amplitudes = [trial.measures.cr_amplitude for trial in used]
    return (float(np.mean(amplitudes)) if amplitudes else math.nan), len(used)


def _average_observed(
    points: Sequence[LearningPoint], positions: Sequence[float]
) -> tuple[PositionMean, ...]:
    means = []
    for position in positions:
        values = np.array([point.value for point in points if point.position == position])
        error = float(values.std(ddof=1) / math.sqrt(len(values))) if len(values) > 1 else math.nan
        means.append(PositionMean(position, float(values.mean()), error, len(values)))
    return tuple(means)
