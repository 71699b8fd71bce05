"""Merges made by the pool: the same bytes as at home, in the background, within limits."""

import json
import os
import signal
import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

import httpx
import pytest

from aggregators.methods import merge
from pool_server.merges.running import MergeWorker
from tests.pool_server.http.test_metrics import samples
from tests.pool_server.merges.merge_driver import (
    OVER,
    ask,
    helper_of,
    landmark_bytes,
    recipe_of,
    wait_for,
)
from tests.pool_server.model_files import network_bytes, sha256
from tests.pool_server.pool_driver import (
    PoolDriver,
    error_of,
    open_client,
    pages_of,
    pool_in_process,
    pool_process,
    upload,
)
from tests.waiting import wait_until


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
        addresses=[sub_model["address"] for sub_model in sub_models],
    )
    asked = ask(member, recipe_of(list(sub_models)), labels={"population": "infant"})
    assert asked.status_code == 202, asked.text
    job = wait_for(member, asked.json()["merge_id"], OVER)
    assert (job["state"], job["digest"], job["progress"]) == ("finished", home.digest, 1.0)
    content = member.get("/api/v1/models/merges/merged/versions/1/content", follow_redirects=True)
    assert content.content == (tmp_path / "home.dat").read_bytes()
    version = member.get("/api/v1/models/merges/merged/versions/1").json()
    assert version["labels"] == {"population": "infant", "parts": "5"}, "what both inputs share"
    assert set(version["parent_digests"]) == {sub_model["digest"] for sub_model in sub_models}
    lineage = member.get("/api/v1/models/merges/merged/versions/1/lineage").json()
    assert lineage["recipe"] == json.loads(home.recipe.to_json())
    # The same again is the version that is there.
    again = wait_for(member, ask(member, recipe_of(list(sub_models))).json()["merge_id"], OVER)
    assert again["version"] == job["version"] == "pool://merges/merged@1"


def test_a_promise_that_does_not_hold_publishes_nothing(
    member: httpx.Client, sub_models: list[dict[str, Any]]
) -> None:
    promised = {"digest": "0" * 64, "format": "dlib-shape-predictor"}
    asked = ask(member, recipe_of(list(sub_models), output=promised), name="promised")
    job = wait_for(member, asked.json()["merge_id"], OVER)
    assert job["state"] == "failed"
    assert "the recipe promises " + "0" * 64 in job["refusal"]["message"]
    assert member.get("/api/v1/models/merges/promised").status_code == 404


@pytest.mark.both_shapes(slow=True)
def test_the_fit_of_models_comes_with_their_descriptions(
    member: httpx.Client, sub_models: list[dict[str, Any]]
) -> None:
    one, two = (version["address"] for version in sub_models)

    def ask_fit(*models: str) -> httpx.Response:
        return member.get("/api/v1/merges/fit", params={"model": list(models)})

    for chosen in ((two, "merges/face-1"), ("merges/face-4@1", one)):
        fit = ask_fit(*chosen).json()
        assert "wba-cascade" in fit["methods"]
        assert [version["address"] for version in fit["versions"]] == [two, one]
    assert ask_fit(one).json()["versions"][0]["labels"]["camera"] == "1"
    assert error_of(ask_fit(one, "merges/face-1@9")) == (404, "version_not_found")
    assert error_of(ask_fit(one, "merges/never")) == (404, "model_not_found")
    assert ask_fit(one, f"sha256:{sub_models[1]['digest']}").status_code == 422


def test_models_that_do_not_fit_are_named(
    member: httpx.Client, sub_models: list[dict[str, Any]]
) -> None:
    other = upload(member, "merges/seven-parts", landmark_bytes(9, parts=7))
    refused = ask(member, recipe_of([sub_models[0], other]), name="unlike")
    assert error_of(refused) == (422, "merge_refused")
    said = "merges/face-1@1 and pool://merges/seven-parts@1: parts 5 and 7"
    assert refused.json()["error"]["message"].endswith(said)
    network = upload(member, "merges/network", network_bytes())
    refused = ask(member, recipe_of([sub_models[0], network]), name="unlike")
    assert refused.json()["error"]["message"].endswith('@1: kind "ert" and "network"')


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"method": {"name": "magic", "version": 1}}, "magic"),
        ({"method": {"name": "wba-cascade", "version": 9}}, "version 9"),
        ({"options": {"speed": 2}}, "speed"),
        ({"inputs": []}, "inputs"),
        ({"inputs": [{"digest": "1" * 64}]}, "1" * 64 + " is not in the pool"),
    ],
)
def test_impossible_merges_are_refused_at_once(
    member: httpx.Client, sub_models: list[dict[str, Any]], change: dict[str, Any], reason: str
) -> None:
    answer = ask(member, recipe_of(list(sub_models)) | change)
    assert error_of(answer) == (422, "merge_refused")
    assert reason in answer.json()["error"]["message"]


