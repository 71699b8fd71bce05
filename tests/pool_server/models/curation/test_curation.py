"""From draft to published, quarantined, released, deleted; and the visibility meanwhile."""

from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.pool_server.conftest import OpenPool
from tests.pool_server.model_files import network_bytes, sha256
from tests.pool_server.pool_driver import PoolDriver, announce, error_of, upload
from tests.pool_server.transfers.test_recipes import recipe_for

REASON = {"reason": "Landmarks of the left eye are swapped."}


def address(name: str, reference: str | int = 1, site: str = "cur-a") -> str:
    return f"/api/v1/models/{site}/{name}/versions/{reference}"


def listed(client: httpx.Client, name: str, **query: Any) -> list[str]:
    items = client.get("/api/v1/models", params={"name": name, **query}).json()["items"]
    return [f"{item['version']} {item['state']}" for item in items]


def test_a_draft_is_seen_at_home_and_by_curators_of_the_pool(pool: PoolDriver) -> None:
    home, foreign = pool.member("cur-a"), pool.member("cur-b")
    upload(home, "cur-a/draft")
    draft = upload(home, "cur-a/draft", draft=True)
    assert draft["state"] == "draft"
    assert listed(home, "draft") == ["2 draft", "1 available"]
    assert listed(pool.admin, "draft", site="cur-a") == ["2 draft", "1 available"]
    assert listed(foreign, "draft") == listed(home, "draft", latest="true") == ["1 available"]
    for path in ("", "/content", "/lineage", "/card", "/evaluations"):
        assert home.get(address("draft", 2) + path).status_code == 200
        assert error_of(foreign.get(address("draft", 2) + path)) == (404, "version_not_found")
    assert foreign.get(address("draft", f"sha256:{draft['digest']}")).status_code == 404
    for client in (home, foreign):
        assert client.get(address("draft", "latest")).json()["version"] == 1
    assert error_of(foreign.post(address("draft", 2) + "/publish")) == (404, "version_not_found")
    published = home.post(address("draft", 2) + "/publish")
    assert (published.status_code, published.json()["state"]) == (200, "available")
    assert published.json()["state_changed_by"] == "cur-a/test-contributor"
    assert foreign.get(address("draft", "latest")).json()["version"] == 2
    assert error_of(home.post(address("draft", 2) + "/publish")) == (409, "wrong_state")


def test_only_curators_publish_in_a_curated_pool(open_pool: OpenPool, tmp_path: Path) -> None:
    with open_pool(tmp_path, curated=True) as pool:
        contributor, curator = pool.member("lab"), pool.member("lab", "curator")
        foreign = pool.member("elsewhere", "curator")
        for client in (contributor, curator, pool.member("lab", "admin")):
            assert upload(client, "lab/face")["state"] == "draft"
            refused = client.post(address("face", 1, "lab") + "/publish")
            assert error_of(refused) == (403, "not_allowed"), "curators of the site are none here"
        assert upload(pool.admin, "admin/face")["state"] == "available"
        queue = curator.get("/api/v1/models?state=waiting").json()["items"]
        assert [version["address"] for version in queue][-1] == "pool://lab/face@1"
        assert foreign.get("/api/v1/models?state=waiting").json()["items"] == []
        assert len(pool.admin.get("/api/v1/models?state=waiting").json()["items"]) == 3
        assert pool.admin.post(address("face", 1, "lab") + "/publish").status_code == 200
        assert len(curator.get("/api/v1/models?state=waiting").json()["items"]) == 2


def test_a_quarantined_version_is_hidden_until_released(pool: PoolDriver) -> None:
    home, foreign = pool.member("cur-a"), pool.member("cur-b")
    curator = pool.member("cur-a", "curator")
    upload(home, "cur-a/doubted")
    empty = curator.post(address("doubted") + "/quarantine", json={"reason": " "})
    assert error_of(empty) == (422, "invalid_request")
    hidden = pool.admin.post(address("doubted") + "/quarantine", json=REASON).json()
    assert (hidden["state"], hidden["state_reason"]) == ("quarantined", REASON["reason"])
    assert listed(home, "doubted") == ["1 quarantined"]
    assert foreign.get(address("doubted")).status_code == 404
    release = address("doubted") + "/release"
    assert error_of(curator.post(release)) == (403, "not_allowed"), "the pool quarantined it"
    assert pool.admin.post(release).json()["state"] == "available"
    assert foreign.get(address("doubted")).status_code == 200
    assert curator.post(address("doubted") + "/quarantine", json=REASON).status_code == 200
    assert curator.post(release).json()["state_reason"] == ""


