"""Does a study's conclusion depend on how a response was defined?

The same sessions under many reasonable criteria: a multiverse analysis (S. Steegen, F. Tuerlinckx,
A. Gelman and W. Vanpaemel, "Increasing transparency through a multiverse analysis", Perspectives
on Psychological Science 11, 2016).
"""

import math
import re
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass, replace
from operator import length_hint
from typing import Any, Literal

from site_agent.datasets.trials import Trial, TrialType
from site_agent.errors import ConditioningError
from site_agent.eyeblink import conditioning as conditioning_settings
from site_agent.eyeblink.batch.sessions import SETTING_NAMES, with_overrides
from site_agent.eyeblink.conditioning import analysis
from site_agent.eyeblink.openness.signal import (
    CalibrationSettings,
    calibrate,
    closed_ear_at_puffs,
    fraction_eyelid_closure,
)
from site_agent.eyeblink.records import Float64
from site_agent.eyeblink.session import BlinkAnalysisSettings
from site_agent.eyeblink.study import learning_curve
from site_agent.plain_json import plain
from site_agent.wording import count_words
from site_agent.work import Progress, no_progress

# Settings that a criterion's name includes.
_CALIBRATION = "blinks.calibration."
_NAMED = {"cr_rule", "cr_threshold", "cr_needs_onset", "onset_floor_ms", "reject_rules"}


def read_criteria(
    texts: Sequence[str], study_settings: conditioning_settings.ConditioningSettings
) -> "tuple[Criterion, ...]":
    """Return the study's own criterion and those that are asked for.

    `texts`: each a criterion: a rule and its threshold (``fec:0.05``, ``ur-share:0.1``,
    ``baseline-sd:3``), settings (``cr_needs_onset=yes``, ``baseline_ms=-300,0``, or of calibration
    ``closed_from=air-puffs``), or several of them separated by blanks. All other settings are those
    of the study.
    """
    of_study = Criterion(f"own: {criterion_name(study_settings)}", study_settings)
    criteria = {(study_settings, of_study.calibration): of_study}
    for word in texts:
        overrides = _overrides(word)
        try:
            settings = with_overrides(BlinkAnalysisSettings(conditioning=study_settings), overrides)
        except ValueError as error:
            raise ConditioningError(f"the criterion {word!r}: {error}") from error
        others = [f"{name} {text}" for name, text in overrides.items() if name not in _NAMED]
        name = "; ".join([criterion_name(settings.conditioning), *others])
        again = any(SETTING_NAMES[name].startswith(_CALIBRATION) for name in overrides)
        calibration = settings.blinks.calibration if again else None
        key = (settings.conditioning, calibration)
        criteria.setdefault(key, Criterion(name, *key))
    return tuple(criteria.values())


def _overrides(word: str) -> dict[str, str]:
    overrides: dict[str, str] = {}
    for part in word.split():
        rule = re.fullmatch(r"([a-z-]+)[:>=]+(\d*\.?\d+)", part)
        name, equals, value = part.partition("=")
        name = name.replace("-", "_")
        if rule is not None and rule[1] in set(conditioning_settings.CrRule):
            overrides |= {"cr_rule": rule[1], "cr_threshold": rule[2]}
        elif equals and SETTING_NAMES.get(name, "").startswith(("conditioning.", _CALIBRATION)):
            overrides[name] = value
        else:
            rules = ", ".join(f"{item}:THRESHOLD" for item in conditioning_settings.CrRule)
            raise ConditioningError(
                f"the criterion {word!r}: cannot read {part!r}; expected {rules}, or a "
                "setting of conditioning or calibration such as cr_needs_onset=yes"
            )
    if not overrides:
        raise ConditioningError("an empty criterion")
    return overrides


Question = Literal["learning", "groups"]
_Session = tuple[str, float, str, dict[str, Any]]
"""Participant, number, group and summary."""


@dataclass(frozen=True, eq=False)
class RecordedSession:
    """A session before any measurement."""

    participant: str
    session: float
    """Its number among the participant's."""
    timestamps_s: Float64
    fec: Float64
    trials: Sequence[Trial]
    group: str = ""


