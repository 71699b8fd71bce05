"""Learning over sessions and participants: lines, bands and remarks on doubtful fits."""

from __future__ import annotations

import json
from functools import cache

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from site_agent.datasets.synthetic.conditioning import (
    ConditioningDesign,
    draw_conditioning_session,
)
from site_agent.errors import ConditioningError
from site_agent.eyeblink.conditioning.analysis import analyse_conditioning
from site_agent.eyeblink.study.learning_curve import (
    LearningPoint,
    StudySession,
    fit_learning_curve,
    group_difference,
    learning_points,
)


def drawn_points(
    seed: int,
    *,
    participants: int = 12,
    sessions: int = 6,
    slope: float = 0.06,
    slope_sd: float = 0.03,
    level_sd: float = 0.1,
    noise_sd: float = 0.04,
) -> list[LearningPoint]:
    random = np.random.default_rng(seed)
    points = []
    for person in range(participants):
        level, own = random.normal(0.1, level_sd), random.normal(slope, slope_sd)
        for session in range(1, sessions + 1):
            value = level + own * session + random.normal(0, noise_sd)
            points.append(LearningPoint(f"p{person}", float(session), float(value), 40))
    return points


def test_a_random_slope_is_found_with_its_interval() -> None:
    curve = fit_learning_curve(drawn_points(0), "amplitude_all")
    assert curve.method == "mixed-slope"
    assert curve.slope.low < 0.06 < curve.slope.high
    assert curve.slope.verdict == "positive"
    assert curve.slope.p_value < 0.01
    assert curve.n_participants == 12
    assert curve.remarks == ()
    assert (curve.low < curve.mean).all()
    assert (curve.mean < curve.high).all()
    assert (curve.positions[0], curve.positions[-1]) == (1.0, 6.0)
    assert [mean.n_participants for mean in curve.observed] == [12] * 6
    json.dumps(curve.to_dict(), allow_nan=False)


def test_the_mixed_model_agrees_with_its_closed_form() -> None:
    # Balanced data: the fixed slope of the mixed model is the mean of the persons' own slopes,
    # and its standard error that of this mean.
    points = drawn_points(5)
    curve = fit_learning_curve(points, "amplitude_all")
    own = [
        np.polyfit([p.position for p in mine], [p.value for p in mine], 1)[0]
        for person in sorted({p.participant for p in points})
        for mine in [[p for p in points if p.participant == person]]
    ]
    half = 2.200985 * np.std(own, ddof=1) / np.sqrt(12)
    assert curve.slope.estimate == pytest.approx(np.mean(own), rel=1e-4)
    assert curve.slope.high - curve.slope.estimate == pytest.approx(half, rel=0.02)


def test_intervals_hold_the_truth_as_often_as_they_claim() -> None:
    held = 0
    for seed in range(20):
        slope = fit_learning_curve(drawn_points(100 + seed, participants=8), "amplitude_all").slope
        held += slope.low <= 0.06 <= slope.high
    assert held >= 16


@pytest.mark.parametrize("participants", [1, 2])
def test_one_or_two_participants_get_a_regression(participants: int) -> None:
    curve = fit_learning_curve(drawn_points(3, participants=participants), "amplitude_all")
    assert curve.method == "regression"
    assert "does not speak for other persons" in curve.remarks[0]
    assert curve.slope.low < curve.slope.estimate < curve.slope.high


def test_two_sessions_of_one_person_have_a_line_without_a_band() -> None:
    points = [LearningPoint("a", 1.0, 20.0, 10), LearningPoint("a", 2.0, 50.0, 10)]
    curve = fit_learning_curve(points)
    assert curve.slope.estimate == pytest.approx(30.0)
    assert np.isnan(curve.low).all()
    assert curve.slope.verdict == "unclear"
    assert any("too few values" in remark for remark in curve.remarks)
    json.dumps(curve.to_dict(), allow_nan=False)


