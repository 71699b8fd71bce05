"""Tables and verdicts of studies: gaze, split training, privacy."""

import csv
import json
import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from site_agent.datasets.gaze.generic_layout import write_samples
from site_agent.settings import with_values
from site_agent.studies.cross_encoder import _left_out
from site_agent.studies.engine import Conduct, StudyResults, hold_study
from site_agent.studies.eyes import open_data
from site_agent.studies.protocol_file import read_protocol
from site_agent.studies.results import Results
from site_agent.studies.split import split_plan
from tests.site_agent.federated.small_sites import samples_at
from tests.site_agent.studies.drawn_results import results_of, table_of


def ask(expression: str, values: list[Any]) -> Any:
    rows = [{"shots": number, "error_deg": value} for number, value in enumerate(values)]
    results: Results = results_of("cross-encoder", tested=rows)
    _, ((answer,),) = results.query(f"SELECT {expression} FROM tested")
    return answer


@pytest.mark.parametrize(
    ("expression", "values", "expected"),
    [
        ("mean(error_deg)", [1.0, None, 2.0, 3.0], 2),
        ("mean(error_deg)", [None], None),
        ("mean(coalesce(error_deg, 9e999))", [1.0, None], math.inf),
        ("sd(error_deg)", [1.0, 2.0, 3.0], 1),
        ("half(error_deg)", [1.0, 2.0, 3.0], 4.302653 / math.sqrt(3)),
        ("half(error_deg)", [1.0], None),
        ("half(error_deg)", [1.0, 1.0, 1.0], None),
        ("low(error_deg)", [2.0, 2.0, 2.0], None),
        ("low(error_deg)", [2.0, 3.0], None),
        ("high(error_deg, -shots) > mean(error_deg)", [1.0, 2.0, 3.0], 1),
        ("percent(error_deg)", [0.0, 1 / 3], "17 % (0 to 33)"),
        ("percent(error_deg)", [1.0, 1.0], "100 %"),
        ("label('pca') || place('pca') || label('new')", [0.0], "PCA-126new"),
        (":draws", [0.0], 5),
        ("printf('%d %% ± %.2g', mean(error_deg), half(error_deg))", [1.0], "1 % ± -"),
    ],
)
def test_aggregates_labels_and_settings(expression: str, values: list[Any], expected: Any) -> None:
    answer = ask(expression, values)
    assert answer == (expected if isinstance(expected, str | None) else pytest.approx(expected))


PERSONS = [f"p{number}" for number in range(7)]

SETTINGS = with_values(read_protocol("cross-encoder").settings, {"seeds": 3, "left_out": 2})


def rows_of(gains: dict[str, float]) -> list[dict[str, Any]]:
    """Return errors that differ from person to person, and by `gains` from method to method."""
    return [
        {
            "method": method, "seed": seed, "person": name, "shots": shots, "draw": draw,
            "head": "own",
            "error_deg": PERSONS.index(name) * (1 + 0.01 * seed * gain) + 5 + gain + draw / 10,
        }
        for method, gain in gains.items()
        for seed in range(3)
        for name in _left_out(PERSONS, SETTINGS, seed)
        for shots in (10, 100)
        for draw in range(3)
    ]  # fmt: skip


def test_each_seed_leaves_other_persons_out() -> None:
    left_out = [_left_out(PERSONS, SETTINGS, seed) for seed in range(4)]
    assert left_out == [["p0", "p1"], ["p2", "p3"], ["p4", "p5"], ["p0", "p6"]]


def test_differences_are_paired_by_person() -> None:
    rows = rows_of({"cross-encoder": 0.0, "random": 2.0, "pca": 0.5})
    results = results_of("cross-encoder", tested=rows)
    scores = {(row["method"], row["shots"]): row for row in table_of(results, "few_shot")}
    random = scores["random encoder", 100]
    assert random["persons"] == random["persons_worse"] == 6
    assert random["difference_deg"] == pytest.approx(2.1, abs=0.2)
    # Persons differ by degrees, and pairs by tenths.
    assert random["difference_high_deg"] - random["difference_low_deg"] < 0.3
    assert random["high_deg"] - random["low_deg"] > 1
    assert scores["federated cross-encoder", 10]["difference_deg"] is None
    (verdict,) = results.findings()
    assert verdict.startswith("At 100 shots the federated cross-encoder, 7.60 degrees, is better")
    assert "better than PCA-12" in verdict
    assert "better on 6 of 6 persons" in verdict


@pytest.mark.parametrize(
    ("gain", "expected"), [(-2.0, "worse than PCA-12"), (0.0, "not clearly different from PCA-12")]
)
def test_a_negative_result_is_said(gain: float, expected: str) -> None:
    (verdict,) = results_of(
        "cross-encoder", tested=rows_of({"cross-encoder": 0.0, "pca": gain})
    ).findings()
    assert expected in verdict


