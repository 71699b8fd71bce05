"""The audit records refused acts, and the person behind each."""

from typing import Any

import httpx

from tests.pool_server.people.users.test_users import join
from tests.pool_server.pool_driver import PoolDriver, announce, error_of, upload


def read(client: httpx.Client, **parameters: Any) -> list[dict[str, Any]]:
    answer = client.get("/api/v1/audit", params={"limit": 200, **parameters})
    assert answer.status_code == 200, answer.text
    entries: list[dict[str, Any]] = answer.json()["items"]
    return entries


def test_a_refused_act_is_told_to_both_sites(pool: PoolDriver) -> None:
    upload(pool.member("refused-a"), "refused-a/face")
    join(pool, "refused-b", "eve", role="contributor")
    token = {"site": "refused-b", "name": "desk", "user": "eve"}
    eve = pool.client(pool.admin.post("/api/v1/tokens", json=token).json()["secret"])
    path = "/api/v1/models/refused-a/face/versions/1"
    tried = eve.delete(path, headers={"X-Request-ID": "tried-1"})
    assert error_of(tried) == (403, "not_allowed")
    admin = pool.member("refused-b", "admin")
    [entry] = read(admin, action="request.refuse")
    assert (entry["subject"], entry["outcome"]) == ("refused-a/face@1", "refused")
    assert (entry["actor"], entry["user"]) == ("refused-b/desk", "eve")
    assert (entry["request_id"], entry["address"]) == ("tried-1", "127.0.0.1")
    told = entry["details"]
    assert (told["method"], told["path"], told["code"]) == ("DELETE", path, "not_allowed")
    [seen] = read(pool.member("refused-a", "admin"), action="request.refuse")
    assert seen["entry_id"] == entry["entry_id"]
    assert (seen["user"], seen["address"], seen["token_id"]) == ("", "", "")
    theirs = read(pool.member("refused-a", "admin"))
    assert "eve" not in {word for line in theirs for word in (line["user"], line["actor"])}


def test_acts_beyond_the_scopes_of_a_token_are_recorded_as_well(pool: PoolDriver) -> None:
    narrow = {"site": "refused-c", "name": "narrow", "role": "admin", "scopes": ["models:read"]}
    pool.secret("refused-c", "viewer")
    client = pool.client(pool.admin.post("/api/v1/tokens", json=narrow).json()["secret"])
    assert announce(client, "refused-c/face", b"x").status_code == 403
    refused = read(pool.admin, action="request.refuse")
    [entry] = [line for line in refused if line["actor"] == "refused-c/narrow"]
    assert (entry["action"], entry["subject"]) == ("request.refuse", "/api/v1/uploads")
    assert (entry["user"], entry["details"]["method"]) == ("", "POST")


def test_looking_leaves_no_entry_nor_do_strangers(pool: PoolDriver) -> None:
    viewer = pool.member("refused-d", "viewer")
    assert viewer.get("/api/v1/tokens").status_code == 403
    assert pool.client("pool_unknown").delete("/api/v1/models/refused-d/x").status_code == 401
    assert read(pool.admin, site="refused-d", action="request") == []
