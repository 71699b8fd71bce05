"""Shares of a folder, and a cluster of Dask: the same bytes, nothing twice, clear refusals."""

import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from distributed import LocalCluster

from site_agent.errors import BusyError, InvalidInputError
from site_agent.work import claims, dask_workers, workers
from site_agent.work.claims import Claims, Share, hold_folder, read_share, read_status
from site_agent.work.engines import open_workers
from site_agent.work.steps import Schedule, Step
from site_agent.work.workers import LocalWorkers
from tests.site_agent.work.shared_work import (
    contents,
    count_log,
    die,
    process_number,
    start,
    work,
)  # fmt: skip
from tests.waiting import wait_until


@pytest.fixture(autouse=True)
def _quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(claims, "POLL_S", 0.1)


@pytest.fixture(scope="module")
def scheduler() -> Iterator[str]:
    cluster = LocalCluster(n_workers=2, threads_per_worker=1, dashboard_address="127.0.0.1:0")
    with cluster:
        yield cluster.scheduler_address


def test_shares_and_dask_and_one_process_give_the_same_bytes(
    tmp_path: Path, scheduler: str
) -> None:
    shared = tmp_path / "shared"
    with ThreadPoolExecutor(3) as threads:
        shares = [threads.submit(work, shared, share=Share(number, 3)) for number in (1, 2, 3)]
        work(tmp_path / "local", workers="2")
        work(tmp_path / "dask", workers=scheduler)
    assert any(all(one.state in ("done", "kept") for one in share.result().values())
               for share in shares)  # fmt: skip
    expected = contents(tmp_path / "local")
    assert len(expected) == 15
    assert contents(shared) == expected
    assert contents(tmp_path / "dask") == expected
    for name in ("shared", "local", "dask"):
        assert set(count_log(tmp_path / name).values()) == {1}, "each step was done once"


def test_a_share_whose_process_is_killed_is_taken_over(tmp_path: Path) -> None:
    doomed = start(tmp_path, "--share", "1/2", "--seconds", "600")
    wait_until((tmp_path / "log").exists)
    what, status = read_status(tmp_path)
    assert what == "test"
    assert [(step.state, "share 1/2 on" in step.where) for step in status if step.where] == [
        ("running", True)
    ]
    with pytest.raises(BusyError, match=r"another test is at work here \(share 1/2 on "):
        work(tmp_path)
    doomed.kill()
    doomed.communicate()
    assert [step.state for step in read_status(tmp_path)[1] if step.where] == ["lost"]
    work(tmp_path, share=Share(2, 2))
    counts = count_log(tmp_path)
    assert sorted(counts.values()) == [1] * 27 + [2], "only the lost step was begun again"
    assert (tmp_path / "table.csv").exists()


def test_many_short_tasks_share_a_worker_until_it_is_old(monkeypatch: pytest.MonkeyPatch) -> None:
    for least_life_s, processes in ((30.0, 1), (0.0, 2)):
        monkeypatch.setattr(workers, "_LEAST_LIFE_S", least_life_s)
        with LocalWorkers(1, advice="", tasks_each=2) as pool:
            numbers = {event["done"] for event in pool.map(process_number, range(4))}
        assert len(numbers) == processes


def test_a_share_helps_the_others_from_the_end_of_their_work() -> None:
    steps = [Step(f"{number}", cost=cost) for number, cost in enumerate([1.0, 5.0, 1.0, 5.0, 1.0])]
    orders = []
    for number in (1, 2):
        schedule, order = Schedule(steps, share=Share(number, 2)), []
        while (step := schedule.next_step()) is not None:
            order.append(step.key)
        orders.append(order)
    assert sorted(orders[0]) == sorted(orders[1])
    assert orders[0][:3] == orders[1][::-1][:3]
    assert orders[0][0] == "1"
    assert orders[1][0] == "3"


