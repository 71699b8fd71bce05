"""What owners, participants and curators hear of what others do with their models."""

from __future__ import annotations

from typing import Any

import httpx

from tests.pool_server.model_files import network_bytes
from tests.pool_server.pool_driver import PoolDriver, upload
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
