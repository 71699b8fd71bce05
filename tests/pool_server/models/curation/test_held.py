"""What a curator of the pool has quarantined, its site does not get out by itself."""

from __future__ import annotations

import pytest

from tests.pool_server.model_files import network_bytes
from tests.pool_server.people.users.test_users import join
from tests.pool_server.pool_driver import PoolDriver, announce, error_of, upload

REASON = {"reason": "Landmarks of the left eye are swapped."}
REFUSED = (403, "not_allowed")


def at(site: str, name: str) -> str:
    return f"/api/v1/models/{site}/{name}/versions/1"


def hold(pool: PoolDriver, site: str, name: str) -> None:
    """Have the pool's admin quarantine a version."""
    assert pool.admin.post(f"{at(site, name)}/quarantine", json=REASON).status_code == 200


@pytest.mark.parametrize("by", ["held-a", "held-b"])
def test_a_copy_is_held_as_well(pool: PoolDriver, by: str) -> None:
    content, name = network_bytes(), f"copied-{by}"
    upload(pool.member("held-a"), f"held-a/{name}", content)
    hold(pool, "held-a", name)
    copy = upload(pool.member(by), f"{by}/{name}-copy", content)
    assert copy["state"] == "quarantined"
    release = f"{at(by, f'{name}-copy')}/release"
    assert error_of(pool.member(by, "curator").post(release)) == REFUSED
    assert pool.admin.post(f"{at('held-a', name)}/release").status_code == 200
    assert error_of(pool.member(by, "curator").post(release)) == REFUSED, "still held itself"
    assert pool.admin.post(release).json()["state"] == "available"


def test_a_draft_of_the_same_bytes_is_not_published(pool: PoolDriver) -> None:
    content, home = network_bytes(), pool.member("held-a")
    upload(home, "held-a/shown", content)
    upload(home, "held-a/drafted", content, draft=True)
    hold(pool, "held-a", "shown")
    publish = f"{at('held-a', 'drafted')}/publish"
    for role in ("contributor", "curator"):
        refused = pool.member("held-a", role).post(publish)
        assert error_of(refused) == REFUSED
        assert "quarantined by a curator of the pool" in refused.json()["error"]["message"]
    assert pool.admin.post(publish).json()["state"] == "available"


def test_what_the_pool_holds_a_site_does_not_delete(pool: PoolDriver) -> None:
    content, home = network_bytes(), pool.member("held-a", "admin")
    upload(home, "held-a/kept", content)
    hold(pool, "held-a", "kept")
    for path in (at("held-a", "kept"), "/api/v1/models/held-a/kept"):
        refused = home.delete(path)
        assert error_of(refused) == REFUSED
        assert "held-a/kept@1" in refused.json()["error"]["message"]
        assert "Withdraw it" in refused.json()["error"]["hint"]
    again = upload(home, "held-a/kept-again", content)
    assert again["state"] == "quarantined"

    withdrawn = home.post(f"{at('held-a', 'kept')}/withdraw", json={"reason": "quality"})
    assert withdrawn.status_code == 200
    assert home.delete(at("held-a", "kept")).status_code == 200
    once_more = announce(home, "held-a/kept-third", content)
    assert error_of(once_more) == (409, "bytes_withdrawn")
    assert error_of(home.delete(at("held-a", "kept-again"))) == REFUSED
    assert pool.admin.delete(at("held-a", "kept-again")).status_code == 200


def test_a_curator_of_the_pool_holds_for_the_pool_at_home_too(pool: PoolDriver) -> None:
    curator = join(pool, "held-home", "ada", role="curator", pool_wide=True)
    upload(pool.member("held-home"), "held-home/face")
    path = at("held-home", "face")
    assert curator.post(f"{path}/quarantine", json=REASON).status_code == 200
    assert error_of(pool.member("held-home", "curator").post(f"{path}/release")) == REFUSED
    assert curator.post(f"{path}/release").json()["state"] == "available"


def test_what_a_site_holds_itself_it_lets_go(pool: PoolDriver) -> None:
    curator, home = pool.member("held-own", "curator"), pool.member("held-own")
    content = network_bytes()
    for name in ("face", "copy"):
        upload(home, f"held-own/{name}", content)
        if name == "face":
            path = f"{at('held-own', name)}/quarantine"
            assert curator.post(path, json=REASON).status_code == 200
    for name in ("face", "copy"):
        released = curator.post(f"{at('held-own', name)}/release")
        assert released.json()["state"] == "available"
    assert curator.post(f"{at('held-own', 'face')}/quarantine", json=REASON).status_code == 200
    assert home.delete(at("held-own", "face")).status_code == 200


def test_a_hold_ends_with_its_release(pool: PoolDriver) -> None:
    upload(pool.member("held-past"), "held-past/face")
    path, curator = at("held-past", "face"), pool.member("held-past", "curator")
    hold(pool, "held-past", "face")
    assert pool.admin.post(f"{path}/release").status_code == 200
    assert curator.post(f"{path}/quarantine", json=REASON).status_code == 200
    assert curator.post(f"{path}/release").json()["state"] == "available"


def test_the_pool_takes_over_what_a_site_has_quarantined(pool: PoolDriver) -> None:
    content, curator = network_bytes(), pool.member("held-a", "curator")
    upload(pool.member("held-a"), "held-a/own", content)
    path = at("held-a", "own")
    assert curator.post(f"{path}/quarantine", json=REASON).status_code == 200
    assert error_of(curator.post(f"{path}/quarantine", json=REASON)) == (409, "wrong_state")
    hold(pool, "held-a", "own")
    assert error_of(curator.post(f"{path}/release")) == REFUSED
    again = pool.admin.post(f"{path}/quarantine", json=REASON)
    assert error_of(again) == (409, "wrong_state"), "it is held already"
    assert pool.admin.post(f"{path}/release").json()["state"] == "available"
