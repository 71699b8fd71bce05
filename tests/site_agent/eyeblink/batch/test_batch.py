"""Batches: side by side, resumable, no session stops another; killed ones go on."""

import os
import shutil
from dataclasses import replace
from pathlib import Path

import pytest

from site_agent.errors import BusyError, InvalidInputError, StudyFolderError
from site_agent.eyeblink.batch import HIDDEN, SessionJob, plan_session, run_batch, run_job
from site_agent.eyeblink.batch.record import SessionOutcome, read_record
from site_agent.eyeblink.batch.sessions import BatchSession, read_session_table
from site_agent.eyeblink.pipeline import TraceFile, run_blink_analysis
from site_agent.eyeblink.session import BlinkAnalysisSettings
from site_agent.eyeblink.session_folder import RECORD_NAME
from site_agent.eyeblink.study import write_study
from site_agent.eyeblink.study.criteria import compare_criteria, default_criteria
from site_agent.eyeblink.study.sessions import read_study
from site_agent.work import no_progress
from site_agent.work.claims import hold_folder
from tests.site_agent.eyeblink.drawn_studies import write_study_files
from tests.site_agent.eyeblink.drawn_traces import rows_of


def states_of(study: Path) -> dict[str, str]:
    return {row["session"]: row["state"] for row in rows_of(study / "batch.csv")}


def content_of(folder: Path) -> dict[str, tuple[bytes, int]]:
    """Every file of a folder, and when it was written."""
    return {
        path.relative_to(folder).as_posix(): (path.read_bytes(), path.stat().st_mtime_ns)
        for path in folder.rglob("*")
        if path.is_file()
    }