@dataclass(frozen=True)
class Criterion:
    """One way to define the measures, and its name."""

    name: str
    settings: conditioning_settings.ConditioningSettings
    calibration: CalibrationSettings | None = None
    """How closure is calibrated again; None keeps that of the sessions."""

    def fec(self, session: RecordedSession) -> Float64:
        """Return the session's closure by this criterion's calibration."""
        if self.calibration is None or self.calibration.closed_from == "as-given":
            return session.fec
        opening = 1.0 - session.fec  # EAR but for its scale, which a calibration takes away
        puffs_s = [
            trial.us_onset_s
            for trial in session.trials
            if trial.trial_type is not TrialType.CS_ONLY and math.isfinite(trial.us_onset_s)
        ]
        closed = None
        if self.calibration.closed_from == "air-puffs":
            closed = closed_ear_at_puffs(session.timestamps_s, opening, puffs_s)
        return fraction_eyelid_closure(opening, calibrate(opening, self.calibration, closed))


@dataclass(frozen=True)
class CriterionRow:
    """The study under one criterion."""

    criterion: str
    n_valid: int
    n_rejected: int
    n_cr: int
    """Trials with a CS that could be judged, those rejected, and those with a CR."""
    effect: learning_curve.Effect | None
    agrees: bool
    problem: str = ""

    @property
    def cr_percent(self) -> float:
        return 100.0 * self.n_cr / self.n_valid if self.n_valid else math.nan

    def to_dict(self) -> dict[str, object]:
        """Return plain JSON types, None for NaN."""
        values = {**asdict(self), "cr_percent": self.cr_percent}
        return {**plain(values), "effect": self.effect.to_dict() if self.effect else None}


@dataclass(frozen=True)
class CriteriaComparison:
    """A study under several criteria; the first is the study's own."""

    question: Question
    measure: learning_curve.LearningMeasure
    rows: tuple[CriterionRow, ...]
    share_agreeing: float
    holds: bool
    conclusion: str

    def to_dict(self) -> dict[str, object]:
        """Return plain JSON types."""
        return {**plain(self), "rows": [row.to_dict() for row in self.rows]}


def default_criteria(
    settings: conditioning_settings.ConditioningSettings | None = None,
) -> tuple[Criterion, ...]:
    """Return the study's own criterion and the usual alternatives.

    Every CR criterion of the sensitivity table, with no demand on the onset or an onset at or
    after 50 or 100 ms, with and without the rejection of trials; and the study's own with two
    other calibrations of closure.
    """
    study_settings = settings or conditioning_settings.ConditioningSettings()
    criteria = {study_settings: Criterion(f"own: {criterion_name(study_settings)}", study_settings)}
    for rule, threshold in conditioning_settings.SENSITIVITY_RULES:
        for floor_ms in (None, 50.0, 100.0):
            for reject_rules in dict.fromkeys((study_settings.reject_rules, ())):
                other = replace(
                    study_settings,
                    cr_rule=rule,
                    cr_threshold=threshold,
                    cr_needs_onset=floor_ms is not None,
                    onset_floor_ms=study_settings.onset_floor_ms if floor_ms is None else floor_ms,
                    reject_rules=reject_rules,
                )
                criteria.setdefault(other, Criterion(criterion_name(other), other))
    name = criterion_name(study_settings)
    calibrations = (
        CalibrationSettings(closed_from="air-puffs"),
        CalibrationSettings(closed_percentile=1.0),
    )
    return (
        *criteria.values(),
        Criterion(f"{name}; closed eye from air puffs", study_settings, calibrations[0]),
        Criterion(f"{name}; closed eye at percentile 1", study_settings, calibrations[1]),
    )


def compare_criteria(
    sessions: Iterable[RecordedSession],
    criteria: Sequence[Criterion] | None = None,
    *,
    question: Question = "learning",
    measure: learning_curve.LearningMeasure = "cr_percent",
    progress: Progress = no_progress,
) -> CriteriaComparison:
    """Recompute a study under several criteria and say whether its conclusion holds.

    `sessions`: only one is held in memory at a time.
    """
    criteria = default_criteria() if criteria is None else tuple(criteria)
    study: list[list[_Session]] = [[] for _ in criteria]
    total = length_hint(sessions)
    for number, session in enumerate(sessions):
        share = number / max(total, number + 1)
        progress(share, f"{session.participant}, session {session.session:g}")
        for place, result in enumerate(_judge_all(session, criteria)):
            study[place].append(
                (session.participant, session.session, session.group, plain(result.summary))
            )
    if not criteria or not study[0]:
        raise ConditioningError(
            f"{len(study[0]) if study else 0} sessions and {len(criteria)} criteria to compare; "
            "expected at least one of each"
        )
    study_effect, problem = _effect(study[0], question, measure)
    if study_effect is None or study_effect.verdict == learning_curve.UNTOLD:
        raise ConditioningError(f"under the criterion {criteria[0].name!r}: {problem}")
    rows: list[CriterionRow] = []
    for criterion, results in zip(criteria, study, strict=True):
        effect, problem = _effect(results, question, measure)
        summaries = [summary for *_, summary in results]
        rows.append(
            CriterionRow(
                criterion=criterion.name,
                n_valid=sum(summary["n_cs_valid"] for summary in summaries),
                n_rejected=sum(summary["n_trials"] - summary["n_valid"] for summary in summaries),
                n_cr=sum(summary["n_cr"] for summary in summaries),
                effect=effect,
                agrees=effect is not None and effect.verdict == study_effect.verdict,
                problem=problem,
            )
        )
    progress(1.0, "compared")
    agreeing = sum(row.agrees for row in rows)
    agreement = (
        f"all {len(rows)} criteria agree"
        if agreeing == len(rows)
        else f"this depends on the criterion: {agreeing} of {len(rows)} agree"
    )
    finding = _finding(study_effect, question, sorted({group for _, _, group, _ in study[0]}))
    if question == "groups":
        points = learning_curve.learning_points(study[0], measure)
        if pairs := learning_curve.group_difference(points)[2]:
            finding += f" (paired: {count_words(pairs, 'participant')} in both)"
    finding += _left_out([summary for *_, summary in study[0]])
    return CriteriaComparison(
        question=question,
        measure=measure,
        rows=tuple(rows),
        share_agreeing=agreeing / len(rows),
        holds=agreeing == len(rows) and study_effect.verdict != "unclear",
        conclusion=f"{measure} {finding}; {agreement}",
    )


