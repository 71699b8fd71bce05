"""What owners, participants and curators hear of what others do with their models."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import httpx

from tests.pool_server.conftest import OpenPool
from tests.pool_server.model_files import network_bytes
from tests.pool_server.pool_driver import PoolDriver, upload
from tests.pool_server.rounds.round_driver import start_round, upload_base
from tests.pool_server.transfers.test_recipes import recipe_for


def heard(client: httpx.Client, kind: str, **parameters: Any) -> list[tuple[str, dict[str, Any]]]:
    answer = client.get("/api/v1/events", params={"kind": kind, "limit": 200, **parameters})
    return [(each["subject"], each["details"]) for each in answer.json()["items"]]


def test_an_owner_hears_who_downloads_merges_and_hands_on(pool: PoolDriver) -> None:
    owner, user = pool.member("uses"), pool.member("uses-b")
    content = network_bytes()
    version = upload(owner, "uses/face", content)
    for client in (owner, user, user, pool.member("uses-b", "viewer")):
        path = "/api/v1/models/uses/face/versions/1/content"
        assert client.get(path).status_code == 200
    of_it = "pool://uses/face@1"
    assert heard(owner, "version.downloaded") == [(of_it, {"by": "uses-b"})], "once a site"
    for name, visibility in (("open", "consortium"), ("hidden", "private")):
        made = network_bytes()
        recipe = recipe_for(made, version["digest"], "0" * 64)
        upload(user, f"uses-b/{name}", made, recipe=recipe, visibility=visibility)
    assert heard(owner, "version.merged") == [
        (of_it, {"into": "pool://uses-b/open@1", "by": "uses-b"}),
        (of_it, {"into": "a private model", "by": "uses-b"}),
    ]
    own = network_bytes()
    upload(owner, "uses/own", own, recipe=recipe_for(own, version["digest"]))
    assert len(heard(owner, "version.merged")) == 2, "not of what the site does itself"
    sharing = {"visibility": "consortium", "rights": ["download", "merge", "redistribute"]}
    assert owner.put("/api/v1/models/uses/face/sharing", json=sharing).status_code == 200
    upload(user, "uses-b/copy", content)
    assert heard(owner, "version.handed-on") == [
        (of_it, {"as": "pool://uses-b/copy@1", "by": "uses-b"})
    ]
    assert heard(user, "version.merged") + heard(user, "version.downloaded") == []


def test_sites_hear_that_they_are_asked_for_a_round(pool: PoolDriver) -> None:
    _, address = upload_base(pool, "asked", seed=907)
    sites = ("round-a", "round-b", "round-c")
    started = start_round(pool, address, sites)
    asked = dict(heard(pool.member("round-b"), "round.asked"))[started["round_id"]]
    assert (asked["base"], asked["by"]) == (address, "round-a")
    assert started["round_id"] not in dict(heard(pool.member("round-a"), "round.asked"))


def test_curators_hear_of_drafts_that_wait(open_pool: OpenPool, tmp_path: Path) -> None:
    with open_pool(tmp_path, curated=True) as pool:
        version = upload(pool.member("drafting"), "drafting/face")
        assert version["state"] == "draft"
        [(subject, details)] = heard(pool.admin, "version.waiting")
        assert subject == f"sha256:{version['digest']}", "whoever reads this may not see drafts"
        assert details["see"] == "poolctl models queue"
        assert heard(pool.member("drafting"), "version.waiting") == []
