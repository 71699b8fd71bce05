"""Events about acts by others: for owners, participants and curators."""

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
    return [(item["subject"], item["details"]) for item in answer.json()["items"]]


def test_an_owner_is_notified_of_downloads_merges_and_copies(pool: PoolDriver) -> None:
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
    merged = network_bytes()
    upload(owner, "uses/own", merged, recipe=recipe_for(merged, version["digest"]))
    assert len(heard(owner, "version.merged")) == 2, "not of what the site does itself"
    sharing = {"visibility": "consortium", "rights": ["download", "merge", "redistribute"]}
    assert owner.put("/api/v1/models/uses/face/sharing", json=sharing).status_code == 200
    upload(user, "uses-b/copy", content)
    assert heard(owner, "version.handed-on") == [
        (of_it, {"as": "pool://uses-b/copy@1", "by": "uses-b"})
    ]
    assert heard(user, "version.merged") + heard(user, "version.downloaded") == []


def test_sites_are_notified_of_invitations_to_a_round(pool: PoolDriver) -> None:
    _, address = upload_base(pool, "asked", seed=907)
    sites = ("round-a", "round-b", "round-c")
    started = start_round(pool, address, sites)
    asked = dict(heard(pool.member("round-b"), "round.asked"))[started["round_id"]]
    assert (asked["base"], asked["by"]) == (address, "round-a")
    assert started["round_id"] not in dict(heard(pool.member("round-a"), "round.asked"))


def test_curators_are_notified_of_waiting_drafts(open_pool: OpenPool, tmp_path: Path) -> None:
    with open_pool(tmp_path, curated=True) as pool:
        version = upload(pool.member("drafting"), "drafting/face")
        assert version["state"] == "draft"
        [(subject, details)] = heard(pool.admin, "version.waiting")
        assert subject == f"sha256:{version['digest']}", "whoever reads this may not see drafts"
        assert details["see"] == "poolctl models ls --state waiting"
        assert heard(pool.member("drafting"), "version.waiting") == []
