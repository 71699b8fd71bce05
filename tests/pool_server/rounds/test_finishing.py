"""How rounds end: once, with everything that was contributed, and a next one."""

from __future__ import annotations

import json
from concurrent.futures import ThreadPoolExecutor
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest

from aggregators.methods import merge
from aggregators.models import ShapePredictor
from tests.pool_server.model_files import sha256
from tests.pool_server.pool_driver import (
    PoolDriver,
    error_of,
    open_client,
    send_parts,
)
from tests.pool_server.rounds.round_driver import (
    SITES,
    announce_result,
    bring_result,
    combine,
    contribute,
    contribution_bytes,
    pass_deadline,
    show,
    start_round,
    states,
    upload_base,
)


@pytest.fixture(scope="module")
def base(pool: PoolDriver) -> tuple[ShapePredictor, str]:
    return upload_base(pool, "base-to-finish", 3)


def contribute_all(
    pool: PoolDriver, key: str, base: ShapePredictor, sites: tuple[str, ...] = SITES
) -> list[bytes]:
    contents = [contribution_bytes(base, seed) for seed in range(20, 20 + len(sites))]
    for site, content in zip(sites, contents, strict=True):
        assert contribute(pool.member(site), key, site, content).status_code == 201
    return contents


def recipe_of(merged: Any) -> Any:
    return json.loads(merged.recipe.to_json())


def test_a_participant_finishes(
    pool: PoolDriver, base: tuple[ShapePredictor, str], tmp_path: Path
) -> None:
    started = start_round(pool, base[1], rounds=2)
    key = started["round_id"]
    contents = contribute_all(pool, key, base[0])
    client = pool.member(SITES[2])
    assert show(client, key)["ready"]
    path, merged = combine(tmp_path, base[0], contents)
    done = bring_result(client, key, "round-c/refined", path.read_bytes(), recipe_of(merged))
    assert done.status_code == 201, done.text
    version = done.json()["version"]
    assert version["digest"] == merged.digest
    assert set(version["parent_digests"]) == {
        started["base_digest"], *map(sha256, contents)
    }  # fmt: skip
    ended = show(client, key)
    assert (ended["state"], ended["ready"]) == ("finished", False)
    assert (ended["result"], ended["result_digest"]) == ("pool://round-c/refined@1", merged.digest)
    assert ended["ended_by"] == "round-c/test-contributor"
    lineage = client.get("/api/v1/models/round-c/refined/versions/1/lineage").json()
    assert lineage["recipe"]["method"]["name"] == "leaf-refit"

    following = show(client, ended["successor"])
    assert (following["number"], following["rounds_total"]) == (2, 2)
    assert following["base"] == ended["result"]
    assert following["predecessor"] == key
    assert following["options"] == started["options"]
    assert states(following) == dict.fromkeys(SITES, "waiting")
    lasted, lasts = (
        datetime.fromisoformat(each["deadline"]) - datetime.fromisoformat(each["created_at"])
        for each in (started, following)
    )
    assert abs((lasts - lasted).total_seconds()) < 2
    # What fitted the first base does not fit the second.
    stale = contribute(client, following["round_id"], SITES[2], contents[2])
    assert error_of(stale) == (422, "contribution_refused")


@pytest.mark.both_shapes
def test_the_pool_finishes_with_the_same_bytes(
    pool: PoolDriver, base: tuple[ShapePredictor, str], tmp_path: Path
) -> None:
    key = start_round(pool, base[1])["round_id"]
    contents = contribute_all(pool, key, base[0])
    _, merged = combine(tmp_path, base[0], contents)
    client = pool.member(SITES[0])
    request = {"site": SITES[0], "name": "by-the-pool"}
    done = client.post(f"/api/v1/rounds/{key}/finish", json=request)
    assert done.status_code == 200, done.text
    ended = done.json()
    assert (ended["state"], ended["successor"]) == ("finished", None)
    assert ended["result"] == "pool://round-a/by-the-pool@1"
    assert ended["result_digest"] == merged.digest
    content = client.get("/api/v1/models/round-a/by-the-pool/versions/1/content").content
    assert sha256(content) == merged.digest
    again = pool.member(SITES[1]).post(
        f"/api/v1/rounds/{key}/finish", json={"site": SITES[1], "name": "again"}
    )
    assert again.json() == ended


def test_who_does_not_answer_is_left_out(
    pool: PoolDriver, base: tuple[ShapePredictor, str], tmp_path: Path
) -> None:
    key = start_round(pool, base[1])["round_id"]
    contents = contribute_all(pool, key, base[0], SITES[:2])
    client = pool.member(SITES[1])
    path, merged = combine(tmp_path, base[0], contents)
    result = (key, "round-b/without-c", path.read_bytes(), recipe_of(merged))
    waiting = announce_result(client, *result)
    assert error_of(waiting) == (409, "round_open")
    assert "round-c" in waiting.json()["error"]["message"]
    by_pool = {"site": SITES[1], "name": "without-c"}
    assert error_of(client.post(f"/api/v1/rounds/{key}/finish", json=by_pool))[0] == 409
    assert error_of(client.post(f"/api/v1/rounds/{key}/close")) == (403, "not_allowed")
    closed = pool.member(SITES[0]).post(f"/api/v1/rounds/{key}/close").json()
    assert (closed["state"], closed["ready"]) == ("closed", True)
    done = bring_result(client, *result)
    assert done.status_code == 201, done.text
    assert states(show(client, key)) == {
        "round-a": "contributed", "round-b": "contributed", "round-c": "missing",
    }  # fmt: skip
    late = contribute(pool.member(SITES[2]), key, SITES[2], contribution_bytes(base[0], 30))
    assert error_of(late) == (409, "round_closed")
    assert states(show(client, key))["round-c"] == "late"