def test_a_holder_elsewhere_lives_while_its_heart_beats_by_any_clock(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    now_s = [0.0]
    monkeypatch.setattr(claims, "time", SimpleNamespace(monotonic=lambda: now_s[0]))
    monkeypatch.setattr(claims, "HEARTBEAT_S", 600.0)
    with (
        Claims(tmp_path, Share(1, 2), what="test").held() as theirs,
        Claims(tmp_path, Share(2, 2), what="test").held() as mine,
    ):
        theirs.take("job")
        holder = tmp_path / "holders" / theirs.name
        holder.write_text(json.dumps({**json.loads(holder.read_text()), "host": "elsewhere"}))
        behind_s = time.time() - 7200.0
        for beat in range(5):
            os.utime(holder, (behind_s + beat,) * 2)
            assert not mine.take("job"), "two hours behind, but alive"
            now_s[0] += 0.9 * claims.WATCH_S
        assert not mine.take("job"), "it may beat later"
        now_s[0] += 0.2 * claims.WATCH_S
        assert mine.take("job")
        assert mine.look().claims["job"].number == 1


def test_two_processes_never_have_one_claim(tmp_path: Path) -> None:
    with Claims(tmp_path, Share(1, 9), what="test").held() as first:
        for key in map(str, range(50)):
            first.take(key)
        others = [Claims(tmp_path, Share(number, 9), what="test") for number in range(2, 6)]
        for path in (tmp_path / "holders").iterdir():
            dead = {**json.loads(path.read_text()), "process": [1 << 22, 0.0]}
            path.write_text(json.dumps(dead))
        claimed: list[str] = []

        def race(holder: Claims) -> None:
            with holder.held():
                claimed.extend(key for key in map(str, range(50)) if holder.take(key))

        with ThreadPoolExecutor(4) as threads:
            list(threads.map(race, others))
    assert set(claimed) == set(map(str, range(50)))


def test_a_job_that_failed_at_one_share_is_left_by_the_others(tmp_path: Path) -> None:
    outcomes = work(tmp_path, share=Share(1, 2), steps=2, do=die)
    assert {key: one.state for key, one in outcomes.items()} == {
        "n0": "failed", "n1": "failed", "sum0": "left out", "sum1": "left out",
    }  # fmt: skip
    assert "its process was killed; most likely memory ran out: use less" in outcomes["n0"].reason
    assert [step.state for step in read_status(tmp_path)[1]].count("failed") == 2
    # The same command again tries again.
    assert work(tmp_path, share=Share(1, 2), steps=2)["sum1"].state == "done"


def test_a_dask_worker_survives_a_task_that_dies(tmp_path: Path, scheduler: str) -> None:
    outcomes = work(tmp_path, workers=scheduler, steps=2, do=die)
    assert "its process was killed; most likely memory ran out" in outcomes["n0"].reason
    assert work(tmp_path, workers=scheduler, steps=2)["sum1"].state == "done"


@pytest.mark.parametrize(
    ("answer", "complaint", "hint"),
    [
        ({"missing": ["/data/study"]}, "does not see /data/study", "share that folder"),
        ({"libraries": ["cv2"]}, "has no cv2, which this process has", "poolctl[vision,cluster"),
        ({"versions": {**claims.versions(), "numpy": "1.0"}}, "numpy 1.0, but this process poolctl",
         "the same versions"),
    ],
)  # fmt: skip
def test_a_dask_worker_that_lacks_something_is_refused(
    answer: dict[str, Any], complaint: str, hint: str, tmp_path: Path, scheduler: str
) -> None:
    usual = {"host": "node3", "versions": claims.versions(), "missing": [], "libraries": []}
    with (
        open_workers(scheduler, tmp_path, advice="") as pool,
        pytest.MonkeyPatch.context() as patch,
    ):
        assert isinstance(pool, dask_workers.DaskWorkers)
        reply = {"tcp://node3:4000": {**usual, **answer}}
        patch.setattr(pool._client, "run", lambda *_, **__: reply)
        with pytest.raises(InvalidInputError, match=complaint) as refused:
            pool._check(reply)
        assert "the Dask worker tcp://node3:4000 on node3" in str(refused.value)
        assert hint in refused.value.hint


def test_a_scheduler_that_is_not_there_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(dask_workers, "_CONNECT_S", 1)
    with pytest.raises(InvalidInputError, match="no scheduler of Dask answers"):
        work(tmp_path, workers="tcp://127.0.0.1:1")
    with pytest.raises(InvalidInputError, match="--workers some: expected a number"):
        work(tmp_path, workers="some")


def test_shares_with_other_versions_or_settings_are_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with hold_folder(tmp_path, ".work", what="test", share=Share(1, 2)) as first:
        assert first.agree({"seed": 1}, lambda: "data") == "data"
        with hold_folder(tmp_path, ".work", what="test", share=Share(2, 2)) as second:
            assert second.agree({"seed": 1}, lambda: "again") == "data", "prepared once"
            with pytest.raises(InvalidInputError, match="with other data or settings"):
                second.agree({"seed": 2}, lambda: "other")
        monkeypatch.setattr(
            claims, "versions", lambda: {"poolctl": "9", "Python": "3", "numpy": "2"}
        )
        refused = r"share 1/2 on .* has poolctl 0.*, but this process poolctl 9, Python 3, numpy 2"
        with (
            pytest.raises(InvalidInputError, match=refused),
            hold_folder(tmp_path, ".work", what="test", share=Share(2, 2)),
        ):
            pass


@pytest.mark.skipif(not hasattr(os, "chown") or os.geteuid() != 0, reason="gives a file away")
def test_what_another_user_prepared_is_not_read(tmp_path: Path) -> None:
    with (
        hold_folder(tmp_path, ".work", what="test", share=Share(1, 2)) as first,
        hold_folder(tmp_path, ".work", what="test", share=Share(2, 2)) as second,
    ):
        first.agree({"seed": 1}, lambda: "data")
        os.chown(tmp_path / ".work" / "prepared", 65534, 65534)
        with pytest.raises(InvalidInputError, match="was written by another user"):
            second.agree({"seed": 1}, lambda: "data")


@pytest.mark.parametrize(
    ("text", "variables", "share"),
    [
        ("3/20", {}, Share(3, 20)),
        ("auto", {"SLURM_ARRAY_TASK_ID": "7", "SLURM_ARRAY_TASK_MIN": "5",
                  "SLURM_ARRAY_TASK_COUNT": "4"}, Share(3, 4)),
        ("auto", {"SGE_TASK_ID": "2", "SGE_TASK_FIRST": "1", "SGE_TASK_LAST": "3"}, Share(2, 3)),
        ("auto", {"CONDOR_PROCESS": "0", "CONDOR_COUNT": "2"}, Share(1, 2)),
        ("auto", {"PBS_ARRAY_INDEX": "2", "PBS_ARRAY_COUNT": "2"}, Share(2, 2)),
        ("auto", {}, "no array job here"),
        ("0/3", {}, "expected 1/3 to 3/3"),
        ("half", {}, "expected I/N"),
    ],
)  # fmt: skip
def test_shares_are_read(text: str, variables: dict[str, str], share: Share | str) -> None:
    if isinstance(share, str):
        with pytest.raises(InvalidInputError, match=share):
            read_share(text, variables)
    else:
        assert read_share(text, variables) == share


@pytest.mark.skipif(
    not hasattr(os, "geteuid") or os.geteuid() != 0, reason="starts as another user"
)
def test_a_folder_of_another_user_is_refused_whole() -> None:
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place) / "study"
        folder.mkdir(mode=0o755)
        Path(place).chmod(0o755)
        other = start(folder, "--user", "65534")
        _, complaints = other.communicate()
        assert b"cannot be written: Permission denied" in complaints
        assert list(folder.iterdir()) == []


def test_a_full_disk_fails_its_job_and_leaves_no_part(tmp_path: Path) -> None:
    shell = f"ulimit -f 0; exec {sys.executable} -m tests.site_agent.work.shared_work {tmp_path}"
    full = subprocess.run(["bash", "-c", shell], capture_output=True, check=False)
    assert b"File too large" in full.stderr
    assert not list(tmp_path.rglob("*.partial"))
    assert not list((tmp_path / "results").glob("*"))
