"""Learning over sessions and participants, and mixed models against lme4 and glmmTMB."""

import json
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from statsmodels.regression.mixed_linear_model import MixedLM, VCSpec

from site_agent.errors import ConditioningError
from site_agent.eyeblink.study.learning_curve import (
    UNTOLD,
    LearningPoint,
    fit_learning_curve,
    group_difference,
    sessions_to_criterion,
    trials_to_criterion,
)
from site_agent.eyeblink.study.mixed_models import (
    fit_binomial,
    fit_estimating_equations,
    fit_linear,
    model_terms,
    terms_of,
)
from site_agent.eyeblink.study.study_trials import StudyTrials


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
    assert effect.verdict == UNTOLD, "all differ by the same"


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize(("spread", "persons"), [(0.0, 2), (1e-15, 2), (5.0, 2), (0.0, 4)])
def test_the_few_and_the_alike_do_not_tell(spread: float, persons: int) -> None:
    random = np.random.default_rng(3)
    points = [
        LearningPoint(f"{group}{i}", s, mean + step * s + random.normal(0, spread), 6, group)
        for group, mean, step in (("control", 83.3, -16.7), ("lesion", 40.0, 0.0))
        for i in range(persons)
        for s in (1, 2)
    ]
    for group, slope in (("control", -16.7), ("lesion", 0.0)):
        curve = fit_learning_curve([point for point in points if point.group == group])
        assert curve.slope.estimate == pytest.approx(slope, abs=4 * spread + 1e-9)
        assert np.isnan([curve.slope.low, curve.slope.high, curve.slope.p_value]).all()
        assert curve.slope.verdict == UNTOLD
        assert np.isnan(curve.low).all()
    if persons < 3:
        with pytest.raises(ConditioningError, match="at least three participants"):
            group_difference(points)
        return
    effect = group_difference(points)[0]
    assert effect.verdict == UNTOLD
    assert effect.estimate == pytest.approx(-18.25)
    assert np.isnan(effect.p_value)


def test_one_group_without_spread_is_compared_by_the_spread_of_the_other() -> None:
    points = [
        LearningPoint(f"{group}{i}", 1.0, value, 6, group)
        for group, values in (("floor", (0.0, 0.0, 0.0)), ("paired", (30.0, 50.0, 70.0)))
        for i, value in enumerate(values)
    ]
    effect = group_difference(points)[0]
    # Student's interval of three values: 50 plus and minus 4.3027 standard errors.
    assert effect.high - effect.estimate == pytest.approx(4.302653 * 20 / np.sqrt(3), rel=1e-6)
    assert effect.verdict == "positive"


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


pytest.importorskip("statsmodels")

# Belenky and others 2003, as lme4's data set sleepstudy: 18 subjects, days 0 to 9.
REACTIONS_MS = """
249.5600 258.7047 250.8006 321.4398 356.8519 414.6901 382.2038 290.1486 430.5853 466.3535
222.7339 205.2658 202.9778 204.7070 207.7161 215.9618 213.6303 217.7272 224.2957 237.3142
199.0539 194.3322 234.3200 232.8416 229.3074 220.4579 235.4208 255.7511 261.0125 247.5153
321.5426 300.4002 283.8565 285.1330 285.7973 297.5855 280.2396 318.2613 305.3495 354.0487
287.6079 285.0000 301.8206 320.1153 316.2773 293.3187 290.0750 334.8177 293.7469 371.5811
234.8606 242.8118 272.9613 309.7688 317.4629 309.9976 454.1619 346.8311 330.3003 253.8644
283.8424 289.5550 276.7693 299.8097 297.1710 338.1665 332.0265 348.8399 333.3600 362.0428
265.4731 276.2012 243.3647 254.6723 279.0244 284.1912 305.5248 331.5229 335.7469 377.2990
241.6083 273.9472 254.4907 270.8021 251.4519 254.6362 245.4523 235.3110 235.7541 237.2466
312.3666 313.8058 291.6112 346.1222 365.7324 391.8385 404.2601 416.6923 455.8643 458.9167
236.1032 230.3167 238.9256 254.9220 250.7103 269.7744 281.5648 308.1020 336.2806 351.6451
256.2968 243.4543 256.2046 255.5271 268.9165 329.7247 379.4445 362.9184 394.4872 389.0527
250.5265 300.0576 269.8939 280.5891 271.8274 304.6336 287.7466 266.5955 321.5418 347.5655
221.6771 298.1939 326.8785 346.8555 348.7402 352.8287 354.4266 360.4326 375.6406 388.5417
271.9235 268.4369 257.2424 277.6566 314.8222 317.2135 298.1353 348.1229 340.2800 366.5131
225.2640 234.5235 238.9008 240.4730 267.5373 344.1937 281.1481 347.5855 365.1630 372.2288
269.8804 272.4428 277.8989 281.7895 279.1705 284.5120 259.2658 304.6306 350.7807 369.4692
269.4117 273.4740 297.5968 310.6316 287.1726 329.6076 334.4818 343.2199 369.1417 364.1236
"""