def test_a_round_without_contributions_expires(
    pool: PoolDriver, base: tuple[ShapePredictor, str]
) -> None:
    key = start_round(pool, base[1])["round_id"]
    pass_deadline(pool.settings, key)
    client = pool.member(SITES[0])
    assert show(client, key)["state"] == "expired"
    request = {"site": SITES[0], "name": "nothing"}
    answer = client.post(f"/api/v1/rounds/{key}/finish", json=request)
    assert error_of(answer) == (409, "round_closed")


def test_recipes_that_are_not_of_the_round(
    pool: PoolDriver, base: tuple[ShapePredictor, str], tmp_path: Path
) -> None:
    key = start_round(pool, base[1])["round_id"]
    contents = contribute_all(pool, key, base[0])
    client = pool.member(SITES[0])
    path, merged = combine(tmp_path, base[0], contents)
    content, recipe = path.read_bytes(), recipe_of(merged)

    def refused(changed: dict[str, Any], of: bytes = content) -> str:
        answer = announce_result(client, key, "round-a/refused", of, {**recipe, **changed})
        assert error_of(answer) == (422, "recipe_refused"), answer.text
        message: str = answer.json()["error"]["message"]
        return message

    assert "missing" in refused({"inputs": recipe["inputs"][:-1]})
    stray = {**recipe["inputs"][-1], "digest": "0" * 64}
    assert "0000" in refused({"inputs": [*recipe["inputs"], stray]})
    assert "too much" in refused({"inputs": [*recipe["inputs"], recipe["inputs"][-1]]})
    assert "weighs" in refused({"inputs": [{**each, "weight": 2.0} for each in recipe["inputs"]]})
    assert "version 9" in refused({"method": {"name": "leaf-refit", "version": 9}})
    assert "wba-cascade" in refused({"method": {"name": "wba-cascade", "version": 1}})
    assert "options" in refused({"options": {"step": 1.1}})
    assert "SHA-256" in refused({}, contents[0])
    assert show(client, key)["state"] == "open"
    foreign = announce_result(client, key, "round-b/theirs", content, recipe)
    assert error_of(foreign) == (403, "not_allowed")


def test_two_finish_at_once(
    pool: PoolDriver, base: tuple[ShapePredictor, str], tmp_path: Path
) -> None:
    key = start_round(pool, base[1], rounds=2)["round_id"]
    contents = contribute_all(pool, key, base[0])
    path, merged = combine(tmp_path, base[0], contents)
    content, recipe = path.read_bytes(), recipe_of(merged)
    uploads = {}
    for site in SITES:
        client = pool.member(site)
        opened = announce_result(client, key, f"{site}/raced", content, recipe).json()
        send_parts(client, opened, content)
        uploads[site] = opened["upload_id"]

    def finish(site: str) -> tuple[int, Any]:
        with open_client(pool.url, pool.secret(site, "contributor")) as client:
            answer = client.post(f"/api/v1/rounds/{key}/result/uploads/{uploads[site]}/complete")
            return answer.status_code, answer.json()

    with ThreadPoolExecutor(3) as workers:
        answers = list(workers.map(finish, SITES))
    assert [code for code, _ in answers] == [201] * 3
    ended = show(pool.admin, key)
    for _, answer in answers:
        version = answer["version"]
        assert f"pool://{version['site']}/raced@1" == ended["result"]
    listed = pool.admin.get("/api/v1/models", params={"name": "raced"}).json()["items"]
    assert len(listed) == 1, "the others' results are not published"
    rounds = pool.admin.get("/api/v1/rounds", params={"limit": 200}).json()["items"]
    assert [each["predecessor"] for each in rounds].count(key) == 1


def test_recipes_replay_from_what_the_pool_keeps(
    pool: PoolDriver, base: tuple[ShapePredictor, str], tmp_path: Path
) -> None:
    key = start_round(pool, base[1])["round_id"]
    contribute_all(pool, key, base[0])
    client = pool.member(SITES[0])
    client.post(f"/api/v1/rounds/{key}/finish", json={"site": SITES[0], "name": "replayed"})
    ended = show(client, key)
    files = [tmp_path / "base.dat"]
    files[0].write_bytes(
        client.get("/api/v1/models/round-a/base-to-finish/versions/1/content").content
    )
    for site in SITES:
        files.append(tmp_path / f"{site}.contribution")
        answer = client.get(f"/api/v1/rounds/{key}/contributions/{site}/content")
        files[-1].write_bytes(answer.content)
    merged = merge("leaf-refit", list(files), output=tmp_path / "again.dat")
    assert merged.digest == ended["result_digest"]
