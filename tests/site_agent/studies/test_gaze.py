"""The studies of gaze networks: persons and sessions of each run, hostile updates, and verdicts."""

import csv
import math
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from aggregators.methods.round_options import LocalTraining
from aggregators.models import NetworkContribution
from site_agent.datasets.gaze.records import GazeSamples
from site_agent.datasets.synthetic.eye_patches.dataset import RenderSettings, render_person
from site_agent.errors import InvalidInputError
from site_agent.federated.local_training import train_at_site
from site_agent.networks.modules import new_network
from site_agent.settings import with_values
from site_agent.studies.engine import draw_and_write
from site_agent.studies.eyes import StudySamples, spread_over_sessions
from site_agent.studies.gaze import (
    add_noise,
    attack_contribution,
    federation_plan,
    folds_of,
    held_out_sessions,
    plan_run,
    samples_to_test,
    samples_to_train_on,
)
from site_agent.studies.protocol_file import Step, StepJob, namespace, read_protocol
from tests.site_agent.studies.drawn_results import results_of, table_of

PERSONS = [f"p{number:02d}" for number in range(15)]
SEEDS = st.integers(0, 2**31)
QUICK = read_protocol("gaze").quick


@pytest.fixture(scope="module")
def samples() -> StudySamples:
    settings = RenderSettings(persons=4, frames_per_person=40, seed=3)
    persons = [render_person(settings, number) for number in settings.numbers]
    return {str(person_samples.person[0]): person_samples for person_samples in persons}


def planned(step: Step, settings: Any, persons: list[str]) -> Any:
    nowhere = Path()
    return plan_run(StepJob(step, namespace(settings), nowhere, nowhere, nowhere, {}), persons)


def run_of(step: str, persons: list[str], **factors: Any) -> Any:
    return planned(Step(step, step, "", factors), QUICK, persons)


def keys_of(samples: dict[str, GazeSamples]) -> set[tuple[str, str]]:
    together = GazeSamples.join(list(samples.values()))
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
    run = run_of("specific", [*samples], seed=1, method="fedavg")
    train, test = samples_to_train_on(samples, run, QUICK), samples_to_test(samples, run)
    assert keys_of(train).isdisjoint(keys_of(test))
    for name, person_samples in samples.items():
        assert len(train[name]) + len(test[name]) == len(person_samples)
        assert len(test[name]) > 0


def test_only_noisy_sites_train_on_noise(samples: StudySamples) -> None:
    first, second, *rest = samples
    run = SimpleNamespace(
        train=(first, second), test=tuple(rest), noisy=(second,), seed=0, hostile=()
    )
    train = samples_to_train_on(samples, run, QUICK)  # type: ignore[arg-type]
    assert (train[first].patches == samples[first].patches).all()
    change = train[second].patches.astype(float) - samples[second].patches
    own_sd = samples[second].patches.std(axis=(1, 2))
    assert 0.4 < np.median(change.std(axis=(1, 2)) / own_sd) < 0.51, "half of the picture's own"
    of_range = add_noise(samples[second], 0.5, "range", 0)
    dark = of_range.patches.astype(float) - samples[second].patches
    assert 60 < dark.std() < 127.5, "of the whole range, but cut off"
    for name, tested in samples_to_test(samples, run).items():  # type: ignore[arg-type]
        assert (tested.patches == samples[name].patches).all()
    assert (add_noise(samples[first], 1e-9, "range", 0).patches
            == samples[first].patches).all()  # fmt: skip


def test_a_limit_keeps_samples_of_all_sessions(samples: StudySamples) -> None:
    largest = max(samples.values(), key=len)
    kept = spread_over_sessions(largest, 20)
    assert len(kept) == 20
    assert set(kept.session) == set(largest.session)
    assert spread_over_sessions(largest, 0) is largest


