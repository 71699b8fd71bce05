"""Merges made by the pool: the same bytes as at home, in the background, within limits."""

from __future__ import annotations

import json
import os
import signal
import time
from pathlib import Path
from typing import Any

import httpx
import pytest

from aggregators.methods import merge
from tests.pool_server.merges.merge_driver import (
    OVER,
    ask,
    helper_of,
    landmark_bytes,
    recipe_of,
    wait_for,
)
from tests.pool_server.pool_driver import (
    PoolDriver,
    error_of,
    open_client,
    pool_in_thread,
    pool_process,
    upload,
    wait_until,
)


@pytest.fixture(scope="module")
def member(pool: PoolDriver) -> httpx.Client:
    return pool.member("merges")


@pytest.fixture(scope="module")
def sub_models(member: httpx.Client) -> list[dict[str, Any]]:
    return [
        upload(
            member,
            f"merges/face-{seed}",
            landmark_bytes(seed),
            file_name=f"{seed}.dat",
            labels={"parts": "5", "images": "9", "camera": f"{seed}", "population": "adult"},
        )
        for seed in (1, 4)
    ]


@pytest.mark.both_shapes
def test_the_pool_makes_the_same_bytes_as_a_site(
    member: httpx.Client, sub_models: list[dict[str, Any]], tmp_path: Path
) -> None:
    files = []
    for seed in (1, 4):
        files.append(tmp_path / f"{seed}.dat")
        files[-1].write_bytes(landmark_bytes(seed))
    home = merge(
        "wba-cascade",
        files,
        weights=[1.0, 2.0],
        options={"step": 1.1},
        output=tmp_path / "home.dat",
        addresses=[each["address"] for each in sub_models],
    )
    asked = ask(member, recipe_of(list(sub_models)), labels={"population": "infant"})
    assert asked.status_code == 202, asked.text
    job = wait_for(member, asked.json()["merge_id"], OVER)
    assert (job["state"], job["digest"], job["progress"]) == ("finished", home.digest, 1.0)
    content = member.get("/api/v1/models/merges/merged/versions/1/content", follow_redirects=True)
    assert content.content == (tmp_path / "home.dat").read_bytes()
    version = member.get("/api/v1/models/merges/merged/versions/1").json()
    assert version["labels"] == {"population": "infant", "parts": "5"}, "what both inputs share"
    assert set(version["parent_digests"]) == {each["digest"] for each in sub_models}
    lineage = member.get("/api/v1/models/merges/merged/versions/1/lineage").json()
    assert lineage["recipe"] == json.loads(home.recipe.to_json())
    # The same again is the version that is there.
    again = wait_for(member, ask(member, recipe_of(list(sub_models))).json()["merge_id"], OVER)
    assert again["version"] == job["version"] == "pool://merges/merged@1"


@pytest.mark.both_shapes
def test_the_fit_of_models_comes_with_their_descriptions(
    member: httpx.Client, sub_models: list[dict[str, Any]]
) -> None:
    one, two = (each["address"] for each in sub_models)
    member.put("/api/v1/models/merges/face-4/aliases/best", json={"version": "1"})

    def ask_fit(*models: str) -> httpx.Response:
        return member.get("/api/v1/merges/fit", params={"model": list(models)})

    for chosen in ((two, "merges/face-1"), ("merges/face-4@best", one)):
        found = ask_fit(*chosen).json()
        assert "wba-cascade" in found["methods"]
        assert [each["address"] for each in found["versions"]] == [two, one]
    assert ask_fit(one).json()["versions"][0]["labels"]["camera"] == "1"
    assert error_of(ask_fit(one, "merges/face-1@9")) == (404, "version_not_found")
    assert error_of(ask_fit(one, "merges/never")) == (404, "model_not_found")
    assert ask_fit(one, f"sha256:{sub_models[1]['digest']}").status_code == 422


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"method": {"name": "magic", "version": 1}}, "magic"),
        ({"method": {"name": "wba-cascade", "version": 9}}, "version 9"),
        ({"options": {"speed": 2}}, "speed"),
        ({"inputs": []}, "inputs"),
        ({"inputs": [{"digest": "1" * 64}]}, "1" * 64 + " is not in the pool"),
    ],
)
def test_what_cannot_be_merged_is_refused_at_once(
    member: httpx.Client, sub_models: list[dict[str, Any]], change: dict[str, Any], words: str
) -> None:
    answer = ask(member, recipe_of(list(sub_models)) | change)
    assert error_of(answer) == (422, "merge_refused")
    assert words in answer.json()["error"]["message"]


def test_a_waiting_merge_is_cancelled_at_once_and_too_many_are_refused(tmp_path: Path) -> None:
    with pool_in_thread(tmp_path, poll_interval_s=1000.0, max_open_merges_per_site=1) as pool:
        member = pool.member("merges")
        version = upload(member, "merges/face", landmark_bytes(1))
        time.sleep(0.2)  # the worker looks once at the start
        job = ask(member, recipe_of([version])).json()
        assert job["state"] == "queued"
        assert error_of(ask(member, recipe_of([version]))) == (409, "too_many_merges")
        cancelled = member.post(f"/api/v1/merges/{job['merge_id']}/cancel").json()
        assert cancelled["state"] == "cancelled"
        assert cancelled["ended_at"] is not None


def test_a_killed_server_leaves_the_merge_to_the_next(tmp_path: Path) -> None:
    environment = {"POOL_SERVER_LEASE_S": "3", "POOL_SERVER_POLL_INTERVAL_S": "0.05"}
    scratch = tmp_path / "scratch"
    with (
        pool_process(tmp_path, **environment) as (server, url, secret),
        open_client(url, secret) as admin,
    ):
        admin.post("/api/v1/sites", json={"name": "merges"})
        version = upload(admin, "merges/face", landmark_bytes(1))
        helper = helper_of(server.pid)
        os.kill(helper, signal.SIGSTOP)
        merge_id = ask(admin, recipe_of([version])).json()["merge_id"]
        wait_for(admin, merge_id, {"running"})
        wait_until(lambda: list(scratch.iterdir()) != [])
        server.kill()
        server.wait()
        os.kill(helper, signal.SIGKILL)
    assert list(scratch.iterdir()), "where it was made"
    with pool_process(tmp_path, **environment) as (_, url, _), open_client(url, secret) as admin:
        job = wait_for(admin, merge_id, OVER)
        assert job["state"] == "finished"
        assert job["version"] == "pool://merges/merged@1"
        assert not list(scratch.iterdir()), "what was left is cleared up"
