"""Models fitted to sums over labs are those of all trials in one place."""

from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np
import pytest
from scipy.optimize import minimize
from statsmodels.stats.meta_analysis import combine_effects

from site_agent.errors import ConditioningError
from site_agent.eyeblink.study.joint_model import (
    Estimate,
    JointDesign,
    JointResults,
    LabTrials,
    answer_question,
    joint_fit,
    list_numbers,
)
from site_agent.eyeblink.study.mixed_models import LaplaceDeviance
from tests.site_agent.eyeblink.drawn_studies import (
    draw_study_trials,
    fit_pooled_logistic,
    pool_trials,
)

LABS = ("lab-a", "lab-b", "lab-c")
DESIGN = JointDesign(sessions=(1, 8), groups=("control", "lesion"))
TRIALS = {
    lab: LabTrials.count(draw_study_trials(seed, 6 + seed, DESIGN.groups), DESIGN)
    for seed, lab in enumerate(LABS)
}
# Coefficients are for one session; the design has one unit for all.
UNITS = np.array([7.0, 1.0, 7.0])


def fit(design: JointDesign, trials: Mapping[str, LabTrials] = TRIALS) -> JointResults:
    """Return the fit to plain sums."""
    labs = tuple(trials)
    asking = joint_fit(design, labs)
    question = next(asking)
    while True:
        answers = [answer_question(question, trials[lab], design, lab, labs) for lab in labs]
        assert all(
            list(answer) == [*list_numbers(question.kind, design, labs)] for answer in answers
        )
        sums = {name: sum(answer[name] for answer in answers) for name in answers[0]}
        try:
            question = asking.send(sums)
        except StopIteration as finished:
            results: JointResults = finished.value
            return results


def test_a_group_that_never_responds_has_no_coefficient() -> None:
    trials = {}
    for seed, lab in enumerate(LABS):
        drawn = draw_study_trials(seed, 6 + seed, DESIGN.groups)
        responding = np.where(np.array(drawn.group) == "control", 0.0, drawn.cr)
        trials[lab] = LabTrials.count(replace(drawn, cr=responding), DESIGN)
    with pytest.raises(ConditioningError, match="all or none of a group's trials have CRs"):
        fit(DESIGN, trials)


def numbers_of(estimates: Sequence[Estimate], model: str) -> tuple[np.ndarray, np.ndarray]:
    """Return the coefficients of a model and their errors, in the design's units."""
    chosen = [item for item in estimates if item.model == model][:3]
    values = np.array([[item.estimate, item.standard_error] for item in chosen])
    return UNITS * values[:, 0], UNITS * values[:, 1]


@pytest.fixture(scope="module")
def results() -> JointResults:
    return fit(DESIGN)


def test_the_logistic_model_is_that_of_all_trials_in_one_place(results: JointResults) -> None:
    coefficients, pooled_errors = fit_pooled_logistic([*TRIALS.values()])
    estimates, errors = numbers_of(results.estimates, "logistic")
    assert estimates == pytest.approx(coefficients[:3], abs=1e-9)
    assert errors == pytest.approx(pooled_errors[:3], abs=1e-9)
    trials = sum(lab.of.sum() for lab in TRIALS.values())
    assert (results.trials, results.animals) == (trials, 21)
    assert results.rounds["logistic"] <= 5


def test_the_mixed_model_is_that_of_all_trials_in_one_place(results: JointResults) -> None:
    deviance = LaplaceDeviance(*pool_trials([*TRIALS.values()]))
    start = np.array([2.0, 0.0, 0.0, -2.0, -2.0, -2.0, 0.5, 0.0, 0.5])
    pooled = minimize(deviance, start, jac=deviance.slopes, method="BFGS", options={"gtol": 1e-7})
    estimates, errors = numbers_of(results.estimates, "mixed")
    assert estimates == pytest.approx(pooled.x[:3], abs=1e-7)
    covariance = np.linalg.inv(deviance.bends(pooled.x) / 2.0)
    assert errors == pytest.approx(np.sqrt(np.diag(covariance))[:3], abs=1e-6)
    assert len(list_numbers("mixed", DESIGN, LABS)) == 28
    assert results.rounds["mixed"] <= 10


def test_a_meta_analysis_is_that_of_statsmodels() -> None:
    estimates = fit(DESIGN.model_copy(update={"models": ("meta-analysis",)})).estimates
    for term in DESIGN.terms:
        of_term = [item for item in estimates if item.term == term]
        alone, (fixed, random) = of_term[:3], of_term[3:]
        assert [item.lab for item in alone] == [*LABS]
        effects = np.array([item.estimate for item in alone])
        variances = np.array([item.standard_error for item in alone]) ** 2
        with np.errstate(invalid="ignore"):  # its variance between labs may be negative
            expected = combine_effects(effects, variances, method_re="chi2")
        assert fixed.estimate == pytest.approx(expected.mean_effect_fe, rel=1e-9)
        assert fixed.standard_error == pytest.approx(expected.sd_eff_w_fe, rel=1e-9)
        if expected.tau2 > 0:
            assert random.estimate == pytest.approx(expected.mean_effect_re, rel=1e-9)
            assert random.standard_error == pytest.approx(expected.sd_eff_w_re, rel=1e-9)
        else:
            assert random.estimate == pytest.approx(fixed.estimate)


def test_a_group_cannot_be_told_from_labs_that_have_one_group_each() -> None:
    trials = {
        lab: LabTrials.count(draw_study_trials(seed, 5, [DESIGN.groups[seed % 2]]), DESIGN)
        for seed, lab in enumerate(LABS)
    }
    with pytest.raises(ConditioningError, match="group lesion"):
        fit(DESIGN.model_copy(update={"models": ("logistic",)}), trials)


@pytest.mark.parametrize(
    ("design", "problem"),
    [
        ({"least_animals": 7}, "found 6 animals, and the study asks for at least 7"),
        ({"groups": ("control", "other")}, "found trials of the group 'lesion'"),
        ({"sessions": (20.0, 30.0)}, "found 0 animals"),
    ],
)
def test_trials_that_do_not_fit_the_design_are_refused(
    design: dict[str, object], problem: str
) -> None:
    trials = draw_study_trials(0, 6, DESIGN.groups)
    with pytest.raises(ConditioningError, match=problem):
        LabTrials.count(trials, DESIGN.model_copy(update=design))


def test_a_lab_without_any_response_takes_no_part() -> None:
    trials = draw_study_trials(0)
    silent = replace(trials, cr=np.zeros_like(trials.cr))
    with pytest.raises(ConditioningError, match="CRs in 0 of 576 trials"):
        LabTrials.count(silent, JointDesign(sessions=(1, 8)))


@pytest.mark.parametrize(
    "wrong", [{"sessions": (3, 3)}, {"groups": ("one",)}, {"models": ()}, {"least_animals": 1}]
)
def test_impossible_designs_are_refused(wrong: dict[str, object]) -> None:
    with pytest.raises(ValueError, match=next(iter(wrong))):
        JointDesign.model_validate(wrong)