def test_values_without_spread_and_perfect_lines() -> None:
    same = [LearningPoint(f"p{i}", float(j), 100.0, 9) for i in range(6) for j in range(4)]
    curve = fit_learning_curve(same)
    assert curve.slope.estimate == 0
    assert curve.slope.verdict == "unclear"
    perfect = [LearningPoint(f"p{i}", float(j), 10.0 * j, 9) for i in range(6) for j in range(4)]
    assert fit_learning_curve(perfect).slope.estimate == pytest.approx(10.0)


def test_cross_sections_and_missing_values_are_remarked_on() -> None:
    across = [LearningPoint(f"p{i}", float(i), 3.0 * i + (i % 2), 9) for i in range(8)]
    assert "across persons" in fit_learning_curve(across).remarks[0]
    points = [*drawn_points(4), LearningPoint("p0", 7.0, float("nan"), 0)]
    assert "1 of 73 sessions" in fit_learning_curve(points, "amplitude_all").remarks[0]


@settings(max_examples=15, deadline=None)
@given(st.data())
def test_any_values_give_a_line_or_say_why_not(data: st.DataObject) -> None:
    persons = data.draw(st.integers(1, 7))
    value = st.one_of(st.just(float("nan")), st.sampled_from([0.0, 50.0, 100.0]), st.floats(0, 100))
    points = [
        LearningPoint(f"p{person}", float(session), data.draw(value), 5)
        for person in range(persons)
        for session in range(data.draw(st.integers(1, 5)))
    ]
    if len({point.position for point in points if np.isfinite(point.value)}) < 2:
        with pytest.raises(ConditioningError, match="at least two sessions"):
            fit_learning_curve(points)
        return
    curve = fit_learning_curve(points)
    assert np.isfinite(curve.mean).all()
    assert 0 <= curve.mean.min() <= curve.mean.max() <= 100
    assert np.isfinite(curve.slope.estimate)
    assert not (curve.slope.low > curve.slope.high)
    json.dumps(curve.to_dict(), allow_nan=False)


def test_groups_are_compared_by_person() -> None:
    random = np.random.default_rng(8)
    points = [
        LearningPoint(f"{group}{i}", float(s), float(level + random.normal(0, 5)), 9, group)
        for group, level in (("control", 70.0), ("lesion", 40.0))
        for i in range(8)
        for s in range(4)
    ]
    effect, names = group_difference(points)
    assert names == ("control", "lesion")
    assert effect.verdict == "negative"
    assert effect.low < -30 < effect.high
    with pytest.raises(ConditioningError, match="control: 8"):
        group_difference([point for point in points if point.group == "control"])


@cache
def study() -> tuple[StudySession, ...]:
    sessions = []
    for person in range(3):
        for number in range(1, 4):
            design = ConditioningDesign(n_trials=24, cr_probability=(0.3 * number - 0.2,) * 2)
            drawn = draw_conditioning_session(10 * person + number, 60, design)
            result = analyse_conditioning(drawn.timestamps_s, drawn.fec, drawn.trials)
            sessions.append(StudySession(f"p{person}", float(number), result))
    return tuple(sessions)


def test_sessions_become_points() -> None:
    by_session = learning_points(study())
    assert [point.position for point in by_session] == [1.0, 2.0, 3.0] * 3
    assert fit_learning_curve(by_session).slope.verdict == "positive"
    assert all(
        np.isfinite(p.value) or p.n_trials == 0 for p in learning_points(study(), "amplitude_cr")
    )


def test_what_cannot_be_fitted() -> None:
    with pytest.raises(ConditioningError, match="two sessions 1"):
        fit_learning_curve([LearningPoint("a", 1.0, 3.0, 5)] * 2)
    with pytest.raises(ConditioningError, match="at least two sessions"):
        fit_learning_curve([LearningPoint("a", 1.0, 3.0, 5)])
