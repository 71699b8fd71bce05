"""The models of a study and the dependencies of its steps; no model is made here."""

from dataclasses import replace

import pytest

from site_agent.errors import InvalidInputError
from site_agent.evaluation.model_runs import EvaluationSettings
from site_agent.studies.model_study import plan_jobs
from site_agent.studies.protocol import (
    CombinationSettings,
    Protocol,
    RefinementSettings,
    StudySettings,
    plan_protocol,
)
from site_agent.studies.steps import Contribute, Merge, Score, step_digests, title
from site_agent.training.detector_plan import HogSvmSettings
from site_agent.training.ert import ErtSettings
from site_agent.work.jobs import Schedule

SIX = [f"P{number}" for number in range(1, 7)]
FACES = [30, 10, 20, 20, 20, 20]


def plan(settings: StudySettings, parts: list[str] = SIX) -> Protocol:
    return plan_protocol(parts, FACES[: len(parts)], settings, ["36", "37"])


def names(protocol: Protocol, *groups: str) -> list[str]:
    return [row.name for row in protocol.rows if not groups or row.group in groups]


def test_detectors_are_combined_as_in_table_two() -> None:
    protocol = plan(StudySettings(HogSvmSettings()))
    assert names(protocol, "alone") == SIX
    assert names(protocol, "union", "all") == [
        "P1+P2", "P1+P2+P3", "P1+P2+P3+P4", "P1+P2+P3+P4+P5", "Pall",
    ]  # fmt: skip
    assert names(protocol, "merged") == [
        "COM(P1+P2)", "COM(P1+P2+P3)", "COM(P1+P2+P3+P4)", "COM(P1+P2+P3+P4+P5)",
        "COM(P1+P2+P3+P4+P5+P6)",
    ]  # fmt: skip
    orders = names(protocol, "order")
    assert len(set(orders) - set(names(protocol, "merged"))) == 2
    for name in orders:
        assert sorted(name.removeprefix("COM(").removesuffix(")").split("+")) == SIX
    assert names(protocol, "weighted")[-1] == "COM(P1+P2+P3+P4+P5+P6+P6)"
    weights = [s.weights for s in protocol.steps if isinstance(s, Merge) and s.weights]
    assert weights == [tuple(FACES), (1.5, 1, 1, 1, 1, 1)]
    assert {s.method for s in protocol.steps if isinstance(s, Merge)} == {"mwma"}
    assert len({row.key for row in protocol.rows}) == len(protocol.rows)


def test_landmarks_are_refined_in_rounds_as_through_a_pool() -> None:
    settings = StudySettings(ErtSettings(num_trees_per_cascade_level=50), seed=7)
    protocol = plan(settings)
    whole = "P1+P2+P3+P4+P5+P6"
    assert names(protocol, "cascade")[-2:] == [
        f"CASCADE({whole})", f"CASCADE({whole}), thinned to 50",
    ]  # fmt: skip
    assert names(protocol, "refined") == [
        f"REFINED({whole}), round {number}{thinned}"
        for thinned in ("", ", thinned to 50")
        for number in (1, 2, 3)
    ]
    steps = {step.key: step for step in protocol.steps}
    sent = [step for step in protocol.steps if isinstance(step, Contribute)]
    assert len(sent) == 6 * 6
    assert [step.settings.seed for step in sent[:18:6]] == [7, 8, 9]
    assert [step.settings.thin for step in sent[18::6]] == [50, None, None]
    for first, second in ((sent[0], sent[6]), (sent[6], sent[12])):
        base = steps[second.base]
        assert isinstance(base, Merge)
        assert base.method == "leaf-refit"
        assert base.inputs[0] == first.base, "the next round goes on with the last result"
    assert all(step.landmarks == ("36", "37") for step in sent)


def test_every_step_comes_after_those_that_it_needs() -> None:
    for settings in (StudySettings(ErtSettings()), StudySettings(HogSvmSettings())):
        protocol = plan(settings)
        seen: set[str] = set()
        for step in protocol.steps:
            assert set(step.inputs) <= seen, title(step)
            seen.add(step.key)
        assert {row.score_key for row in protocol.rows} <= seen


def test_orders_are_other_ones_and_depend_on_the_seed() -> None:
    def orders(seed: int, count: int, parts: list[str]) -> list[str]:
        combination = CombinationSettings(orders=count)
        chosen = StudySettings(HogSvmSettings(), combination, seed=seed)
        return names(plan(chosen, parts), "order")

    assert orders(1, 4, SIX) == orders(1, 4, SIX) != orders(2, 4, SIX)
    assert orders(1, 9, SIX[:2]) == ["COM(P2+P1)"], "there are no more"
    assert len(set(orders(1, 9, SIX[:3]))) == 5
    assert orders(1, 0, SIX) == []


