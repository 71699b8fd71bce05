"""The folder of a study: results are kept, and repeated only after changes."""

from dataclasses import dataclass
from pathlib import Path

import pytest

from site_agent.errors import InvalidInputError, TrainingFailedError
from site_agent.studies.runs import Conduct, StudyResults, open_study
from site_agent.work import Progress, no_progress

PERSONS = {"p00": "a", "p01": "b"}


@dataclass(frozen=True)
class Run:
    key: str
    person: str


RUNS = {run.key: run for run in (Run("one", "p00"), Run("two", "p01"))}


def measure(run: Run, _progress: Progress) -> dict[str, str]:
    if run.key == "broken":
        raise InvalidInputError("no such person")
    return {"person": run.person}


def do(
    folder: Path, persons: dict[str, str], *, runs: dict[str, Run] = RUNS, redo: bool = False
) -> StudyResults:
    with open_study(folder, "test-study/1", Conduct(workers=1, redo=redo)) as study:
        study.describe(RUNS["one"], {"persons": persons})
        return study.do(
            runs,
            lambda run: {"persons": persons.get(run.person)},
            measure,
            lambda run: run,
            progress=no_progress,
        )


def test_a_run_is_repeated_where_its_own_data_changed_and_nowhere_else(tmp_path: Path) -> None:
    first = do(tmp_path, PERSONS)
    assert first.results == {"one": {"person": "p00"}, "two": {"person": "p01"}}
    assert first.kept == 0
    assert do(tmp_path, {**PERSONS, "p99": "c"}).kept == 2
    assert do(tmp_path, {**PERSONS, "p00": "c"}).kept == 1
    assert do(tmp_path, PERSONS, redo=True).kept == 0


def test_a_run_that_fails_stops_no_other(tmp_path: Path) -> None:
    outcome = do(tmp_path, PERSONS, runs={"broken": Run("broken", "p02"), **RUNS})
    assert set(outcome.results) == {"one", "two"}
    assert "no such person" in outcome.failed["broken"]
    with pytest.raises(TrainingFailedError, match=r"broken: .*no such person"):
        outcome.require_complete()


def test_a_folder_keeps_its_kind_of_study(tmp_path: Path) -> None:
    do(tmp_path, PERSONS)
    with (
        pytest.raises(InvalidInputError, match="holds another study"),
        open_study(tmp_path, "another-study/1", Conduct()),
    ):
        pass