def test_a_model_that_one_may_not_merge(pool: PoolDriver, member: httpx.Client) -> None:
    owner = pool.member("merges-owner")
    theirs = upload(owner, "merges-owner/face", landmark_bytes(30))
    path = "/api/v1/models/merges-owner/face/sharing"
    seen = {"visibility": "consortium", "rights": ["download"]}
    assert owner.put(path, json=seen).status_code == 200
    answer = ask(member, recipe_of([theirs]))
    assert error_of(answer) == (422, "merge_refused")
    assert "merges-owner" in answer.json()["error"]["message"]
    assert owner.put(path, json={"visibility": "private"}).status_code == 200
    answer = ask(member, recipe_of([theirs]))
    assert "is not in the pool" in answer.json()["error"]["message"]


def test_merges_are_seen_by_their_site_alone(
    pool: PoolDriver, member: httpx.Client, sub_models: list[dict[str, Any]]
) -> None:
    asked = [ask(member, recipe_of(list(sub_models))).json()["merge_id"] for _ in range(2)]
    assert pool.member("merges-foreign").get("/api/v1/merges").json()["items"] == []
    pages = pages_of(member, "/api/v1/merges", limit=1)
    assert [page["items"][0]["merge_id"] for page in pages[:2]] == asked[::-1]


def test_a_merge_begins_at_once_however_seldom_a_process_looks(tmp_path: Path) -> None:
    with pool_in_process(tmp_path, poll_interval_s=1000.0) as pool:
        member = pool.member("merges")
        version = upload(member, "merges/face", landmark_bytes(1))
        job = ask(member, recipe_of([version])).json()
        assert wait_for(member, job["merge_id"], OVER)["state"] == "finished"


@pytest.mark.usefixtures("no_merge_begins")
def test_a_waiting_merge_is_cancelled_at_once_and_too_many_are_refused(tmp_path: Path) -> None:
    with pool_in_process(tmp_path, max_open_merges_per_site=1) as pool:
        member = pool.member("merges")
        version = upload(member, "merges/face", landmark_bytes(1))
        job = ask(member, recipe_of([version])).json()
        assert job["state"] == "queued"
        assert error_of(ask(member, recipe_of([version]))) == (409, "too_many_merges")
        cancelled = member.post(f"/api/v1/merges/{job['merge_id']}/cancel").json()
        assert cancelled["state"] == "cancelled"
        assert cancelled["ended_at"] is not None


def test_a_merge_asked_for_before_an_upgrade_is_made_after_it(tmp_path: Path) -> None:
    with pytest.MonkeyPatch.context() as patch, pool_in_process(tmp_path) as pool:
        patch.setattr(MergeWorker, "run_next", lambda _worker, _stopping: False)
        member = pool.member("merges")
        version = upload(member, "merges/face", landmark_bytes(1))
        merge_id = ask(member, recipe_of([version])).json()["merge_id"]
        with closing(sqlite3.connect(tmp_path / "pool.sqlite3")) as connection, connection:
            connection.execute(
                "UPDATE merge_jobs SET request = json_set(request, '$.intended_use', json('null'))"
            )
        patch.undo()
        ended = wait_for(member, merge_id, OVER)
        assert ended["state"] == "finished", ended


def test_a_running_merge_is_cancelled(tmp_path: Path) -> None:
    with pool_in_process(tmp_path) as pool:
        member = pool.member("merges")
        version = upload(member, "merges/face", landmark_bytes(1))
        helper = helper_of(os.getpid())
        os.kill(helper, signal.SIGSTOP)
        try:
            job = ask(member, recipe_of([version])).json()
            wait_for(member, job["merge_id"], {"running"})
            running = member.post(f"/api/v1/merges/{job['merge_id']}/cancel").json()
            assert running["state"] == "running"
            assert wait_for(member, job["merge_id"], OVER)["state"] == "cancelled"
        finally:
            os.kill(helper, signal.SIGCONT)
        assert member.get("/api/v1/models/merges/merged").status_code == 404