def test_a_quick_study_has_all_methods_and_persons() -> None:
    steps = read_protocol("gaze").steps(None, QUICK)
    runs = [planned(step, QUICK, PERSONS) for step in steps]
    assert len({step.key for step in steps}) == len(steps)
    for method in ("data-centre", "fedavg", "adaptive"):
        folds = [run for run in runs if (run.step, run.method) == ("independent", method)]
        assert len(folds) == 15
        assert all(set(run.train) ^ set(run.test) == set(PERSONS) for run in folds)
        for seed in range(3):
            tested = [name for run in folds if run.seed == seed for name in run.test]
            assert sorted(tested) == PERSONS
    assert sum(run.step == "individual" for run in runs) == 45
    hostile = [run for run in runs if run.step == "attacked"]
    assert {(len(run.train), len(run.hostile)) for run in hostile} == {(10, 3), (10, 0)}
    assert {len(run.noisy) for run in runs if run.step == "noisy"} == {0, 3, 6, 9}
    for run in runs:
        alone = run.step == "individual"
        passes = QUICK.individual_passes if alone else QUICK.passes  # type: ignore[attr-defined]
        assert run.rounds * run.training.epochs == passes


def test_plans_are_those_of_the_paper() -> None:
    adaptive = federation_plan(
        run_of("independent", PERSONS, seed=0, fold=1, method="adaptive"), QUICK
    )
    assert adaptive.method == "fedadam"
    assert adaptive.method_options["root"] == "sqrt(v+tau^2)"
    assert adaptive.method_options["mean"] == "sites"
    assert adaptive.method_options["beta1"] == adaptive.method_options["beta2"]
    assert (adaptive.cohort, adaptive.training.momentum) == (0.8, 0.9)
    assert adaptive.training.learning_rate_decay == 0.1
    # Its loss is the sum over both angles, and here their mean is trained: twice its rate of 1e-5.
    training = read_protocol("gaze-paper").settings.training  # type: ignore[attr-defined]
    for method in ("individual", "data_centre", "fedavg", "adaptive"):
        assert getattr(training, method).learning_rate == 2e-5
    plans = {
        rule: federation_plan(run_of("attacked", PERSONS, seed=0, attack="noise", rule=rule), QUICK)
        for rule in ("trimmed-mean", "krum")
    }
    assert plans["trimmed-mean"].method_options["trim"] == 0.3
    assert plans["krum"].method_options["hostile"] == 3
    assert plans["krum"].cohort == 1.0


def test_methods_are_tuned_on_other_seeds_with_equal_budgets() -> None:
    protocol = read_protocol("gaze-tuning")
    steps = protocol.steps(None, protocol.quick)
    runs = [planned(step, protocol.quick, PERSONS) for step in steps]
    assert len({run.test for run in runs}) == 1
    assert all(run.seed >= 1000 for run in runs)
    candidates = {(run.method, str(run.training)) for run in runs}
    counts = {
        method: sum(name == method for name, _ in candidates)
        for method in ("individual", "data-centre", "fedavg", "adaptive")
    }
    assert set(counts.values()) == {12}
    individual = [run for run in runs if run.method == "individual"]
    assert {run.rounds for run in individual} == {40}, "the passes at which they run"
    assert {run.train for run in individual} == {(run.train[0],) for run in individual}


@pytest.mark.parametrize(
    ("changes", "complaint"),
    [
        ({"drawn_persons": 10, "protocols": "noise"}, "10 persons; expected more than 10"),
        ({"rules": "median,mwma"}, "rules: mwma; expected some of fedavg"),
        ({"hostile_sites": 11}, "hostile_sites is 11, expected at most robust_sites, 10"),
        ({"protocols": "person"}, "expected persons, noise, hostile"),
    ],
)
def test_settings_that_test_nothing_are_refused(changes: dict[str, Any], complaint: str) -> None:
    with pytest.raises(Exception, match=complaint):
        read_protocol("gaze").steps(None, with_values(QUICK, changes))