@pytest.fixture(scope="module")
def table(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_study_files(tmp_path_factory.mktemp("recordings"), participants=2)


@pytest.fixture(scope="module")
def finished(table: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A study with all sessions analysed; copy it before changing anything."""
    study = tmp_path_factory.mktemp("finished") / "study"
    told: list[float] = []
    result = run_batch(
        read_session_table(table).sessions, study, progress=lambda share, _text: told.append(share)
    )
    assert result.count("done") == 4
    assert told[-1] > 0.9
    write_study(study, result.records)
    return study


@pytest.fixture
def study(finished: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(finished, tmp_path / "study"))


def test_the_tables_of_a_study(table: Path, finished: Path) -> None:
    rows = rows_of(finished / "sessions.csv")
    assert [row["session"] for row in rows] == ["p0s1", "p0s2", "p1s1", "p1s2"]
    for row in rows:
        assert 0 < int(row["n_cs_valid"]) <= int(row["n_trials"]) == 6
        assert int(row["blinks"]) > 0
    first = [float(row["cr_percent"]) for row in rows if row["session_number"] == "1"]
    second = [float(row["cr_percent"]) for row in rows if row["session_number"] == "2"]
    assert max(first) < min(second)
    assert states_of(finished) == {row["session"]: "done" for row in rows}
    kinds = {row["kind"] for row in rows_of(finished / "learning_curve.csv")}
    assert kinds == {"participant", "mean", "line"}
    assert (finished / "learning_curve.png").stat().st_size > 10_000
    assert not list(finished.glob(".batch/work/*"))
    assert not list(finished.rglob("*.partial"))


def test_sessions_that_left_the_table_are_named(study: Path) -> None:
    records = [read_record(study / name) for name in ("p0s1", "p0s2", "p1s1")]
    remarks = write_study(study, records).remarks
    assert any("1 session that are not among these (p1s2)" in remark for remark in remarks)
    assert write_study(study, records, ["p1s2"]).remarks == ()


def test_a_long_table_has_every_trial_with_the_labs_columns(finished: Path) -> None:
    rows = rows_of(finished / "all_trials.csv")
    assert [row["session"] for row in rows] == [
        name for name in ("p0s1", "p0s2", "p1s1", "p1s2") for _ in range(6)
    ]
    assert [row["tone_khz"] for row in rows[:3]] == ["4", "5", "4"]
    assert {(row["session_number"], row["phase"]) for row in rows} == {
        ("1", "phase 1"),
        ("2", "phase 2"),
    }
    session_rows = rows_of(finished / "p1s2" / "trials.csv")
    assert [{name: row[name] for name in session_rows[0]} for row in rows[18:]] == session_rows
    for session in rows_of(finished / "sessions.csv"):
        of_session = [row for row in rows if row["session"] == session["session"]]
        probes = [row for row in of_session if row["trial_type"] == "cs_only" and row["cr"]]
        assert int(session["n_cs_only_valid"]) == len(probes)
        assert int(session["n_cr_cs_only"]) == sum(row["cr"] == "true" for row in probes)


def test_runs_of_one_session_are_one_point_of_the_learning_curve(
    finished: Path, tmp_path: Path
) -> None:
    records = [read_record(finished / name) for name in ("p0s1", "p0s2", "p1s1", "p1s2")]
    runs = [
        replace(record, number=1.0 + (name == "p1s2"), labels={"run": name[-1]})
        for record, name in zip(records, ("p0s1", "p0s2", "p1s1", "p1s2"), strict=True)
    ]
    for record in records:
        shutil.copytree(finished / record.name, tmp_path / record.name)
    written = write_study(tmp_path, runs)
    points = {
        (point.participant, point.position): point
        for curve in written.curves[""]
        for point in curve.points
        if curve.measure == "cr_percent"
    }
    both = [record.conditioning or {} for record in records[:2]]
    crs, trials = (sum(item[name] for item in both) for name in ("n_cr", "n_cs_valid"))
    assert points["p0", 1.0].value == pytest.approx(100.0 * crs / trials)
    assert (points["p0", 1.0].n_trials, len(points)) == (trials, 3)


def test_a_session_is_what_a_single_analysis_makes(
    table: Path, finished: Path, tmp_path: Path
) -> None:
    run_blink_analysis(
        TraceFile(table.with_name("p0s2.csv")),
        out_dir=tmp_path / "single",
        trials=table.with_name("p0s2_trials.csv"),
    )
    for name in ("frames.csv", "blinks.csv", "trials.csv"):
        assert (tmp_path / "single" / name).read_bytes() == (finished / "p0s2" / name).read_bytes()


def test_the_own_criterion_counts_what_the_batch_counted(finished: Path) -> None:
    study = read_study([finished])
    assert len(study) == 4
    again = [replace(session, participant=f"{session.participant} again") for session in study]
    compared = compare_criteria([*study, *again], default_criteria(study.settings)[:3])
    rows = rows_of(finished / "sessions.csv") * 2
    assert compared.rows[0].n_cr == sum(int(row["n_cr"]) for row in rows)
    assert compared.rows[0].n_valid == sum(int(row["n_cs_valid"]) for row in rows)


def test_a_folder_without_a_study_is_refused(tmp_path: Path) -> None:
    with pytest.raises(StudyFolderError, match="no session to compare; expected a study"):
        read_study([tmp_path])


def test_finished_sessions_are_left_as_they_are(table: Path, study: Path) -> None:
    before = content_of(study / "p1s1")
    (study / ".batch" / "replaced").mkdir(parents=True, exist_ok=True)
    # As if a batch had been killed between the two steps of a move.
    (study / "p0s1").rename(study / ".batch" / "replaced" / "p0s1")
    result = run_batch(read_session_table(table).sessions, study)
    assert result.count("skipped") == 4
    assert content_of(study / "p1s1") == before
    assert {row["blinks"] for row in rows_of(study / "batch.csv")} != {""}


def test_only_changed_sessions_are_analysed_again(table: Path, study: Path, tmp_path: Path) -> None:
    inputs = Path(shutil.copytree(table.parent, tmp_path / "inputs"))
    sessions = list(read_session_table(inputs / table.name).sessions)

    def states() -> list[str]:
        return [outcome.state for outcome in run_batch(sessions, study).outcomes]

    os.utime(inputs / "p0s1.csv", ns=(1, 1))  # the same content elsewhere, and touched
    changed = inputs / "p0s2_trials.csv"
    changed.write_text(changed.read_text().replace("paired", "cs_only", 1))
    sessions[2] = replace(sessions[2], overrides={"cr_threshold": "0.3"})
    (study / "p1s2" / RECORD_NAME).write_text("{")
    assert states() == ["skipped", "done", "done", "done"]


def test_a_new_label_needs_no_new_analysis(table: Path, study: Path) -> None:
    sessions = list(read_session_table(table).sessions)
    frames = content_of(study / "p0s1")["frames.csv"]
    sessions[0] = replace(sessions[0], participant="other", group="old")
    assert run_batch(sessions, study).count("skipped") == 4
    record = read_record(study / "p0s1")
    assert (record.participant, record.group) == ("other", "old")
    assert content_of(study / "p0s1")["frames.csv"] == frames


@pytest.mark.slow
def test_foreign_files_and_folders_are_kept(table: Path, study: Path) -> None:
    review = study / "p0s1" / "review"
    review.mkdir()
    (review / "corrections.jsonl").write_text("{}\n")
    sessions = read_session_table(table).sessions[:1]
    assert run_batch(sessions, study, redo=True).count("done") == 1
    assert (review / "corrections.jsonl").read_text() == "{}\n"
    foreign = study / "mine"
    foreign.mkdir()
    (foreign / "thesis.txt").write_text("years of work")
    (outcome,) = run_batch([replace(sessions[0], name="mine")], study).outcomes
    assert outcome.state == "failed"
    assert "was not made by a batch" in outcome.reason
    assert (foreign / "thesis.txt").read_text() == "years of work"


def test_a_bad_session_fails_alone(table: Path, tmp_path: Path) -> None:
    (tmp_path / "no_trace.csv").write_text("timestamp_s,ear\n0,0.3\n1,shut\n")
    (tmp_path / "no_trials.csv").write_text("trial,cs_onset_s,us_onset_s\n1,5,2\n")
    good = read_session_table(table).sessions[0]
    sessions = [
        BatchSession("missing", tmp_path / "missing.csv", False),
        BatchSession("no_trace", tmp_path / "no_trace.csv", False),
        replace(good, name="no_trials", trials=tmp_path / "no_trials.csv"),
        replace(good, name="../outside"),
        good,
    ]
    told: list[SessionOutcome] = []
    result = run_batch(sessions, tmp_path / "study", on_outcome=told.append)
    reasons = {outcome.session: outcome.reason for outcome in result.outcomes if outcome.reason}
    assert set(reasons) == {"missing", "no_trace", "no_trials", "../outside"}
    assert "No such file" in reasons["missing"]
    assert "no_trace.csv, line 3" in reasons["no_trace"]
    assert "no_trials.csv, line 2" in reasons["no_trials"]
    assert states_of(tmp_path / "study")[good.name] == "done"
    assert len(told) == len(sessions)
    folders = sorted(path.name for path in (tmp_path / "study").iterdir() if path.is_dir())
    assert folders == [".batch", good.name]


def test_a_recording_that_changes_while_it_is_read_fails(table: Path, tmp_path: Path) -> None:
    recording = tmp_path / "growing.csv"
    listed = read_session_table(table).sessions[0]
    shutil.copy(listed.source, recording)
    session = replace(listed, source=recording)
    plan = plan_session(session, tmp_path / "study", BlinkAnalysisSettings())
    assert plan.request is not None
    with recording.open("a") as file:
        file.write("1000.0,0.3\n")
    job = SessionJob(session, plan.settings, plan.request, tmp_path / "made")
    with pytest.raises(InvalidInputError, match=r"growing.csv: was changed since the batch began"):
        run_job(job, no_progress)


def test_one_batch_at_a_time(table: Path, tmp_path: Path) -> None:
    sessions = read_session_table(table).sessions
    with (
        hold_folder(tmp_path / "study", HIDDEN, what="batch"),
        pytest.raises(BusyError, match="another batch"),
    ):
        run_batch(sessions, tmp_path / "study")
    with pytest.raises(StudyFolderError, match="two sessions have the name 'p0s1'"):
        run_batch([*sessions, sessions[0]], tmp_path / "other")
