"""Plans, scores and verdicts of studies of cross-encoders."""

import csv
from pathlib import Path
from typing import Any

import pytest

from site_agent.errors import InvalidInputError
from site_agent.studies.cross_encoder import (
    METHODS,
    CrossEncoderStudySettings,
    find_verdict,
    plan_runs,
    score_methods,
    write_report,
)
from site_agent.studies.eyes import MethodRun

PERSONS = tuple(f"p{number}" for number in range(7))


def planned(methods: tuple[str, ...] = tuple(METHODS)) -> tuple[MethodRun, ...]:
    settings = CrossEncoderStudySettings(seeds=3, left_out=2, methods=methods)
    return plan_runs(PERSONS, settings)


def results_of(runs: tuple[MethodRun, ...], gains: dict[str, float]) -> dict[str, Any]:
    """Return errors that differ from person to person, and by `gains` from method to method."""
    return {
        run.key: {
            "errors": {
                name: {
                    str(count): [PERSONS.index(name) + 5 + gains[run.method] + draw / 10
                                 + 0.01 * run.seed * PERSONS.index(name) * gains[run.method]
                                 for draw in range(3)]
                    for count in (10, 100)
                }
                for name in run.test
            }
        }
        for run in runs
    }  # fmt: skip


def test_each_seed_leaves_other_persons_out() -> None:
    runs = planned()
    assert len(runs) == 3 * len(METHODS)
    assert [run.test for run in runs[:: len(METHODS)]] == [("p0", "p1"), ("p2", "p3"), ("p4", "p5")]
    for run in runs:
        assert set(run.train) == set(PERSONS) - set(run.test)
    with pytest.raises(InvalidInputError, match="3 persons; expected at least 4: 2 are left out"):
        plan_runs(PERSONS[:3], CrossEncoderStudySettings(left_out=2))


def test_differences_are_paired_by_person() -> None:
    methods = ("cross-encoder", "random", "pca")
    runs = planned(methods)
    gains = {"cross-encoder": 0.0, "random": 2.0, "pca": 0.5}
    scores = {
        (score.method, score.shots): score for score in score_methods(runs, results_of(runs, gains))
    }
    random = scores["random", 100]
    assert random.persons == 6
    assert random.difference.mean == pytest.approx(2.1, abs=0.2)
    # Persons differ by degrees, and pairs by tenths.
    assert random.difference.high - random.difference.low < 0.3
    assert random.error.high - random.error.low > 1
    assert random.persons_worse == 6
    verdict = find_verdict(list(scores.values()))
    assert verdict.startswith("At 100 shots the federated cross-encoder, 7.60 degrees, is better")
    assert "better than PCA-12" in verdict
    assert "better on 6 of 6 persons" in verdict


@pytest.mark.parametrize(
    ("gain", "expected"), [(-2.0, "worse than PCA-12"), (0.0, "not clearly different from PCA-12")]
)
def test_a_negative_result_is_said(gain: float, expected: str) -> None:
    runs = planned(("cross-encoder", "pca"))
    scores = score_methods(runs, results_of(runs, {"cross-encoder": 0.0, "pca": gain}))
    assert expected in find_verdict(scores)


def test_the_verdict_is_the_first_line_of_the_table(tmp_path: Path) -> None:
    runs = planned()
    gains = dict.fromkeys(METHODS, 1.0) | {"cross-encoder": 0.0}
    files, (verdict,) = write_report(tmp_path, runs, results_of(runs, gains), ["poolctl", "study"])
    assert verdict.startswith(files[0].read_text().splitlines()[0])
    with (tmp_path / "few_shot.csv").open(newline="") as stream:
        rows = list(csv.DictReader(stream))
    assert len(rows) == 2 * len(METHODS)
    assert rows[0]["difference_deg"] == ""
    with (tmp_path / "draws.csv").open(newline="") as stream:
        assert len(list(csv.DictReader(stream))) == len(METHODS) * 3 * 2 * 2 * 3
    assert (tmp_path / "few_shot.png").stat().st_size > 10_000


def test_settings_are_refused_by_name() -> None:
    with pytest.raises(InvalidInputError, match="methods: byol; expected some of cross-encoder"):
        CrossEncoderStudySettings(methods=("cross-encoder", "byol"))
    with pytest.raises(InvalidInputError, match="expected cross-encoder among them"):
        CrossEncoderStudySettings(methods=("pca",))
    with pytest.raises(InvalidInputError, match="gaze-lenet is a gaze network"):
        CrossEncoderStudySettings(architecture="gaze-lenet")
    with pytest.raises(InvalidInputError, match="shots: "):
        CrossEncoderStudySettings(shots=())
