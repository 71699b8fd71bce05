"""The numbers of a gaze study: computed by hand from errors that are given."""

import csv
import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from site_agent.studies.gaze.protocol import Run, plan_runs, plan_tuning
from site_agent.studies.gaze.report import write_report, write_tables, write_tuning
from site_agent.studies.gaze.results import estimate, method_scores
from site_agent.studies.gaze.settings import METHODS, GazeStudySettings, make_settings

PERSONS = [f"p{number}" for number in range(6)]
SETTINGS = GazeStudySettings(
    seeds=2, folds=2, robust_seeds=2, robust_sites=5, hostile_sites=1, noise_shares=(0, 0.4)
)
_OF_METHOD = {"individual": 4.0, "data-centre": 2.0, "fedavg": 3.0, "adaptive": 2.7}


def error_of(run: Run, person: str) -> float | None:
    if run.protocol == "hostile" and run.method == "fedavg" and run.attack == "x50":
        return None
    error = _OF_METHOD.get(run.method, 3.3) + 0.1 * PERSONS.index(person) + 0.2 * run.seed
    return error * (1 + len(run.noisy)) * (1.1 if run.hostile else 1.0)


@pytest.fixture
def runs() -> tuple[Run, ...]:
    return plan_runs(PERSONS, SETTINGS)


@pytest.fixture
def results(runs: tuple[Run, ...]) -> dict[str, Any]:
    return {
        run.key: {
            "errors": {name: error_of(run, name) for name in run.test},
            "constant": dict.fromkeys(run.test, 10.0),
            "samples": dict.fromkeys(run.test, 5),
            "curve": [[1, 5.0, 6.0], [2, 4.0, 5.0]],
            "failed": "",
        }
        for run in runs
    }


def read(path: Path) -> list[dict[str, str]]:
    with path.open(newline="") as stream:
        return list(csv.DictReader(stream))


def test_the_interval_is_students() -> None:
    interval = estimate([1.0, 2.0, 3.0])
    assert interval.mean == 2
    assert interval.half == pytest.approx(4.303 / math.sqrt(3))
    assert math.isnan(estimate([1.0]).half)
    assert math.isinf(estimate([math.inf, 1.0]).mean)


def test_the_scores_of_methods(
    runs: tuple[Run, ...], results: dict[str, Any], tmp_path: Path
) -> None:
    files, findings = write_report(tmp_path, runs, results, ["poolctl", "study", "gaze"])
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
    assert any(
        line.startswith("person-independent: adaptive against FedAvg -9.0") for line in findings
    )
    assert "at least 57 % better" in findings[0]
    assert {file.name for file in files} >= {
        "table.md", "matrix.png", "persons.png", "curves.png", "noise.png",
    }  # fmt: skip
    assert all(file.stat().st_size for file in files)


def test_robustness_is_against_the_rules_own_clean_error(
    runs: tuple[Run, ...], results: dict[str, Any], tmp_path: Path
) -> None:
    _, findings = write_tables(tmp_path, runs, results, [])
    lines = {(line["rule"], line["attack"]): line for line in read(tmp_path / "hostile.csv")}
    assert float(lines["median", "x50"]["times_own_clean"]) == pytest.approx(1.1)
    assert lines["fedavg", "x50"]["error_deg"] == "inf"
    price = [
        100 * ((3.3 + shift) / (3.0 + shift) - 1)
        for shift in (0.1 * PERSONS.index(run.test[0]) + 0.2 * run.seed
                      for run in runs if run.protocol == "hostile" and run.method == "krum"
                      and run.attack == "none")
    ]  # fmt: skip
    expected = sum(price) / len(price)
    assert float(lines["krum", "none"]["price_percent"]) == pytest.approx(expected, abs=0.05)
    assert "median stands x50: 1.10 times its error without attackers" in findings
    assert "fedavg does not stand x50: inf times its error without attackers" in findings
    assert any(
        line.startswith("adaptive with noise at 40 % of the sites") and "3.00 times" in line
        for line in findings
    )
    noise = {(line["method"], line["noisy_sites"]): line for line in read(tmp_path / "noise.csv")}
    assert float(noise["adaptive", "40 %"]["times_clean"]) == pytest.approx(3.0)


def test_runs_that_are_missing_leave_their_rows_out(
    runs: tuple[Run, ...], results: dict[str, Any], tmp_path: Path
) -> None:
    some = {key: result for key, result in results.items() if "hostile" not in key}
    write_tables(tmp_path, runs, some, [])
    assert not (tmp_path / "hostile.csv").exists()
    assert len(method_scores(runs, {})) == 0


def test_the_best_candidate_of_each_method_is_named(tmp_path: Path) -> None:
    settings = replace(make_settings(quick=True), folds=3)
    tuning = plan_tuning(PERSONS, settings)

    def error(run: Run) -> float:
        return run.training.learning_rate * 100 + run.training.batch_size + run.training.tau

    results = {run.key: {"errors": {name: error(run) for name in run.test}} for run in tuning}
    write_tuning(tmp_path, tuning, results, [])
    lines = read(tmp_path / "candidates.csv")
    best = {line["method"]: line for line in lines if line["best"]}
    assert set(best) == set(METHODS)
    for method, line in best.items():
        errors = [float(line["error_deg"]) for line in lines if line["method"] == method]
        assert float(line["error_deg"]) == min(errors)
