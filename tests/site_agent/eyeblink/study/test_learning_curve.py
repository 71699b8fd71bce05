"""Learning over sessions and participants: lines, bands and remarks on doubtful fits."""

import json

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from site_agent.errors import ConditioningError
from site_agent.eyeblink.study.learning_curve import (
    LearningPoint,
    fit_learning_curve,
    group_difference,
    sessions_to_criterion,
    trials_to_criterion,
)


def drawn_points(seed: int) -> list[LearningPoint]:
    """Twelve persons in six sessions; they learn 0.06 a session on average."""
    random = np.random.default_rng(seed)
    points = []
    for person in range(12):
        level, person_slope = random.normal(0.1, 0.1), random.normal(0.06, 0.03)
        for session in range(1, 7):
            value = level + person_slope * session + random.normal(0, 0.04)
            points.append(LearningPoint(f"p{person}", float(session), float(value), 40))
    return points


def test_the_slope_is_found_with_its_interval() -> None:
    curve = fit_learning_curve(drawn_points(0), "amplitude_all")
    assert curve.method == "mean of lines"
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


def test_the_slope_is_the_mean_of_the_persons_own_slopes() -> None:
    points = drawn_points(5)
    curve = fit_learning_curve(points, "amplitude_all")
    slopes = [
        np.polyfit([p.position for p in mine], [p.value for p in mine], 1)[0]
        for person in sorted({p.participant for p in points})
        for mine in [[p for p in points if p.participant == person]]
    ]
    half = 2.200985 * np.std(slopes, ddof=1) / np.sqrt(12)
    assert curve.slope.estimate == pytest.approx(np.mean(slopes), rel=1e-9)
    assert curve.slope.high - curve.slope.estimate == pytest.approx(half, rel=1e-6)


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
    effect, names, _ = group_difference(points)
    assert names == ("control", "lesion")
    assert effect.verdict == "negative"
    assert effect.low < -30 < effect.high
    with pytest.raises(ConditioningError, match="control: 8"):
        group_difference([point for point in points if point.group == "control"])


def test_the_same_animals_in_both_groups_are_compared_with_themselves() -> None:
    random = np.random.default_rng(9)
    levels = random.normal(50.0, 20.0, 6)
    points = [
        LearningPoint(f"m{number}", place, float(level + 8.0 * place), 9, group)
        for number, level in enumerate(levels)
        for place, group in enumerate(("saline", "drug"))
    ]
    effect, names, pairs = group_difference(points)
    assert (names, pairs) == (("drug", "saline"), 6)
    assert effect.estimate == pytest.approx(-8.0)
    assert effect.verdict == "negative"


def test_the_criterion_of_learning() -> None:
    points = [LearningPoint("a", float(k), 20.0 * k, 20) for k in range(1, 6)]
    assert sessions_to_criterion(points) == 3
    assert sessions_to_criterion(points[:2]) is None
    crs = [False] * 5 + [True, True, False, True, True, True, True, False, True, True, True]
    assert trials_to_criterion(crs) == 15
    assert trials_to_criterion(crs[:14]) is None
    assert trials_to_criterion([True] * 7) is None


def test_what_cannot_be_fitted() -> None:
    with pytest.raises(ConditioningError, match="two sessions 1"):
        fit_learning_curve([LearningPoint("a", 1.0, 3.0, 5)] * 2)
    with pytest.raises(ConditioningError, match="at least two sessions"):
        fit_learning_curve([LearningPoint("a", 1.0, 3.0, 5)])