@pytest.fixture(scope="module")
def update() -> NetworkContribution:
    samples = render_person(RenderSettings(persons=1, frames_per_person=8), 0)
    return train_at_site(
        new_network("gaze-lenet"), "0" * 64, samples, LocalTraining(), site="a", round_number=1,
        guarded=False,
    ).contribution  # fmt: skip


def test_hostile_updates_are_what_they_are_called(update: NetworkContribution) -> None:
    random = np.random.default_rng(0)
    honest = update.network.tensors["conv2.weight"]
    assert np.array_equal(
        attack_contribution(update, "sign-flip", random).network.tensors["conv2.weight"], -honest
    )
    large = attack_contribution(update, "x50", random).network.tensors["conv2.weight"]
    assert np.allclose(large, 50 * honest, rtol=1e-6)
    noise = attack_contribution(update, "noise", random).network.tensors["conv2.weight"]
    assert noise.std() == pytest.approx(10 * honest.std(), rel=0.05)
    assert abs(np.corrcoef(noise.ravel(), honest.ravel())[0, 1]) < 0.03
    assert attack_contribution(update, "noise", random).samples == update.samples


# Tables and verdicts, computed by hand from errors that are given.
SIX = [f"p{number}" for number in range(6)]
_OF_METHOD = {"individual": 4.0, "data-centre": 2.0, "fedavg": 3.0, "adaptive": 2.7}
_RULES = ("fedavg", "median", "krum")


def error_of(method: str, person: str, seed: int) -> float:
    return _OF_METHOD.get(method, 3.3) + 0.1 * SIX.index(person) + 0.2 * seed


def rows_of_methods() -> dict[str, list[dict[str, Any]]]:
    shared = {"constant_deg": 10.0, "passes": 2, "failed": ""}

    def rows(method: str, **factors: Any) -> list[dict[str, Any]]:
        return [
            {"method": method, "seed": seed, "person": name,
             "error_deg": error_of(method, name, seed), **shared, **factors}
            for seed in range(2) for name in SIX
        ]  # fmt: skip

    methods = ("data-centre", "fedavg", "adaptive")
    curve = [
        {"method": "fedavg", "pass": number, "curve_train_deg": 5.0, "curve_test_deg": 6.0,
         "curve_train_loss": 0.05, "curve_test_loss": 0.06, "failed": ""}
        for number in (1, 2)
    ]  # fmt: skip
    return {
        "independent": [row for method in methods for row in rows(method)] + curve,
        "specific": [row for method in methods for row in rows(method)],
        "individual": [
            {**row, "error_deg": row["error_deg"] - 0.01 * number * (row["person"] != name)}
            for number, name in enumerate(SIX)
            for row in rows("individual", alone=name)
        ],
    }


def rows_under_attack() -> dict[str, list[dict[str, Any]]]:
    attacked = [
        {"rule": rule, "attack": attack, "seed": seed, "person": "p5", "failed": "",
         "error_deg": None if (rule, attack) == ("fedavg", "x50")
         else error_of(rule, "p5", seed) * (1.1 if attack == "x50" else 1.0)}
        for rule in _RULES for attack in ("none", "x50") for seed in range(2)
    ]  # fmt: skip
    noisy = [
        {"method": method, "share": share, "seed": seed, "person": "p5", "failed": "",
         "error_deg": error_of(method, "p5", seed) * (3 if share else 1)}
        for method in ("fedavg", "adaptive") for share in (0.0, 0.4) for seed in range(2)
    ]  # fmt: skip
    return {"attacked": attacked, "noisy": noisy}


def read(path: Path) -> list[dict[str, str]]:
    with path.open(newline="") as stream:
        return list(csv.DictReader(stream))


