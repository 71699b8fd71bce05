"""A site cannot release a version that a curator of the pool has quarantined."""

import pytest

from tests.pool_server.model_files import network_bytes
from tests.pool_server.pool_driver import PoolDriver, announce, error_of, upload

REASON = {"reason": "Landmarks of the left eye are swapped."}
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
    for path in (at("held-a", "kept"), "/api/v1/models/held-a/kept"):
        assert error_of(home.delete(path)) == (409, "wrong_state")
    withdrawn = home.post(f"{at('held-a', 'kept')}/withdraw", json={"reason": "quality"})
    assert withdrawn.json()["withdrawal"]["effect"] == "refuse"
    assert home.delete(at("held-a", "kept")).status_code == 200
    once_more = announce(home, "held-a/kept-again", content)
    assert error_of(once_more) == (409, "bytes_withdrawn")
