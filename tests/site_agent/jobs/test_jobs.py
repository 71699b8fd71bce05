"""Jobs: done once, whole or absent, also where processes are killed."""

import os
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

import psutil
import pytest
from filelock import FileLock

from site_agent.errors import InvalidInputError, NotFoundError
from site_agent.eyeblink.batch import run_batch
from site_agent.eyeblink.batch.sessions import read_session_table
from site_agent.eyeblink.session import BlinkAnalysisSettings
from site_agent.eyeblink.study import write_study
from site_agent.jobs import runner as runner_module
from site_agent.jobs.analysing import TABLE_NAME, analysis_request, held_study
from site_agent.jobs.folder import Job, JobFolder, JobState
from site_agent.jobs.runner import IDLE_VARIABLE, run_jobs
from site_agent.work.processes import is_alive, this_process
from tests.children import children_of, wait_for_end
from tests.site_agent.eyeblink.drawn_studies import write_long_trace, write_study_files
from tests.waiting import wait_until

RUNNER = "site_agent.jobs.runner"


@pytest.fixture
def jobs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[JobFolder]:
    monkeypatch.setenv("POOL_HOME", str(tmp_path / "home"))
    monkeypatch.setenv(IDLE_VARIABLE, "1")
    yield JobFolder()
    for runner in children_of(os.getpid(), RUNNER):
        runner.kill()
        runner.wait()


def keep_running_until(jobs: JobFolder, condition: Callable[[], object]) -> None:
    """Ask for a runner again and again, as the app does, until a condition holds.

    A worker that a killed runner was just starting holds the lock for a moment longer.
    """

    def look() -> object:
        jobs.start_runner()
        return condition()

    wait_until(look)


def add_study(jobs: JobFolder, study: Path, table: Path) -> list[Job]:
    """Ask for a study of traces: a job for each session, and one that gathers them."""
    study.mkdir()
    text = table.read_text()
    for path in table.parent.glob("*.csv"):
        text = text.replace(f",{path.name}", f",{path}")
    (study / TABLE_NAME).write_text(text)
    added = [
        jobs.add(
            "analyse",
            session.name,
            analysis_request(session, study, BlinkAnalysisSettings()),
            group="g",
        )
        for session in read_session_table(study / TABLE_NAME).sessions
    ]
    last = jobs.add(
        "study", "tables", {"study": str(study)}, after=[job.id for job in added], gathers=True
    )
    return [*added, last]


def add_long(jobs: JobFolder, folder: Path) -> tuple[Job, Path]:
    """Ask for a session that takes some time."""
    study = folder / "long"
    study.mkdir()
    write_long_trace(folder / "long.csv", 3_000_000)
    (study / TABLE_NAME).write_text(f"session,trace,frame_rate_hz\nlong,{folder}/long.csv,240\n")
    (session,) = read_session_table(study / TABLE_NAME).sessions
    request = analysis_request(session, study, BlinkAnalysisSettings())
    return jobs.add("analyse", "long", request), study


def state_of(jobs: JobFolder, job: Job) -> JobState:
    return jobs.view(job.id).state.state


@pytest.mark.slow
def test_a_study_of_jobs_equals_that_of_a_batch(jobs: JobFolder, tmp_path: Path) -> None:
    table = write_study_files(tmp_path / "recordings", participants=1, sessions=3)
    (tmp_path / "recordings" / "p0s2.csv").write_text("nothing,of\nuse,here\n")
    study, expected = tmp_path / "study", tmp_path / "expected"
    added = add_study(jobs, study, table)
    assert run_jobs(jobs, slots=2, idle_s=0.0)
    assert [state_of(jobs, job) for job in added] == ["done", "failed", "done", "done"]
    assert "p0s2.csv" in jobs.view(added[1].id).state.reason
    result = run_batch(read_session_table(study / TABLE_NAME).sessions, expected)
    write_study(expected, result.records)
    names = sorted(path.relative_to(expected) for path in expected.rglob("*.csv"))
    assert len(names) > 8
    for name in names:
        assert (study / name).read_bytes() == (expected / name).read_bytes(), name
    # Each goes on with the other's work: nothing is analysed again.
    again = run_batch(read_session_table(study / TABLE_NAME).sessions, study)
    assert (again.count("skipped"), again.count("done")) == (2, 0)
    assert not list((study / ".batch" / "jobs").iterdir())