def _judge_all(
    session: RecordedSession, criteria: Sequence[Criterion]
) -> Iterable[analysis.ConditioningResult]:
    """Measure trials once for all criteria that differ only in their decision."""
    measured: dict[Criterion, analysis.MeasuredTrials] = {}
    for criterion in criteria:
        same_measures = replace(
            criterion.settings,
            cr_rule=conditioning_settings.CrRule.FEC,
            cr_threshold=1.0,
            cr_needs_onset=False,
            reject_rules=(),
        )
        key = Criterion("", same_measures, criterion.calibration)
        if key not in measured:
            measured[key] = analysis.measure_trials(
                session.timestamps_s, criterion.fec(session), session.trials, criterion.settings
            )
        yield analysis.judge_trials(measured[key], criterion.settings)


def _effect(
    results: Sequence[_Session], question: Question, measure: learning_curve.LearningMeasure
) -> tuple[learning_curve.Effect | None, str]:
    try:
        points = learning_curve.learning_points(results, measure)
        if question == "groups":
            effect = learning_curve.group_difference(points)[0]
        else:
            effect = learning_curve.fit_learning_curve(points, measure).slope
    except ConditioningError as error:
        return None, str(error)
    if effect.verdict != learning_curve.UNTOLD:
        return effect, ""
    people = count_words(len({point.participant for point in points}), "participant")
    counts = f"{count_words(len(points), 'session')} of {people}"
    return effect, f"{counts} are {effect.verdict}"


def _finding(first: learning_curve.Effect, question: Question, groups: Sequence[str]) -> str:
    if question == "learning":
        return {
            "positive": "rises over sessions",
            "negative": "falls over sessions",
            "unclear": "shows no clear change over sessions",
        }[first.verdict]
    lower, higher = (groups[0], groups[1]) if first.estimate > 0 else (groups[1], groups[0])
    if first.verdict == "unclear":
        return f"shows no clear difference between {groups[0]!r} and {groups[1]!r}"
    return f"is higher in {higher!r} than in {lower!r}"


def _left_out(summaries: Sequence[dict[str, Any]]) -> str:
    """Report the part of the study that its own criterion leaves out, if it is large."""
    rejected = sum(summary["n_trials"] - summary["n_valid"] for summary in summaries)
    share = rejected / max(sum(summary["n_trials"] for summary in summaries), 1)
    withheld = sum(summary["withheld"] for summary in summaries)
    parts = []
    if withheld:
        parts.append(f"{withheld} of {count_words(len(summaries), 'session')} left out")
    if share > analysis.MANY_REJECTED:
        parts.append(f"{100 * share:.0f} % of the trials rejected")
    return f" ({', '.join(parts)})" if parts else ""


def criterion_name(settings: conditioning_settings.ConditioningSettings) -> str:
    """Return a criterion in words: its rule, its demand on the onset, the trials it rejects."""
    parts = [conditioning_settings.cr_rule_text(settings.cr_rule, settings.cr_threshold)]
    if settings.cr_needs_onset:
        parts.append(f"onset >= {settings.onset_floor_ms:g} ms")
    parts.append("rejecting " + (", ".join(settings.reject_rules) or "nothing"))
    return "; ".join(parts)