def test_a_site_is_notified_of_acts_on_its_models(pool: PoolDriver) -> None:
    home = pool.member("cur-told")
    upload(home, "cur-told/face")
    scores = {
        "model": "cur-told/face", "dataset": "ward", "dataset_digest": "0" * 64,
        "scores": {"recall": {"value": 0.5}},
    }  # fmt: skip
    assert pool.member("cur-b").post("/api/v1/evaluations", json=scores).status_code == 201
    assert home.post("/api/v1/evaluations", json=scores).status_code == 201
    at = address("face", site="cur-told")
    assert pool.admin.post(f"{at}/quarantine", json=REASON).status_code == 200
    assert pool.admin.post(f"{at}/release").status_code == 200
    assert pool.admin.delete(at).status_code == 204
    items = home.get("/api/v1/events").json()["items"]
    assert sorted(item["kind"] for item in items) == [
        "evaluation.posted", "version.deleted", "version.quarantined", "version.released",
    ]  # fmt: skip
    assert {item["subject"] for item in items} == {"pool://cur-told/face@1"}


def test_a_deleted_version_is_gone_for_good(pool: PoolDriver) -> None:
    home, foreign = pool.member("cur-a"), pool.member("cur-b")
    content = network_bytes()
    upload(home, "cur-a/gone", content)
    upload(home, "cur-a/gone")
    assert home.delete(address("gone")).status_code == 204
    for client in (home, foreign, pool.admin):
        assert client.get(address("gone")).status_code == 404
        assert client.get(address("gone") + "/content").status_code == 404
        assert listed(client, "gone", state="any") == ["2 available"]
    assert error_of(home.delete(address("gone"))) == (404, "version_not_found")
    assert error_of(announce(home, "cur-a/gone", content)) == (409, "wrong_state")
    assert upload(home, "cur-a/gone")["version"] == 3
    assert upload(foreign, "cur-b/gone", content)["state"] == "available", "its own bytes"


def test_deleting_an_ancestor_needs_force(pool: PoolDriver) -> None:
    home = pool.member("cur-a")
    parent, content = upload(home, "cur-a/parent"), network_bytes()
    upload(home, "cur-a/child", content, recipe=recipe_for(content, parent["digest"]))
    refused = home.delete(address("parent"))
    assert error_of(refused) == (409, "has_descendants")
    assert refused.json()["error"]["message"].startswith("1 files in the pool were made from")
    assert home.delete(address("parent"), params={"force": "true"}).status_code == 204
    tree = home.get(address("child") + "/lineage").json()
    assert {node["digest"]: node["addresses"] for node in tree["nodes"]} == {
        parent["digest"]: [],
        sha256(content): ["pool://cur-a/child@1"],
    }


def test_each_act_is_in_the_audit(pool: PoolDriver) -> None:
    home, curator = pool.member("cur-a"), pool.member("cur-a", "curator")
    upload(home, "cur-a/audited", draft=True)
    home.post(address("audited") + "/publish")
    curator.post(address("audited") + "/quarantine", json=REASON)
    curator.post(address("audited") + "/release")
    home.put(address("audited") + "/card", json={"text": "# Mine"})
    home.delete(address("audited"))
    query = {"subject": "cur-a/audited"}
    entries = pool.admin.get("/api/v1/audit", params=query).json()["items"]
    acts = [entry["action"] for entry in reversed(entries)]
    assert acts == [
        "version.add", "version.publish", "version.quarantine", "version.release",
        "card.write", "version.delete",
    ]  # fmt: skip


REFUSED = (403, "not_allowed")


def at(site: str, name: str) -> str:
    return f"/api/v1/models/{site}/{name}/versions/1"


def hold(pool: PoolDriver, site: str, name: str) -> None:
    """Have the pool's admin quarantine a version."""
    assert pool.admin.post(f"{at(site, name)}/quarantine", json=REASON).status_code == 200


@pytest.mark.parametrize("by", ["held-a", "held-b"])
def test_a_copy_stays_a_draft_meanwhile(pool: PoolDriver, by: str) -> None:
    content, name = network_bytes(), f"copied-{by}"
    upload(pool.member("held-a"), f"held-a/{name}", content)
    hold(pool, "held-a", name)
    copy = upload(pool.member(by), f"{by}/{name}-copy", content)
    assert (copy["state"], copy["state_reason"]) == (
        "draft", "the same file is quarantined elsewhere",
    )  # fmt: skip
    path = at(by, f"{name}-copy")
    refused = pool.member(by, "curator").post(f"{path}/publish")
    assert error_of(refused) == REFUSED
    assert "was quarantined by others" in refused.json()["error"]["message"]
    assert pool.member("held-c").get(f"{path}/content").status_code == 404
    assert pool.admin.post(f"{at('held-a', name)}/release").status_code == 200
    assert pool.member(by).post(f"{path}/publish").json()["state"] == "available"


def test_quarantined_versions_cannot_be_deleted(pool: PoolDriver) -> None:
    content, home = network_bytes(), pool.member("held-a", "admin")
    upload(home, "held-a/kept", content)
    hold(pool, "held-a", "kept")
    assert error_of(home.delete(at("held-a", "kept"))) == (409, "wrong_state")
    withdrawn = home.post(f"{at('held-a', 'kept')}/withdraw", json={"reason": "quality"})
    assert withdrawn.json()["withdrawal"]["effect"] == "refuse"
    assert home.delete(at("held-a", "kept")).status_code == 204
    once_more = announce(home, "held-a/kept-again", content)
    assert error_of(once_more) == (409, "bytes_withdrawn")