def test_a_job_whose_process_ended_twice_fails(jobs: JobFolder, tmp_path: Path) -> None:
    job, study = add_long(jobs, tmp_path)
    for _ in range(2):
        keep_running_until(jobs, lambda: state_of(jobs, job) == "running")
        number, _ = jobs.view(job.id).state.process or (0, 0.0)
        runner = psutil.Process(number)
        runner.kill()
        runner.wait()
    keep_running_until(jobs, lambda: jobs.view(job.id).ended)
    assert state_of(jobs, job) == "failed"
    assert "ended twice" in jobs.view(job.id).state.reason
    assert not (study / "long").exists()
    jobs.retry(job.id)
    assert state_of(jobs, job) == "waiting"
    assert jobs.view(job.id).state.attempt == 1


def test_a_cancelled_job_leaves_nothing(jobs: JobFolder, tmp_path: Path) -> None:
    job, study = add_long(jobs, tmp_path)
    waiting = jobs.add("study", "tables", {"study": str(study)}, after=[job.id])
    jobs.start_runner()
    wait_until(lambda: state_of(jobs, job) == "running")
    (runner,) = children_of(os.getpid(), RUNNER)
    wait_until(runner.children)
    workers = runner.children()
    jobs.cancel(job.id)
    wait_for_end(workers)
    wait_until(lambda: jobs.view(waiting.id).ended)
    assert state_of(jobs, job) == "cancelled"
    assert state_of(jobs, waiting) == "failed", "it needed the other's result"
    assert not (study / "long").exists()
    assert not list((study / ".batch").glob("jobs/*"))


def test_two_processes_cannot_claim_one_job(jobs: JobFolder) -> None:
    job = jobs.add("study", "tables", {})
    assert [jobs.claim(job.id), jobs.claim(job.id)] == [True, False]
    assert jobs.view(job.id).state.process == (os.getpid(), psutil.Process().create_time())


def test_whoever_cancels_while_another_claims_stops_the_job(jobs: JobFolder) -> None:
    job = jobs.add("study", "tables", {})
    folder = jobs.path(job.id)
    # As `claim` leaves it for a moment, before the state names its process.
    (folder / "queued").rename(folder / "claimed")
    with FileLock(jobs.runner_lock):
        jobs.cancel(job.id)
        assert jobs.is_cancelled(job.id)
        assert state_of(jobs, job) == "waiting", "its runner stops it"
    jobs.cancel(job.id)
    assert state_of(jobs, job) == "cancelled"
    # As `finish` leaves it where it is interrupted.
    (folder / "cancel").touch()
    jobs.retry(job.id)
    assert not jobs.is_cancelled(job.id)


@pytest.mark.parametrize(("shift_s", "is_same"), [(0.0, True), (1.0, True), (60.0, False)])
def test_a_later_process_with_the_same_number_is_another(shift_s: float, is_same: bool) -> None:
    number, start = this_process()
    assert is_alive((number, start + shift_s)) == is_same


def test_recovery_mends_what_was_half_done_and_spares_what_is_being_added(jobs: JobFolder) -> None:
    job = jobs.add("study", "tables", {})
    (jobs.path(job.id) / "queued").unlink()
    for name, age_s in (("new", 0), ("old", 2 * 3600)):
        half = jobs.place / f".new-{name}"
        half.mkdir()
        (half / "queued").touch()
        os.utime(half, (time.time() - age_s,) * 2)
    assert not jobs.has_waiting(), "half a job is none"
    jobs.recover()
    assert [path.name for path in jobs.place.glob(".new-*")] == [".new-new"]
    assert jobs.claim(job.id)
    # As a loss of power leaves what waited for no disk.
    (jobs.path(job.id) / "state.json").write_bytes(b"")
    jobs.recover()
    assert state_of(jobs, job) == "waiting"
    assert jobs.claim(job.id)


def test_a_job_outlives_a_loss_of_power(jobs: JobFolder, tmp_path: Path) -> None:
    job = jobs.add("look", "none", {"videos": {}, "looks": str(tmp_path / "looks")})
    assert jobs.claim(job.id)
    # Once the machine is on again, another process has the number of the runner.
    gone = (os.getpid(), psutil.Process().create_time() - 3600.0)
    jobs.write_state(job.id, replace(jobs.view(job.id).state, process=gone))
    assert state_of(jobs, job) == "waiting"
    assert run_jobs(jobs, slots=1, idle_s=0.0)
    assert state_of(jobs, job) == "done"
    history = [event["what"] for event in jobs.events(job.id)]
    assert history.count("done") == 1
    assert "its process had ended: waits again" in history


