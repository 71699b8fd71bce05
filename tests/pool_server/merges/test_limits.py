"""Limits of a merge, and the progress that it reports."""

import os
from pathlib import Path

import pytest

from pool_server.jobs.limited import Limits, StoppedError, run_limited
from tests.pool_server.http.test_metrics import samples
from tests.pool_server.merges.merge_driver import OVER, ask, landmark_bytes, recipe_of, wait_for
from tests.pool_server.pool_driver import pool_in_process, upload

MIB = 1024**2


def test_a_merge_that_needs_too_much_memory_is_ended(tmp_path: Path) -> None:
    with pool_in_process(tmp_path, merge_memory_bytes=64 * MIB) as pool:
        member = pool.member("merges")
        version = upload(member, "merges/face", landmark_bytes(1))
        job = wait_for(member, ask(member, recipe_of([version])).json()["merge_id"], OVER)
        assert (job["state"], job["refusal"]["code"]) == ("failed", "merge_refused")
        assert job["refusal"]["message"].startswith("the merge needs more memory than the ")
        assert member.get("/api/v1/models/merges/merged").status_code == 404
        counted = samples(pool.admin.get("/metrics").text)
        assert {
            state: counted["pool_merges_ended_total", (("state", state),)]
            for state in ("finished", "failed", "cancelled")
        } == {"finished": 0, "failed": 1, "cancelled": 0}


def test_progress_is_told_while_a_merge_runs(tmp_path: Path) -> None:
    paths = [tmp_path / "first.dat", tmp_path / "second.dat"]
    paths[0].write_bytes(landmark_bytes(1))
    # Opening a pipe without a writer waits: the merge stops at its second input.
    os.mkfifo(paths[1])
    plan = {
        "method": "wba-cascade",
        "options": {},
        "format": None,
        "result": str(tmp_path / "result"),
        "inputs": [
            {"path": str(path), "file_name": path.name, "address": None, "weight": 1.0}
            for path in paths
        ],
        "promised_digest": None,
        "successor_of": None,
    }
    told: list[tuple[float, str]] = []

    def listen(progress: float, activity: str) -> bool:
        told.append((progress, activity))
        return progress == 0

    with pytest.raises(StoppedError):
        run_limited(
            "pool_server.jobs.merging",
            plan,
            Limits(4096 * MIB, 60),
            activity="the merge",
            listen=listen,
        )
    progress, activity = told[-1]
    assert 0 < progress < 1
    assert activity == "reading second.dat"
