"""Which persons and sessions a gaze study trains on, and which it tests on."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from site_agent.datasets.gaze.records import GazeSamples, join_samples
from site_agent.datasets.synthetic.eye_patches.dataset import RenderSettings, render_person
from site_agent.errors import InvalidInputError
from site_agent.studies.eyes import StudySamples, spread_over_sessions
from site_agent.studies.gaze.one_run import add_noise, samples_to_test, samples_to_train_on
from site_agent.studies.gaze.protocol import (
    Run,
    folds_of,
    held_out_sessions,
    plan_runs,
    plan_tuning,
)
from site_agent.studies.gaze.settings import (
    CANDIDATES,
    METHODS,
    GazeStudySettings,
    TrainingSettings,
    make_settings,
)

PERSONS = [f"p{number:02d}" for number in range(15)]
SEEDS = st.integers(0, 2**31)


@pytest.fixture(scope="module")
def samples() -> StudySamples:
    settings = RenderSettings(persons=4, frames_per_person=40, seed=3)
    persons = [render_person(settings, number) for number in settings.numbers]
    return {str(person_samples.person[0]): person_samples for person_samples in persons}


def keys_of(samples: dict[str, GazeSamples]) -> set[tuple[str, str]]:
    together = join_samples(list(samples.values()))
    return set(zip(together.person.tolist(), together.session.tolist(), strict=True))


@given(st.integers(3, 40), st.integers(0, 40), SEEDS)
def test_folds_hold_every_person_once(count: int, folds: int, seed: int) -> None:
    persons = [f"p{number}" for number in range(count)]
    if folds == 1 or folds > count:
        with pytest.raises(InvalidInputError, match=f"folds is {folds} and the data have {count} "):
            folds_of(persons, folds, seed)
        return
    folds_found = folds_of(persons, folds, seed)
    assert len(folds_found) == (folds or count)
    assert sorted(name for fold in folds_found for name in fold) == sorted(persons)
    assert max(map(len, folds_found)) - min(map(len, folds_found)) <= 1


@given(st.integers(2, 60), SEEDS)
def test_a_fifth_of_the_sessions_is_held_out(count: int, seed: int) -> None:
    sessions = [f"day{number}" for number in range(count)]
    held_out = held_out_sessions("p00", sessions, seed)
    assert set(held_out) < set(sessions)
    assert len(set(held_out)) == len(held_out) == max(1, round(count / 5))
    assert held_out == held_out_sessions("p00", sessions[::-1], seed)


def test_one_session_cannot_be_held_out() -> None:
    with pytest.raises(InvalidInputError, match="p00 has one session"):
        held_out_sessions("p00", ["day1"], 0)


def test_person_specific_holds_out_whole_sessions(samples: StudySamples) -> None:
    persons = tuple(samples)
    run = Run("person-specific", "fedavg", "all", 1, persons, persons, TrainingSettings())
    train, test = (
        samples_to_train_on(samples, run, make_settings(quick=True)),
        samples_to_test(samples, run),
    )
    assert keys_of(train).isdisjoint(keys_of(test))
    for name, person_samples in samples.items():
        assert len(train[name]) + len(test[name]) == len(person_samples)
        assert len(test[name]) > 0


def test_person_independent_holds_out_whole_persons(samples: StudySamples) -> None:
    for run in plan_runs(tuple(samples), GazeStudySettings(folds=2, protocols=("persons",))):
        if run.protocol == "person-independent":
            assert set(run.train).isdisjoint(run.test)
            assert set(run.train) | set(run.test) == set(samples)
            assert len(samples_to_test(samples, run)[run.test[0]]) == len(samples[run.test[0]])


def test_only_noisy_sites_train_on_noise(samples: StudySamples) -> None:
    first, second, *rest = samples
    run = Run("noise", "fedavg", "50percent", 0, (first, second), tuple(rest), TrainingSettings(),
              noisy=(second,))  # fmt: skip
    train = samples_to_train_on(samples, run, make_settings(quick=True))
    assert (train[first].patches == samples[first].patches).all()
    change = train[second].patches.astype(float) - samples[second].patches
    own_sd = samples[second].patches.std(axis=(1, 2))
    assert 0.4 < np.median(change.std(axis=(1, 2)) / own_sd) < 0.51, "half of the picture's own"
    of_range = add_noise(samples[second], 0.5, "range", 0)
    dark = of_range.patches.astype(float) - samples[second].patches
    assert 60 < dark.std() < 127.5, "of the whole range, but cut off"
    for name, person_samples in samples_to_test(samples, run).items():
        assert (person_samples.patches == samples[name].patches).all()
    assert (add_noise(samples[first], 1e-9, "range", 0).patches
            == samples[first].patches).all()  # fmt: skip


def test_a_limit_keeps_samples_of_all_sessions(samples: StudySamples) -> None:
    largest = max(samples.values(), key=len)
    kept = spread_over_sessions(largest, 20)
    assert len(kept) == 20
    assert set(kept.session) == set(largest.session)
    assert spread_over_sessions(largest, 0) is largest


def test_a_quick_study_has_all_methods_and_protocols() -> None:
    runs = plan_runs(PERSONS, make_settings(quick=True))
    assert len({run.key for run in runs}) == len(runs)
    for method in METHODS[1:]:
        folds = [run for run in runs if run.protocol == "person-independent"
                 and run.method == method]  # fmt: skip
        assert len(folds) == 15
        for seed in range(3):
            tested = [name for run in folds if run.seed == seed for name in run.test]
            assert sorted(tested) == PERSONS
    assert sum(run.protocol == "individual" for run in runs) == 45
    hostile = [run for run in runs if run.protocol == "hostile"]
    assert {(len(run.train), len(run.hostile)) for run in hostile} == {(10, 3), (10, 0)}
    shares = {len(run.noisy) for run in runs if run.protocol == "noise"}
    assert shares == {0, 3, 6, 9}


def test_methods_are_tuned_on_other_seeds_with_equal_budgets() -> None:
    assert len({len(CANDIDATES[method]) for method in METHODS}) == 1
    runs = plan_tuning(PERSONS, make_settings(quick=True))
    persons = {(run.method, run.group.partition("-")[0], run.test) for run in runs}
    assert len(persons) == sum(len(candidates) for candidates in CANDIDATES.values())
    individual = {run.protocol == "individual" for run in runs if run.method == "individual"}
    assert individual == {True}, "they are tuned at the passes at which they run"


def test_robustness_needs_persons_to_test_on() -> None:
    with pytest.raises(InvalidInputError, match="10 persons; expected more than 10"):
        plan_runs(PERSONS[:10], GazeStudySettings(protocols=("noise",)))