@pytest.mark.parametrize(
    ("limit", "message"),
    [
        ({"merge_time_s": 0.001}, "took longer than the 0.001 s"),
        ({"merge_memory_bytes": 64 * 1024**2}, "the merge needs more memory than the "),
    ],
)
def test_a_merge_beyond_its_limits_is_ended_and_counted(
    tmp_path: Path, limit: dict[str, Any], message: str
) -> None:
    with pool_in_process(tmp_path, **limit) as pool:
        member = pool.member("merges")
        version = upload(member, "merges/face", landmark_bytes(1))
        job = wait_for(member, ask(member, recipe_of([version])).json()["merge_id"], OVER)
        assert (job["state"], job["refusal"]["code"]) == ("failed", "merge_refused")
        assert message in job["refusal"]["message"]
        assert member.get("/api/v1/models/merges/merged").status_code == 404
        counted = samples(pool.admin.get("/metrics").text)
        assert {
            state: counted["pool_merges_ended_total", (("state", state),)]
            for state in ("finished", "failed", "cancelled")
        } == {"finished": 0, "failed": 1, "cancelled": 0}


def test_central_merges_can_be_switched_off(tmp_path: Path) -> None:
    with pool_in_process(tmp_path, central_merges=False) as pool:
        member = pool.member("merges")
        content = network_bytes()
        version = upload(member, "merges/gaze", content)
        assert sha256(content) == version["digest"]
        assert error_of(ask(member, recipe_of([version]))) == (422, "merge_refused")


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


RESEARCH_ONLY = {"code": "DUO:0000042", "detail": ""}
CARD = "---\nlicense: cc-by-4.0\n---\n# Merged\n"


@pytest.fixture(scope="module")
def of_two(member: httpx.Client) -> dict[str, Any]:
    inputs = [
        upload(member, f"merges/face-{seed}", landmark_bytes(seed), terms=[RESEARCH_ONLY])
        for seed in (51, 54)
    ]
    return recipe_of(list(inputs))


def test_all_that_is_said_of_a_result_is_published(
    pool: PoolDriver, member: httpx.Client, of_two: dict[str, Any]
) -> None:
    said: dict[str, Any] = {
        "description": "Of two sites",
        "labels": {"population": "infant"},
        "metrics": {"mean_error": 0.07},
        "terms": [{"code": "DUO:0000019", "detail": ""}],
        "visibility": "private",
        "card": CARD,
        "draft": True,
    }
    asked = ask(member, of_two, name="described", **said)
    assert asked.status_code == 202, asked.text
    job = wait_for(member, asked.json()["merge_id"], OVER)
    assert job["state"] == "finished", job
    path = "/api/v1/models/merges/described/versions/1"
    version = member.get(path).json()
    for name in ("description", "labels", "metrics", "visibility"):
        assert version[name] == said[name]
    assert version["state"] == "draft"
    codes = {term["code"]: term["inherited"] for term in version["terms"]}
    assert codes == {"DUO:0000019": False, "DUO:0000042": True}
    assert member.get(f"{path}/card").json()["source"] == CARD
    assert pool.member("described-other").get(path).status_code == 404


@pytest.mark.parametrize(
    ("said", "refusal"),
    [
        ({"terms": [{"code": "DUO:0000004", "detail": ""}]}, (409, "terms_forbid")),
        ({"labels": {"images": "many"}}, (422, "labels_refused")),
        ({"format": "safetensors"}, (422, "merge_refused")),
        ({"card": "---\n[\n---\n"}, (422, "card_refused")),
        ({"name": "face-51", "visibility": "private"}, (422, "sharing_refused")),
    ],
)
def test_what_cannot_be_said_is_refused_before_the_work(
    member: httpx.Client, of_two: dict[str, Any], said: dict[str, Any], refusal: tuple[int, str]
) -> None:
    before = member.get("/api/v1/merges").json()["items"]
    assert error_of(ask(member, of_two, **said)) == refusal
    assert member.get("/api/v1/merges").json()["items"] == before
