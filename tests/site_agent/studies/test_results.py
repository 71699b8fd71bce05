"""Studies' SQL beyond SQLite, and the studies of cross-encoders and split training."""

import math
from typing import Any

import pytest

from site_agent.settings import with_values
from site_agent.studies.cross_encoder import _left_out
from site_agent.studies.protocol_file import read_protocol
from site_agent.studies.results import Results
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
        ("low(error_deg)", [2.0, 2.0], 2),
        ("high(error_deg, -shots) > mean(error_deg)", [1.0, 2.0, 3.0], 1),
        ("percent(error_deg)", [0.0, 1 / 3], "17 % (0 to 33)"),
        ("percent(error_deg)", [1.0, 1.0], "100 %"),
        ("label('pca') || place('pca') || label('new')", [0.0], "PCA-126new"),
        (":draws", [0.0], 5),
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