@pytest.mark.parametrize(
    ("changes", "complaint"),
    [
        ({"methods": "cross-encoder,efc"}, "expected cross-encoder, centralised"),
        ({"methods": "pca"}, "expected cross-encoder among them"),
        ({"architecture": "gaze-lenet"}, "gaze-lenet is a gaze network"),
        ({"shots": []}, "shots: "),
        ({"drawn_persons": 3, "left_out": 2}, "3 persons; expected at least 4: 2 are left out"),
    ],
)
def test_settings_that_compare_nothing_are_refused(changes: dict[str, Any], complaint: str) -> None:
    protocol = read_protocol("cross-encoder")
    with pytest.raises(Exception, match=complaint):
        protocol.steps(None, with_values(protocol.settings, changes))


def test_heads_from_shots_of_another_person_have_a_table_of_their_own() -> None:
    shots = [row for row in rows_of({"cross-encoder": 0.0, "byol": 2.0}) if row["shots"] == 100]
    rows = [*shots, *({**row, "head": "other", "error_deg": row["error_deg"] + 4} for row in shots)]
    results = results_of("cross-encoder", tested=rows)
    others = {row["method"]: row for row in table_of(results, "other_person")}
    assert others["BYOL, centralised"]["difference_deg"] == pytest.approx(2.1, abs=0.2)
    same = {row["method"]: row for row in table_of(results, "few_shot")}
    assert others["BYOL, centralised"]["error_deg"] == pytest.approx(
        same["BYOL, centralised"]["error_deg"] + 4
    )


SPLIT_PROTOCOL = read_protocol("split")


def test_a_study_is_done_once_and_shows_every_method(tmp_path: Path) -> None:
    data = tmp_path / "gaze"
    data.mkdir()
    write_samples(data, [samples_at(number, 10) for number in range(6)])
    methods = ("mean-gaze", "fedavg", "v1")
    sizes: dict[str, Any] = {
        "methods": list(methods), "rounds": 1, "folds": 1, "levels": [0.0], "passes": 1,
        "learning_rate": 0.002,
    }  # fmt: skip
    settings = with_values(SPLIT_PROTOCOL.quick, sizes)
    arguments = (
        SPLIT_PROTOCOL,
        tmp_path / "study",
        open_data([data]),
        settings,
        Conduct(workers="1"),
    )
    outcome = hold_study(*arguments)
    assert (len(outcome.results), outcome.kept, outcome.failed) == (len(methods) + 1, 0, {})
    text = outcome.files[0].read_text()
    assert text.startswith("V1 has an error of ")
    assert all(f"| {SPLIT_PROTOCOL.content.labels[name]} |" in text for name in methods)
    assert "attacker C has a gain of" in text
    assert [path.name for path in outcome.files[3:]] == ["inversion.png", "noise-0_seed0.png"]
    again = hold_study(*arguments)
    assert again.kept == len(outcome.results)
    assert again.results == outcome.results


def test_methods_with_differential_privacy_are_v1_with_noise_on_what_they_name() -> None:
    for method, covers in (("dp-client", "client"), ("dp-person", "person")):
        plan = split_plan(SPLIT_PROTOCOL.settings, method, 0)
        assert (plan.variant, plan.dp_covers, plan.is_private) == ("v1", covers, True)
    assert not split_plan(SPLIT_PROTOCOL.settings, "v1", 0).is_private


def test_what_differential_privacy_costs_is_said() -> None:
    errors = {"dp-client": 7.0, "dp-whole": 11.0, "frozen-client": 5.5, "mean-gaze": 11.5}
    rows = [
        {"method": method, "seed": 0, "left_out": "d", "error_deg": error}
        for method, error in errors.items()
    ]
    assert results_of("split", tested=rows).findings() == [
        "With differential privacy V1 has errors of 7.00 (DP of the client part), 11.00 (DP of "
        "both parts) degrees; without it: split, frozen random client part 5.50, mean gaze 11.50."
    ]


def test_noise_that_nothing_learns_from_is_said() -> None:
    scores = {"attacker": "B", "gain": 0.1, "mse": 0.01, "signal_to_noise_db": None}
    rows = [
        {"seed": 0, "level": level, "error_deg": error, **scores}
        for level, error in ((0.0, 5.0), (2.0, None))
    ]
    (finding,) = results_of("split", attacked=rows).findings()
    assert (
        "at noise 2 attacker B has a gain of 0.10 over the mean eye, and V1 cannot be trained"
        in finding
    )