# Lesnoff and others 2004, as lme4's data set cbpp: herd, incidence, size, period.
HERDS = """
1 2 14 1  1 3 12 2  1 4 9 3  1 0 5 4  2 3 22 1  2 1 18 2  2 1 21 3  3 8 22 1  3 2 16 2  3 0 16 3
3 2 20 4  4 2 10 1  4 0 10 2  4 2 9 3  4 0 6 4  5 5 18 1  5 0 25 2  5 0 24 3  5 1 4 4  6 3 17 1
6 0 17 2  6 0 18 3  6 1 20 4  7 8 16 1  7 1 10 2  7 3 9 3  7 0 5 4  8 12 34 1  9 2 9 1  9 0 6 2
9 0 8 3  9 0 6 4  10 1 22 1  10 1 22 2  10 0 18 3  10 2 22 4  11 0 25 1  11 5 27 2  11 3 22 3
11 1 22 4  12 2 10 1  12 1 8 2  12 0 6 3  12 0 5 4  13 1 21 1  13 2 24 2  13 0 19 3  13 0 23 4
14 11 19 1  14 0 2 2  14 0 3 3  14 0 2 4  15 1 19 1  15 1 15 2  15 1 15 3  15 0 15 4
"""


def test_the_linear_model_equals_lme4() -> None:
    reactions = np.array(REACTIONS_MS.split(), dtype=np.float64)
    subject, day = np.divmod(np.arange(180), 10)
    design = np.column_stack([np.ones(180), day])
    fit = fit_linear(reactions, design, subject, design)
    assert fit.values == pytest.approx([251.40510, 10.46729], rel=1e-5)
    assert np.sqrt(np.diag(fit.covariance)) == pytest.approx([6.825, 1.546], rel=1e-3)
    assert np.sqrt(np.diag(fit.effects)) == pytest.approx([24.7404, 5.9221], rel=1e-4)
    assert fit.residual_sd == pytest.approx(25.5918, rel=1e-4)
    assert -2.0 * fit.log_likelihood == pytest.approx(1743.628, rel=1e-6)


def test_the_logistic_model_equals_published_fits() -> None:
    herd, incidence, size, period = np.array(HERDS.split(), dtype=np.int64).reshape(-1, 4).T
    design = np.column_stack([np.ones(56), *(period == number for number in (2, 3, 4))])
    fit = fit_binomial(incidence * 1.0, size * 1.0, design, herd, design[:, :1])
    # glmmTMB, which maximises the same likelihood; lme4 stops a little before its maximum.
    assert fit.values == pytest.approx([-1.3985, -0.9923, -1.1287, -1.5803], abs=1e-4)
    assert fit.values == pytest.approx([-1.3983, -0.9919, -1.1282, -1.5797], abs=1e-3)
    errors = np.sqrt(np.diag(fit.covariance))
    assert errors == pytest.approx([0.2325, 0.3066, 0.3266, 0.4274], abs=1e-4)
    assert np.sqrt(fit.effects[0, 0]) == pytest.approx(0.6423, abs=1e-4)
    assert fit.log_likelihood == pytest.approx(-92.0263, abs=1e-3)


def test_estimating_equations_are_least_squares_of_shares_for_equal_clusters() -> None:
    rng = np.random.default_rng(3)
    animal = np.repeat(np.arange(40), 2)
    later = np.tile([0.0, 1.0], 40)
    hits = rng.binomial(10, np.where(later, 0.7, 0.3)).astype(np.float64)
    design = np.column_stack([np.ones(80), later])
    fit = fit_estimating_equations(hits, np.full(80, 10.0), design, animal)
    shares = [hits[later == number].mean() / 10.0 for number in (0.0, 1.0)]
    odds = np.log(np.divide(shares, np.subtract(1.0, shares)))
    assert fit.values == pytest.approx([odds[0], odds[1] - odds[0]], rel=1e-6)
    # The sandwich for a saturated mean: the variance of the animals' own deviations.
    off = (hits[0::2] / 10.0 - shares[0]) / (shares[0] * (1.0 - shares[0]))
    assert np.sqrt(fit.covariance[0, 0]) == pytest.approx(np.sqrt((off**2).sum()) / 40, rel=1e-3)


