"""``poolctl blink batch`` and ``poolctl blink compare-criteria``."""

import json
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from aggregators.formats import write_model
from site_agent.eyeblink.review.actions import Delete
from site_agent.eyeblink.review.review_session import open_review
from site_agent.text_tables import read_table
from tests.children import children_of, wait_for_end
from tests.cli.conftest import Outcome, Run, run_process, start_process
from tests.site_agent.eyeblink.drawn_studies import (
    write_long_trace,
    write_session,
    write_study_files,
)
from tests.site_agent.eyeblink.drawn_traces import rows_of
from tests.site_agent.eyeblink.drawn_videos import write_video
from tests.site_agent.faces.test_prediction import small_detector, small_predictor
from tests.waiting import wait_until


def states_of(study: Path) -> dict[str, str]:
    table = study / "batch.csv"
    return {row["session"]: row["state"] for row in rows_of(table)} if table.exists() else {}


def written_at(study: Path) -> dict[str, int]:
    return {path.parent.name: path.stat().st_mtime_ns for path in study.glob("*/study.json")}


@pytest.fixture(scope="module")
def table(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_study_files(tmp_path_factory.mktemp("recordings"), participants=3)


@pytest.fixture(scope="module")
def long_table(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two sessions that are done soon, and two that take seconds."""
    folder = tmp_path_factory.mktemp("long")
    lines = ["session,trace,frame_rate_hz"]
    for name in ("quick1", "slow1", "quick2", "slow2"):
        write_long_trace(folder / f"{name}.txt", 900 if name.startswith("quick") else 20_000)
        lines.append(f"{name},{name}.txt,100")
    (folder / "sessions.csv").write_text("\n".join(lines) + "\n")
    return folder / "sessions.csv"


@pytest.fixture(scope="module")
def study(table: Path, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Outcome]:
    """A study of six sessions, with a settings file, and the command's outcome."""
    folder = tmp_path_factory.mktemp("study")
    settings = folder / "settings.toml"
    settings.write_text("[conditioning]\ncr_threshold = 0.2\n")
    arguments = ("blink", "batch", table, "-o", folder / "study", "--settings", settings)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("POOL_HOME", str(folder / "home"))
        return folder / "study", run_process(*arguments)


def test_a_study_from_a_table(table: Path, study: tuple[Path, Outcome], poolctl: Run) -> None:
    folder, shown = study
    assert shown.code == 0, shown.err
    assert "6 analysed, 0 were finished" in shown.out
    assert "cr_percent" in shown.out
    told = sorted({line.split()[0] for line in shown.err.splitlines()} - {"batch"})
    assert told == ["p0s1", "p0s2", "p1s1", "p1s2", "p2s1", "p2s2"]
    arguments = ("blink", "batch", table, "-o", folder, "--json")
    data = poolctl(*arguments, "--set=cr_threshold=0.2").data
    assert [item["state"] for item in data["sessions"]] == ["skipped"] * 6
    assert data["sessions"][0]["conditioning"]["n_trials"] == 6
    assert data["learning"][""][0]["measure"] == "cr_percent"
    assert Path(data["files"]["learning_picture"]).is_file()
    assert Path(data["files"]["sessions_picture"]).stat().st_size > 10_000
    learned = read_table(Path(data["files"]["participants"]))
    assert learned.cells("participant") == ["p0", "p1", "p2"]
    assert "Trials one by one" in (folder / "p0s1" / "report.html").read_text(encoding="utf-8")


def test_a_conclusion_under_several_criteria(
    study: tuple[Path, Outcome], poolctl: Run, at_80_columns: Callable[..., list[str]]
) -> None:
    folder, _ = study
    compare = ("blink", "compare-criteria", folder)
    arguments = ("--criteria", "fec:0.05", "--criteria", "baseline-sd:3 baseline_ms=-300,0")
    shown = poolctl(*compare, *arguments, "--json")
    rows = shown.data["rows"]
    assert [row["criterion"].split(";")[0] for row in rows] == [
        "own: amplitude >= 0.20 FEC",
        "amplitude >= 0.05 FEC",
        "mean >= baseline mean + 3 SD",
    ]
    assert "over sessions" in shown.data["conclusion"]
    for suffix in ("csv", "json"):
        assert (folder / f"criteria.{suffix}").is_file()
    lines = at_80_columns(*compare, *arguments)
    assert " ".join(lines).startswith(shown.data["conclusion"])
    [heading] = [line.split() for line in lines if line.startswith("criterion")]
    assert {"effect", "p"} <= set(heading)
    differing = [row for row in rows[1:] if not row["agrees"]]
    for row in [rows[0], *(row for row in differing if not row["problem"])]:
        assert f"{row['effect']['estimate']:+.3g}" in " ".join(lines).split()
    assert f"{len(differing)} of 2 other criteria would change" in " ".join(lines)
    assert poolctl(*compare, "--criteria", "fec:many").code == 2


@pytest.mark.slow
def test_a_study_with_nwb(tmp_path: Path, poolctl: Run) -> None:
    pynwb = pytest.importorskip("pynwb", reason="pynwb is not installed")
    rows = ["session,trace,trials,participant,session_number,age,sex,nwb,cs_channel"]
    write_session(tmp_path, "s1", 1, n_trials=6)
    rows.append("first1,s1.csv,s1_trials.csv,p1,1,P3M,female,true,tone")
    rows.append("other,s1.csv,s1_trials.csv,p2,1,,,,")
    table = tmp_path / "sessions.csv"
    table.write_text("\n".join(rows) + "\n")
    study = tmp_path / "study"
    arguments = ("blink", "batch", table, "-o", study, "--set=closed_from=air-puffs")
    shown = poolctl(*arguments, "--json")
    assert shown.code == 0, shown.err
    sessions = poolctl("blink", "report", study, "--json").data["items"]
    assert len(sessions) == 2
    several = poolctl("blink", "review", study, "--json").error["message"]
    assert "holds 2 sessions" in several
    with open_review(Path(sessions[0]["session"])) as review:
        review.act(Delete(blink_id=1))
    poolctl("blink", "report", study, "--reviewed", "-q")
    tables = [rows_of(study / name) for name in ("sessions.csv", "sessions_reviewed.csv")]
    automatic, reviewed = ([int(row["blinks"]) for row in rows] for rows in tables)
    assert [sum(automatic) - 1, len(reviewed)] == [sum(reviewed), 2]
    assert len(poolctl("blink", "report", study, "--json").data["items"]) == 2
    first = study / "first1"
    assert set(study.rglob("*.nwb")) == {first / "session.nwb", first / "reviewed" / "session.nwb"}
    with pynwb.NWBHDF5IO(str(first / "session.nwb"), "r") as stored:
        subject = stored.read().subject
        assert (subject.subject_id, subject.age, subject.sex) == ("p1", "P3M", "F")
    provenance = first / "provenance.json"
    settings = json.loads(provenance.read_text(encoding="utf-8"))["settings"]
    assert settings["blinks"]["calibration"]["closed_from"] == "air-puffs"
    assert settings["trial_timing"]["ttl"]["cs_channel"] == "tone"
    again = poolctl(*arguments, "--json").data
    assert [item["state"] for item in again["sessions"]] == ["skipped"] * 2


def test_a_folder_with_bad_files(tmp_path: Path, poolctl: Run) -> None:
    folder, study = tmp_path / "in", tmp_path / "in" / "study"
    write_session(folder, "sub-1_ses-1", 1)
    write_video(folder / "gray.mp4", [number / 30 for number in range(20)])
    (folder / "cut.mp4").write_bytes((folder / "gray.mp4").read_bytes()[:300])
    write_model(small_predictor(68), tmp_path / "points.dat")
    write_model(small_detector(None), tmp_path / "faces.svm")
    arguments = ("blink", "batch", folder, "-o", study)
    models = ("--landmarks", tmp_path / "points.dat", "--detector", tmp_path / "faces.svm")
    shown = poolctl(*arguments, *models, "--json")
    assert shown.code == 5
    assert shown.error["code"] == "batch_incomplete"
    assert "1 of 2 sessions failed" in shown.error["message"]
    assert "cut.mp4" in shown.error["message"]
    assert states_of(study) == {"cut": "failed", "gray": "done"}
    assert "cut" not in shown.err, "listed once"
    assert "1 session finished in" in shown.error["message"]
    (folder / "cut.mp4").unlink()
    assert poolctl(*arguments, *models).code == 0  # the study's own files are no recordings


def test_a_session_without_its_file_fails_in_all_accounts(tmp_path: Path, poolctl: Run) -> None:
    (tmp_path / "ear.csv").write_text(
        "timestamp_s,ear\n" + "".join(f"{n / 30},{0.3 - 0.2 * (n % 60 < 5)}\n" for n in range(600))
    )
    (tmp_path / "sessions.csv").write_text("trace\near.csv\nabsent.csv\n")
    study = tmp_path / "study"
    assert poolctl("blink", "batch", tmp_path / "sessions.csv", "-o", study).code == 5
    shown = poolctl("status", study).out
    assert "2 jobs (1 done, 1 failed)" in shown
    assert "No such file" in shown
    (tmp_path / "trials.csv").write_text("cs_onset_s,us_onset_s\n500,500.4\n")
    rejected = poolctl(
        "blink", tmp_path / "ear.csv", "--trials", tmp_path / "trials.csv", "-o", tmp_path / "one"
    )
    assert "nan FEC" not in rejected.out
    told = poolctl("blink", "compare-criteria", study, "-o", tmp_path / "criteria").err
    assert "1 session without trials left out; give the batch the trials: a column trials" in told


def test_what_is_no_batch(tmp_path: Path, poolctl: Run) -> None:
    arguments = ("blink", "batch")
    assert poolctl(*arguments, tmp_path / "none", "-o", tmp_path / "s").code == 4
    (tmp_path / "bad.csv").write_text("trace,frame_rate_hz\na.csv,fast\n")
    poolctl(*arguments, tmp_path / "bad.csv", "-o", tmp_path / "s", "--json").fails(
        5, "table_file", "bad.csv, line 2: frame_rate_hz is 'fast'"
    )


def interrupt(table: Path, study: Path, how: signal.Signals) -> subprocess.Popen[str]:
    """Start a batch, and stop it while a session is done and others are at work."""
    process = start_process("blink", "batch", table, "-o", study, "--workers", "2")
    wait_until(lambda: "done" in states_of(study).values())
    workers = children_of(process.pid, "site_agent.work.worker")
    assert workers
    process.send_signal(how)
    process.wait(timeout=540)
    wait_for_end(workers)
    return process


@pytest.mark.slow
@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="reads /proc")
@pytest.mark.parametrize(
    "how",
    [
        signal.SIGINT,
        pytest.param(signal.SIGTERM, marks=pytest.mark.slow),
        pytest.param(signal.SIGKILL, marks=pytest.mark.slow),
    ],
)
def test_a_batch_that_is_stopped_goes_on(
    how: signal.Signals, long_table: Path, tmp_path: Path, poolctl: Run
) -> None:
    study = tmp_path / "study"
    with interrupt(long_table, study, how) as process:
        if how is signal.SIGINT:
            assert process.returncode == 130
            assert process.stderr is not None
            told = process.stderr.read()
            assert f"{study}: what is finished is kept" in told
            assert "again to continue" in told
            assert "pending" in states_of(study).values()
            assert not list(study.glob(".batch/work/*"))
    before = written_at(study)
    folders = {path.name for path in study.iterdir() if path.is_dir() and path.name[0] != "."}
    assert folders == set(before)  # its content is whole
    assert 1 <= len(before) < 4
    shown = poolctl("blink", "batch", long_table, "-o", study, "--json").data
    states = {item["session"]: item["state"] for item in shown["sessions"]}
    assert {name for name, state in states.items() if state == "skipped"} == set(before)
    assert sorted(states.values()) == ["done"] * (4 - len(before)) + ["skipped"] * len(before)
    after = written_at(study)
    assert {name: after[name] for name in before} == before
    assert not list(study.glob(".batch/work/*"))