def test_ablations_have_a_row_for_each_cut_and_the_cost_of_each_method() -> None:
    common = {"seed": 0, "left_out": "d", "round": 10, "train_error_deg": 1.0}
    results = results_of(
        "split-ablation",
        cut_at=[{**common, "cut": cut, "error_deg": 5.0, "seconds": 9.0} for cut in ("u", "fc1")],
        trained=[
            {**common, "method": name, "error_deg": 5.5, "seconds": seconds}
            for name, seconds in (("data-centre", 4.0), ("fedavg", 8.0))
        ],
        moved=[{"left_out": "d", "way": way, "bytes": 2e6} for way in ("fedavg", "mpc")],
        posed=[], repeated=[], pruned=[],
    )  # fmt: skip
    assert [row["cut"] for row in table_of(results, "cuts")] == ["fc1", "u", "none: FedAvg"]
    costs = {row["method"]: row for row in table_of(results, "costs")}
    assert costs["FedAvg"]["times_data_centre"] == costs["FedAvg"]["mb_a_round"] == 2.0
    assert costs["generic MPC with 3 servers, at least"]["seconds"] is None


PROTOCOL = read_protocol("privacy")
SMALL: dict[str, Any] = {
    "victims": 3, "public": 4, "outsiders": 2, "judges": 3, "train_samples": 8,
    "other_samples": 4, "session_samples": 3, "judged_samples": 4, "rounds": 1, "epochs": 1,
    "seeds": 1, "sweep": [1, 3], "steps": 2, "restarts": 2,
}  # fmt: skip


def conduct(folder: Path) -> StudyResults:
    settings = with_values(PROTOCOL.settings, SMALL)
    return hold_study(PROTOCOL, folder, None, settings, Conduct(workers="1", repeat=["poolctl"]))


@pytest.fixture(scope="module")
def study(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("privacy") / "study"
    assert conduct(folder).kept == 0
    return folder


def test_one_site_in_a_sum_leaks_as_plain_and_all_sites_as_secure(study: Path) -> None:
    def rows(key: str) -> Any:
        return json.loads((study / "runs" / f"{key}.json").read_text())["result"]

    ways = {"plain": "leaked_seed0_plain", "secure": "leaked_seed0_secure"}
    ways |= {"one": "summed_seed0_sites1", "all": "summed_seed0_sites3"}
    updates = {name: rows(f"{key}_updates")[0] for name, key in ways.items()}
    assert updates["one"] == updates["plain"]
    assert updates["all"] == updates["secure"]
    assert updates["secure"]["matched"] == pytest.approx(1 / 3, abs=0.1)
    # One round: its result is the final network.
    assert rows("leaked_seed0_secure_samples") == rows("leaked_seed0_floor_samples")
    assert rows("leaked_seed0_none_samples")[0]["auc"] == 0.5
    controls = {(row["control"], row["attack"]): row["auc"] for row in rows("checked_seed0")}
    assert controls["random labels", "change"] == pytest.approx(0.5, abs=0.05)
    assert controls["overfitted", "loss now"] > 0.9
    with np.load(study / "pictures" / "0.plain.npz") as made:
        assert made["pictures"].shape == (3, 2, 36, 60)


def test_the_tables_are_there_and_the_sheet(study: Path) -> None:
    text = (study / "table.md").read_text()
    assert text.startswith("Single updates give ")
    for leak in ("plain", "secure", "floor", "none"):
        assert f"| {leak} |" in text
    assert (study / "main.csv").read_text().count("\n") == 7
    attacks = list(csv.DictReader((study / "membership.csv").read_text().splitlines()))
    assert {row["chance"] for row in attacks} == {"0.500"}
    for row in attacks[:-2]:
        assert row["needs"].startswith("base, "), "as the receipt's table of attacks says"
    with Image.open(study / "sheets" / "pictures.png") as sheet:
        assert sheet.height > 3 * 72


@pytest.mark.slow
def test_finished_probes_are_kept(study: Path) -> None:
    before = (study / "table.md").read_bytes()
    (study / "runs" / "leaked_seed0_plain_samples.json").unlink()
    again = conduct(study)
    assert (again.kept, len(again.results)) == (25, 26)
    assert again.files[0].read_bytes() == before


@pytest.mark.slow
def test_dualview_as_published_has_a_row_for_each_ablation_size_and_round(tmp_path: Path) -> None:
    protocol = read_protocol("dualview")
    small = {name: value for name, value in SMALL.items() if hasattr(protocol.settings, name)}
    small |= {"sizes": [4], "gan_steps": 2, "rounds": 2}
    settings = with_values(protocol.settings, small)
    study = hold_study(protocol, tmp_path / "out", None, settings, Conduct(workers="1"))
    assert not study.failed
    text = (tmp_path / "out" / "table.md").read_text()
    assert text.startswith("DualView as published finds ")
    for row in ("as published", "last round only", "loss: gaze only", "| 4 |", "all rounds"):
        assert row in text
    with Image.open(tmp_path / "out" / "sheets" / "pictures.png") as sheet:
        assert sheet.height > 3 * 72