def drawn_trials(animals: int) -> StudyTrials:
    rng = np.random.default_rng(5)
    participant, session, _ = (
        grid.ravel() for grid in np.meshgrid(range(animals), range(1, 6), range(20), indexing="ij")
    )
    learning = 0.5 + 0.3 * rng.normal(size=animals)
    odds = (
        -1.5
        + learning[participant] * session
        + 0.4 * rng.normal(size=(animals, 6))[participant, session]
    )
    cr = (rng.random(len(odds)) < 1.0 / (1.0 + np.exp(-odds))) * 1.0
    amplitude = 0.1 * session + 0.3 * cr + rng.normal(0.0, 0.1, len(odds))
    group = ["lesion" if number % 2 else "control" for number in participant]
    return StudyTrials(participant, session * 1.0, group, cr, amplitude)


def test_learning_and_its_spread_over_animals_are_found() -> None:
    fitted, left_out = model_terms(drawn_trials(12))
    assert not left_out
    terms = {(term.model.split(",")[0], term.term): term for term in fitted}
    for model in ("amplitude", "CR"):
        assert terms[model, "session"].low > 0
        assert (
            terms[model, "session x group lesion"].low
            < 0
            < terms[model, "session x group lesion"].high
        )
    assert terms["amplitude", "SD of trial"].estimate == pytest.approx(0.17, abs=0.03)
    with pytest.raises(ConditioningError, match="found 2"):
        model_terms(drawn_trials(2))


@pytest.mark.filterwarnings("ignore::statsmodels.tools.sm_exceptions.ConvergenceWarning")
@pytest.mark.parametrize("seed", [5, 12, 13])
def test_the_linear_model_is_at_its_maximum(seed: int) -> None:
    """lbfgs of statsmodels ends at 68.8, 290.5 and infinity for these, as converged."""
    rng = np.random.default_rng(seed)
    sizes = (int(rng.integers(3, 8)), int(rng.integers(2, 6)), int(rng.integers(3, 20)))
    animal, session, _ = (grid.ravel() for grid in np.meshgrid(*map(range, sizes), indexing="ij"))
    levels = [0.0, 0.1, 0.3][seed % 3] * rng.normal(size=sizes[0])
    y = 0.1 * session + levels[animal] + rng.normal(0.0, 0.1, len(animal))
    design, cells = np.column_stack([np.ones(len(y)), session]), animal * 100 + session
    groups = [cells[animal == one] for one in range(sizes[0])]
    names = [[str(cell) for cell in np.unique(group)] for group in groups]
    members = [(group[:, None] == np.unique(group)) * 1.0 for group in groups]
    model = MixedLM(
        y, design, animal, exog_re=design, exog_vc=VCSpec(["session"], [names], [members])
    )
    expected = model.fit(reml=True, method="powell")
    fit = fit_linear(y, design, animal, design, cells)
    assert -1e-4 < fit.log_likelihood - expected.llf < 0.1
    assert fit.values == pytest.approx(np.asarray(expected.fe_params), abs=1e-6)


def test_a_model_without_finite_coefficients_is_left_out() -> None:
    trials = drawn_trials(6)
    none = replace(trials, cr=np.where(np.array(trials.group) == "control", 0.0, trials.cr))
    terms, left_out = model_terms(none)
    assert {term.model for term in terms} == {"amplitude, linear mixed (FEC)"}
    assert [sentence.split(":")[0] for sentence in left_out] == [
        "no model CR, logistic mixed (log odds)",
        "no model CR, estimating equations (log odds)",
    ]
    assert "all trials of a group or session have CRs, or none have" in left_out[0]
    last = np.array(trials.group) == "lesion"
    once = replace(trials, session=np.where(last, 5.0, trials.session))
    with pytest.raises(ConditioningError, match="two sessions of each group"):
        model_terms(once)


@pytest.mark.parametrize("slope", [0.0, 0.2])
def test_a_linear_model_of_trials_without_spread_is_refused(slope: float) -> None:
    animal, session, _ = (grid.ravel() for grid in np.meshgrid(*map(range, (4, 3, 4))))
    design = np.column_stack([np.ones(48), session])
    with pytest.raises(ConditioningError, match="nothing of the trials unexplained"):
        fit_linear(0.3 + slope * session, design, animal, design, animal * 10 + session)


def test_models_of_animals_that_are_all_alike_have_no_p_value() -> None:
    hits, session = np.tile([1.0, 3.0, 4.0], 4), np.tile([0.0, 1.0, 2.0], 4)
    design = np.column_stack([np.ones(12), session])
    fit = fit_estimating_equations(hits, np.full(12, 6.0), design, np.repeat(np.arange(4), 3))
    terms = terms_of("CR", ["intercept", "session"], fit)
    assert terms[1].estimate > 0
    assert np.isnan([terms[1].low, terms[1].p_value]).all()