def test_a_job_that_hangs_fails_and_the_others_go_on(
    jobs: JobFolder, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(runner_module, "_SPEAKING", ("analyse",))
    job, study = add_long(jobs, tmp_path)
    other = jobs.add("look", "none", {"videos": {}, "looks": str(tmp_path / "looks")})
    with ThreadPoolExecutor(1) as threads:
        result = threads.submit(run_jobs, jobs, slots=1, idle_s=0.0)
        wait_until(lambda: state_of(jobs, job) == "running")
        wait_until(lambda: children_of(os.getpid(), "site_agent.work.worker"))
        for worker in children_of(os.getpid(), "site_agent.work.worker"):
            worker.suspend()  # as a decoder that hangs
        monkeypatch.setattr(runner_module, "_MOST_SILENCE_S", 0.1)
        assert result.result()
    assert state_of(jobs, job) == "failed"
    assert "it hung: nothing was heard of it" in jobs.view(job.id).state.reason
    assert state_of(jobs, other) == "done"
    assert not (study / "long").exists()


def test_no_job_begins_while_jobs_are_paused(jobs: JobFolder) -> None:
    jobs.pause(paused=True)
    job = jobs.add("study", "tables", {})
    runner = runner_module._Runner(jobs, 1)
    assert runner._next_task() is None
    jobs.pause(paused=False)
    task = runner._next_task()
    assert task is not None
    assert task.key == job.id


def test_jobs_that_end_together_wait_for_one_another_in_line(
    jobs: JobFolder, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("site_agent.work.claims.pause", lambda: pytest.fail("waits for seconds"))
    jobs.add("study", "tables", {})
    request = {"jobs": str(jobs.place)}

    def hold(_: int) -> int:
        with held_study(tmp_path / "study", request):
            return len(list((tmp_path / "study" / ".batch" / "holders").iterdir()))

    with ThreadPoolExecutor(8) as threads:
        assert list(threads.map(hold, range(8))) == [1] * 8


def test_the_order_and_the_end_of_jobs(jobs: JobFolder) -> None:
    first, second, third = (jobs.add("study", name, {}) for name in "abc")
    jobs.put_first(third.id)
    assert [view.job.title for view in jobs.views()] == ["c", "a", "b"]
    jobs.cancel(first.id)
    assert state_of(jobs, first) == "cancelled"
    with pytest.raises(InvalidInputError, match="has ended already"):
        jobs.cancel(first.id)
    with pytest.raises(InvalidInputError, match="stop it first"):
        jobs.remove(second.id)
    jobs.remove(first.id)
    with pytest.raises(NotFoundError):
        jobs.view(first.id)
    for number in ("../x", "a" * 5000):
        with pytest.raises(NotFoundError):
            jobs.view(number)


def test_short_work_goes_before_long_work(jobs: JobFolder, tmp_path: Path) -> None:
    long = jobs.add("study", "tables", {"study": str(tmp_path / "none")})
    short = jobs.add("look", "none", {"videos": {}, "looks": str(tmp_path / "looks")})
    assert run_jobs(jobs, slots=1, idle_s=0.0)
    began = [jobs.view(job.id).state.began or 0.0 for job in (short, long)]
    assert began == sorted(began)


def test_unknown_kinds_fail_and_the_others_go_on(jobs: JobFolder, tmp_path: Path) -> None:
    odd = jobs.add("magic", "odd", {})
    missing = jobs.add("study", "tables", {"study": str(tmp_path / "none")})
    assert run_jobs(jobs, slots=1, idle_s=0.0)
    assert "magic" in jobs.view(odd.id).state.reason
    assert state_of(jobs, missing) == "failed"


def test_a_second_runner_ends_at_once(jobs: JobFolder, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("site_agent.jobs.runner._LOCK_PATIENCE_S", 0.1)
    jobs.add("study", "tables", {})
    monkeypatch.setattr(
        "site_agent.jobs.runner._Runner.run", lambda *_: not run_jobs(jobs) and jobs.cancel(only())
    )

    def only() -> str:
        return jobs.views()[0].job.id

    assert run_jobs(jobs)
    assert jobs.views()[0].state.state == "cancelled"