def test_what_cannot_be_planned_says_why() -> None:
    settings = StudySettings(HogSvmSettings())
    with pytest.raises(InvalidInputError, match="1 parts; expected 2 to 50"):
        plan(settings, SIX[:1])
    with pytest.raises(InvalidInputError, match="weights: 2 for 6 parts"):
        plan(replace(settings, combination=CombinationSettings(weights=(1, 2))))
    with pytest.raises(InvalidInputError, match="part 7 does not exist"):
        plan(replace(settings, combination=CombinationSettings(double=7)))
    with pytest.raises(InvalidInputError, match="weights is -1"):
        CombinationSettings(weights=(1, -1))
    with pytest.raises(InvalidInputError, match="step is 3"):
        RefinementSettings(step=3)


def digests_of(settings: StudySettings, **changes: str) -> dict[str, str]:
    data = {part: f"digest of {part}" for part in [*SIX, "test"]} | changes
    return step_digests(plan(settings).steps, data, {"dlib": "20"})


def changed(first: dict[str, str], second: dict[str, str]) -> set[str]:
    assert first.keys() == second.keys()
    return {key for key in first if first[key] != second[key]}


def test_a_digest_changes_with_whatever_the_result_depends_on() -> None:
    settings = StudySettings(ErtSettings())
    before = digests_of(settings)
    assert before == digests_of(settings)
    scores = {key for key in before if key.startswith("score ")}
    other = replace(settings, evaluation=EvaluationSettings(resamples=10))
    assert changed(before, digests_of(other)) == scores
    assert changed(before, digests_of(settings, test="another")) == scores
    spared = set(before) - changed(before, digests_of(settings, P6="another"))
    assert {"P1", "P5", "P1+P2+P3+P4+P5", "COM-P1+P2", "score P1"} <= spared
    assert not {"P6", "Pall", "COM-P1+P2+P3+P4+P5+P6", "score Pall"} & spared
    step = replace(settings, refinement=RefinementSettings(step=1.0))
    moved = changed(before, digests_of(step))
    assert moved
    assert all("CASCADE" in key or "REFINED" in key for key in moved)
    assert changed(before, digests_of(replace(settings, training=ErtSettings(nu=0.2)))) == set(
        before
    )
    detectors = StudySettings(HogSvmSettings())
    threads = replace(detectors, training=HogSvmSettings(threads=7))
    assert digests_of(detectors) == digests_of(threads), "the result does not depend on it"


def schedule_of(settings: StudySettings, kept: set[str]) -> Schedule:
    steps = plan(settings).steps
    faces = dict.fromkeys([*SIX, "test"], 10)
    return Schedule(plan_jobs(steps, faces), frozenset(kept))


def test_all_steps_get_their_turn_and_none_too_early() -> None:
    schedule = schedule_of(StudySettings(ErtSettings()), set())
    finished: set[str] = set()
    share = -1.0
    while (job := schedule.next_job()) is not None:
        assert set(job.needs) <= finished
        schedule.finish(job.key)
        finished.add(job.key)
        assert schedule.share > share
        share = schedule.share
    assert share == pytest.approx(1.0)
    assert finished == set(schedule.jobs)


def test_what_was_sent_in_a_round_is_used_up_when_it_is_combined() -> None:
    settings = StudySettings(ErtSettings())
    steps = plan(settings).steps
    sent = {step.key for step in steps if isinstance(step, Contribute)}
    kept = {step.key for step in steps} - sent
    schedule = schedule_of(settings, kept)
    assert schedule.next_job() is None, "it is not made again"
    assert all(schedule.is_used_up(key) for key in sent)
    [last, *_] = [s for s in reversed(steps) if isinstance(s, Merge)]
    schedule = schedule_of(settings, kept - {last.key})
    begun = [job.key for _ in range(6) if (job := schedule.next_job()) is not None]
    assert set(begun) == set(last.inputs[1:])
    assert schedule.next_job() is None
    assert not any(schedule.is_used_up(key) for key in begun)


def test_a_failure_takes_along_what_needs_it_and_nothing_else() -> None:
    schedule = schedule_of(StudySettings(HogSvmSettings()), set())
    finished = set()
    while (job := schedule.next_job()) is not None:
        if job.key == "P3":
            schedule.fail(job.key, "no faces")
        else:
            schedule.finish(job.key)
            finished.add(job.key)
    assert {"P1", "P6", "Pall", "COM-P1+P2", "P1+P2+P3", "score P1+P2+P3"} <= finished
    lost = set(schedule.jobs) - finished
    assert "COM-P1+P2+P3" in lost
    assert all("P3" in key for key in lost)
    assert schedule.keys("failed") == ["P3"]
    assert schedule.reasons["score P3"] == "needs the result of: train P3"
    steps = plan(StudySettings(HogSvmSettings())).steps
    scores = [s for s in steps if isinstance(s, Score) and s.model == "COM-P1+P2+P3"]
    assert "merge COM-P1+P2+P3" in schedule.reasons[scores[0].key]
    assert schedule.share == pytest.approx(1.0)