def test_the_scores_of_methods(tmp_path: Path) -> None:
    results = results_of("gaze", **rows_of_methods())
    findings = results.findings()
    files = draw_and_write(results, tmp_path, findings, ["poolctl", "study", "gaze"])
    lines = {(line["protocol"], line["method"]): line for line in read(tmp_path / "methods.csv")}
    assert len(lines) == 8
    fedavg = lines["person-independent", "fedavg"]
    assert float(fedavg["error_deg"]) == pytest.approx(3.35)
    assert float(fedavg["interval_deg"]) == pytest.approx(12.706 * 0.1, abs=0.01)
    assert float(fedavg["worst_person_deg"]) == pytest.approx(3.6)
    assert float(fedavg["best_person_deg"]) == pytest.approx(3.1)
    assert float(fedavg["range_deg"]) == pytest.approx(0.5)
    assert float(fedavg["better_percent"]) == pytest.approx(66.5)
    gap = 100 * ((3.25 / 2.25 - 1) + (3.45 / 2.45 - 1)) / 2
    assert float(fedavg["against_data_centre_percent"]) == pytest.approx(gap, abs=0.05)
    assert len(read(tmp_path / "matrix.csv")) == 36
    left_out = {(line["person"], line["method"]): line for line in read(tmp_path / "left_out.csv")}
    assert len(left_out) == 6 * 4
    assert float(left_out["p0", "individual"]["error_deg"]) == pytest.approx(4.09), "of p1"
    assert float(left_out["p5", "individual"]["error_deg"]) == pytest.approx(4.60), "of p0"
    assert any(
        line.startswith("person-independent: adaptive against FedAvg -9.0") for line in findings
    )
    assert "at least 57 % better" in findings[0]
    names = {file.name for file in files}
    assert names >= {"table.md", "matrix.png", "persons.png", "curves.png"}
    assert not (tmp_path / "hostile.csv").exists(), "no rows"
    assert all(file.stat().st_size for file in files)


def test_one_seed_has_no_interval() -> None:
    rows = [row for row in rows_of_methods()["independent"] if row.get("seed") == 0]
    findings = results_of("gaze", independent=rows).findings()
    assert "person-independent: adaptive against FedAvg -9.2 %" in findings


def test_robustness_is_against_the_rules_own_clean_error() -> None:
    results = results_of("gaze", **rows_under_attack())
    lines = {(row["rule"], row["attack"]): row for row in table_of(results, "hostile")}
    assert lines["median", "x50"]["times_own_clean"] == pytest.approx(1.1)
    assert math.isinf(lines["fedavg", "x50"]["error_deg"])
    price = [100 * (error_of("krum", "p5", s) / error_of("fedavg", "p5", s) - 1) for s in range(2)]
    assert lines["krum", "none"]["price_percent"] == pytest.approx(sum(price) / 2)
    assert lines["krum", "x50"]["price_percent"] is None
    findings = results.findings()
    assert "median stands x50: 1.10 times its error without attackers" in findings
    assert "fedavg does not stand x50: inf times its error without attackers" in findings
    assert any(
        line.startswith("adaptive with noise at 40 % of the sites") and "3.00 times" in line
        for line in findings
    )
    noise = {(row["method"], row["noisy_sites"]): row for row in table_of(results, "noise")}
    assert noise["adaptive", "40 %"]["times_clean"] == pytest.approx(3.0)


def test_a_run_that_ended_early_is_named() -> None:
    row = {"method": "fedavg", "seed": 0, "person": "p0", "failed": "the loss is nan"}
    findings = results_of("gaze", independent=[row]).findings()
    assert "independent ended early: the loss is nan" in findings


def test_the_best_candidate_of_each_method_is_named() -> None:
    rows = [
        {"method": "fedavg", "learning_rate": rate, "batch_size": size, "epochs": 1,
         "person": "p0", "error_deg": None if rate > 0.02 else 100 * rate + size}
        for rate in (0.01, 0.02, 0.04) for size in (8, 32)
    ]  # fmt: skip
    results = results_of("gaze-tuning", tuned_fedavg=rows)
    best = [row for row in table_of(results, "candidates") if row["best"]]
    assert [(row["learning_rate"], row["batch_size"]) for row in best] == [(0.01, 8)]
    assert results.findings() == ["fedavg: best learning_rate=0.01, batch_size=8, epochs=1"]
