"""Users: their tokens never may more than they do."""

from typing import Any

import httpx
import pytest

from tests.pool_server.pool_driver import PoolDriver, error_of, upload


def join(pool: PoolDriver, site: str, name: str, **fields: Any) -> httpx.Client:
    """Make a user, and return a client with the first token."""
    pool.secret(site, "viewer")
    request = {"site": site, **fields}
    secret = pool.admin.post("/api/v1/invitations", json=request).json()["secret"]
    accepted = pool.client(None).post(
        "/api/v1/invitations/accept", json={"secret": secret, "name": name}
    )
    assert accepted.status_code == 201, accepted.text
    return pool.client(accepted.json()["secret"])


def change(client: httpx.Client, site: str, name: str, **changes: Any) -> httpx.Response:
    return client.patch(f"/api/v1/users/{site}/{name}", json=changes)


def role_of(client: httpx.Client) -> tuple[str, bool]:
    identity = client.get("/api/v1/whoami").json()
    return identity["role"], identity["pool_wide"]


def test_a_token_is_limited_by_its_user(pool: PoolDriver) -> None:
    ada = join(pool, "people-1", "ada", role="curator", pool_wide=True)
    assert role_of(ada) == ("curator", True)
    assert change(pool.admin, "people-1", "ada", pool_wide=False).status_code == 200
    assert role_of(ada) == ("curator", False)
    change(pool.admin, "people-1", "ada", role="viewer")
    assert role_of(ada) == ("viewer", False)
    change(pool.admin, "people-1", "ada", role="admin", pool_wide=True)
    assert role_of(ada) == ("curator", True), "nor does a token ever become more than it was"


@pytest.mark.both_databases
def test_a_disabled_user_is_refused_with_all_tokens(pool: PoolDriver) -> None:
    ada = join(pool, "people-2", "ada")
    upload(ada, "people-2/gaze")
    second = pool.admin.post(
        "/api/v1/tokens", json={"site": "people-2", "name": "second", "user": "ada"}
    ).json()
    disabled = change(pool.admin, "people-2", "ada", disabled=True).json()
    assert disabled["disabled_at"] is not None
    for client in (ada, pool.client(second["secret"])):
        refused = client.get("/api/v1/models")
        assert error_of(refused) == (403, "suspended")
        assert "people-2/ada" in refused.json()["error"]["message"]
    assert change(pool.admin, "people-2", "ada", disabled=False).json()["disabled_at"] is None
    assert ada.get("/api/v1/models").status_code == 200


def test_a_token_cannot_have_more_rights_than_its_user(pool: PoolDriver) -> None:
    join(pool, "people-3", "ada")

    def refused(**fields: Any) -> tuple[int, str]:
        request = {"site": "people-3", "name": "more", "user": "ada", **fields}
        return error_of(pool.admin.post("/api/v1/tokens", json=request))

    assert refused(role="curator") == (403, "not_allowed")
    assert refused(role="viewer", pool_wide=True) == (403, "not_allowed")
    assert refused(user="nobody") == (404, "user_not_found")


def test_an_admin_of_a_site_administers_only_its_people(pool: PoolDriver) -> None:
    join(pool, "people-4", "ada")
    join(pool, "people-4", "boss", role="viewer", pool_wide=True)
    admin = join(pool, "people-4", "root", role="admin")
    elsewhere = join(pool, "people-5", "root", role="admin")
    assert change(admin, "people-4", "ada", role="curator").json()["role"] == "curator"
    assert {user["site"] for user in admin.get("/api/v1/users").json()["items"]} == {"people-4"}
    hidden = change(elsewhere, "people-4", "ada", role="viewer")
    assert error_of(hidden) == (404, "user_not_found")
    assert hidden.json()["error"]["message"] == (
        change(elsewhere, "people-4", "nobody", role="viewer")
        .json()["error"]["message"]
        .replace("nobody", "ada")
    )
    assert error_of(change(admin, "people-4", "ada", pool_wide=True)) == (403, "not_allowed")
    assert error_of(change(admin, "people-4", "boss", disabled=True)) == (403, "not_allowed")
