"""``poolctl study gaze``: its results, and refusals."""

import csv
import json
from pathlib import Path

import pytest

from tests.cli.conftest import Run

# A network that is trained once on a few samples learns little: this is about the study.
TINY = (
    "--set", "folds=2", "--set", "seeds=1", "--set", "passes=1",
    *(word for setting in ("individual_passes=1", "drawn_persons=4", "frames=12", "amount=1",
                        "fedavg.epochs=1", "adaptive.epochs=1") for word in ("--set", setting)),
)  # fmt: skip


def read(path: Path) -> list[dict[str, str]]:
    with path.open(newline="") as stream:
        return list(csv.DictReader(stream))


def test_a_study_has_its_tables_and_can_be_repeated(
    tmp_path: Path, poolctl: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    study = tmp_path / "study"
    persons = ("--set", "protocols=persons")
    arguments = ("study", "gaze", "--drawn", "--quick", *TINY, *persons, "--workers", 1)
    assert poolctl(*arguments, "-o", study, "--json").data["runs"] == {"done": 13, "kept": 0}
    lines = read(study / "methods.csv")
    assert [line["method"] for line in lines] == 2 * [
        "individual", "data-centre", "fedavg", "adaptive",
    ]  # fmt: skip
    for line in lines:
        assert 0 < float(line["error_deg"]) < 90
        assert int(line["passes"]) == 1
        assert float(line["best_person_deg"]) <= float(line["worst_person_deg"])
    assert len(read(study / "matrix.csv")) == 16
    assert (study / "persons.png").stat().st_size > 1000
    text = (study / "table.md").read_text()
    assert "| person-independent | adaptive |" in text

    assert poolctl(*arguments, "-o", study, "--json").data["runs"] == {"done": 0, "kept": 13}
    repeat = json.loads((study / "study.json").read_text())["repeat"]
    assert repeat[:5] == ["poolctl", "study", "gaze", "--drawn", "--quick"]
    monkeypatch.chdir(study)
    plan = poolctl(*repeat[1:], "--dry-run", "--json").data
    assert len(plan["runs"]) == 13
    assert {"drawn.frames=12", "passes=1"} < set(repeat)


@pytest.mark.slow
def test_hostile_updates_are_combined_by_any_rule(tmp_path: Path, poolctl: Run) -> None:
    rules = ("--set", "rules=fedavg,geometric-median", "--set", "protocols=hostile")
    sizes = ("--set", "robust_sites=3", "--set", "hostile_sites=1", "--set", "robust_seeds=1")
    arguments = ("study", "gaze", "--drawn", "--quick", *TINY, *rules, *sizes, "--workers", 1)
    outcome = poolctl(*arguments, "-o", tmp_path / "study")
    assert outcome.code == 0, outcome.err
    lines = read(tmp_path / "study" / "hostile.csv")
    assert {line["rule"] for line in lines} == {"fedavg", "geometric-median"}
    assert len(lines) == 2 * 4


def test_what_a_study_of_gaze_refuses(tmp_path: Path, poolctl: Run) -> None:
    study = tmp_path / "study"
    assert poolctl("study", "gaze", "-o", study).code == 2
    assert poolctl("study", "gaze", tmp_path, "--drawn", "-o", study).code == 2
    unknown = poolctl(
        "study", "gaze", "--drawn", "-o", study, "--set", "protocols=person", "--json"
    )
    assert "expected persons, noise, hostile" in unknown.error["message"]
    few = poolctl("study", "gaze", "--drawn", "-o", study, "--set", "drawn_persons=9", "--json")
    assert "9 persons; expected more than 10" in few.error["message"]
    rules = ("--set", "rules=median,mwma", "--json")
    refused = poolctl("study", "gaze", "--drawn", "-o", study, *rules)
    assert "rules: mwma; expected some of fedavg" in refused.error["message"]
    assert not study.exists()
    study.mkdir()
    (study / "study.json").write_text('{"schema": "poolctl-model-study/1"}')
    persons = ("--set", "protocols=persons", "-o", study, "--json")
    other = poolctl("study", "gaze", "--drawn", "--quick", *TINY, *persons)
    assert "holds another study" in other.error["message"]


def test_a_plan_is_told_and_nothing_written(tmp_path: Path, poolctl: Run) -> None:
    study = tmp_path / "study"
    arguments = ("study", "gaze", "--drawn", "--quick", "-o", study, "--dry-run")
    assert "independent" in poolctl(*arguments).out
    tuned = poolctl(*arguments, "--json").data
    paper = poolctl("study", "gaze-paper", *arguments[2:], "--json").data
    assert tuned["runs"] == paper["runs"]
    training = paper["settings"]["training"].values()
    # The paper sums the losses of yaw and pitch; ours is their mean.
    assert {method["learning_rate"] for method in training} == {2e-5}
    tuning = poolctl("study", "gaze-tuning", *arguments[2:], "--json").data["runs"]
    assert all(run["seed"] >= 1000 for run in tuning)
    assert not study.exists()


@pytest.mark.slow
@pytest.mark.timeout(5400)
def test_a_quick_study_has_methods_that_learn_and_rules_that_stand(
    tmp_path: Path, poolctl: Run
) -> None:
    """It takes 20 to 60 minutes on two cores."""
    study = tmp_path / "study"
    poolctl("study", "gaze", "--drawn", "--quick", "-o", study, "--json").data  # noqa: B018
    for line in read(study / "methods.csv"):
        assert float(line["better_percent"]) >= 40, line
    times = {
        (line["rule"], line["attack"]): float(line["times_own_clean"])
        for line in read(study / "hostile.csv")
    }
    for attack in ("noise", "sign-flip", "x50"):
        for rule in ("median", "trimmed-mean", "krum"):
            assert times[rule, attack] <= 1.2, (rule, attack)
    assert times["fedavg", "x50"] > 1.2
