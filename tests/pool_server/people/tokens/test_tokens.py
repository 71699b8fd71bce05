"""Tokens: their owners, their rights, their ends."""

import sqlite3
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.pool_server.pages.browser import Browser
from tests.pool_server.pool_driver import PoolDriver, error_of, pool_in_process, upload


def create(client: httpx.Client, site: str, name: str, **fields: Any) -> httpx.Response:
    return client.post("/api/v1/tokens", json={"site": site, "name": name, **fields})


@pytest.mark.both_databases
def test_a_token_identifies_its_site(pool: PoolDriver) -> None:
    answer = pool.member("lab-2", "viewer").get("/api/v1/whoami").json()
    assert (answer["site"], answer["token_name"], answer["role"]) == (
        "lab-2", "test-viewer", "viewer",
    )  # fmt: skip
    assert (answer["pool_wide"], answer["scopes"], answer["user"]) == (False, None, None)
    assert answer["expires_at"] is None
    assert answer["pool_version"]


def test_a_secret_is_shown_once_and_kept_nowhere(embedded_pool: PoolDriver) -> None:
    embedded_pool.admin.post("/api/v1/sites", json={"name": "lab-3"})
    request = {"site": "lab-3", "name": "laptop", "expires_in_days": 30}
    created = embedded_pool.admin.post("/api/v1/tokens", json=request).json()
    secret = created.pop("secret")
    assert secret.startswith("pool_")
    assert len(secret) >= 48
    assert created["role"] == "contributor"
    assert created in embedded_pool.admin.get("/api/v1/tokens").json()["items"]
    assert secret not in embedded_pool.admin.get("/api/v1/tokens").text
    for file in embedded_pool.settings.data_folder.glob("pool.sqlite3*"):
        assert secret.encode() not in file.read_bytes()
    assert (
        embedded_pool.client(secret).get("/api/v1/whoami").json()["expires_at"]
        == created["expires_at"]
    )


@pytest.mark.both_databases
def test_a_revoked_token_frees_its_name(pool: PoolDriver) -> None:
    pool.admin.post("/api/v1/sites", json={"name": "lab-4"})
    request = {"site": "lab-4", "name": "laptop"}
    first = pool.admin.post("/api/v1/tokens", json=request).json()
    assert error_of(pool.admin.post("/api/v1/tokens", json=request)) == (409, "token_exists")
    for _ in range(2):
        assert pool.admin.delete(f"/api/v1/tokens/{first['token_id']}").status_code == 204
    refused = pool.client(first["secret"]).get("/api/v1/whoami")
    assert error_of(refused) == (401, "not_authenticated")
    assert "revoked" in refused.json()["error"]["message"]
    assert pool.admin.post("/api/v1/tokens", json=request).status_code == 201


def test_a_feed_token_of_an_older_pool_is_refused_everywhere(tmp_path: Path) -> None:
    with pool_in_process(tmp_path) as pool:
        made = create(pool.admin, "admin", "reader", role="admin", pool_wide=True).json()
        with sqlite3.connect(pool.settings.database_file) as database:
            database.execute("UPDATE tokens SET kind = 'feed' WHERE id = ?", [made["token_id"]])
        refused = pool.client(made["secret"]).get("/api/v1/whoami")
        assert error_of(refused) == (403, "not_allowed")
        assert Browser(pool).post("/login", {"token": made["secret"]}).status_code == 401


def test_a_pool_keeps_an_admin(tmp_path: Path) -> None:
    with pool_in_process(tmp_path) as pool:
        (first,) = pool.admin.get("/api/v1/tokens").json()["items"]
        pool.secret("lab", "admin")
        narrowed = create(pool.admin, "lab", "n", role="admin", pool_wide=True, scopes=["rounds"])
        assert narrowed.status_code == 201
        last = error_of(pool.admin.delete(f"/api/v1/tokens/{first['token_id']}"))
        assert last == (409, "last_admin")
        own_site = pool.admin.patch("/api/v1/sites/admin", json={"suspended": True})
        assert error_of(own_site) == (409, "last_admin")
        assert pool.admin.get("/api/v1/whoami").status_code == 200
        second = create(pool.admin, "lab", "second", role="admin", pool_wide=True).json()
        assert pool.admin.delete(f"/api/v1/tokens/{first['token_id']}").status_code == 204
        heir = pool.client(second["secret"])
        assert heir.patch("/api/v1/sites/admin", json={"suspended": True}).status_code == 200


def test_an_admin_of_a_site_administers_only_its_tokens(pool: PoolDriver) -> None:
    admin = pool.member("lab-20", "admin")
    foreign = create(pool.admin, "lab-4", "of-another-site").json()
    assert create(admin, "lab-20", "laptop", role="curator").status_code == 201
    listed = {token["site"] for token in admin.get("/api/v1/tokens").json()["items"]}
    assert listed == {"lab-20"}
    assert error_of(create(admin, "lab-4", "mine")) == (403, "not_allowed")
    assert error_of(create(admin, "lab-20", "all", pool_wide=True)) == (403, "not_allowed")
    missing = admin.delete(f"/api/v1/tokens/{foreign['token_id']}")
    assert error_of(missing) == (404, "token_not_found")
    of_pool = create(pool.admin, "lab-20", "boss", role="viewer", pool_wide=True).json()
    refused = admin.delete(f"/api/v1/tokens/{of_pool['token_id']}")
    assert error_of(refused) == (403, "not_allowed")


def test_roles_of_the_whole_pool(pool: PoolDriver) -> None:
    secret = create(pool.admin, "lab-21", "n", role="contributor", pool_wide=True)
    assert error_of(secret) == (404, "site_not_found")
    pool.secret("lab-21", "viewer")
    token = create(pool.admin, "lab-21", "anywhere", role="contributor", pool_wide=True).json()
    client = pool.client(token["secret"])
    assert upload(client, "lab-4/by-another-site")["created_by"] == "lab-21/anywhere"
    assert error_of(client.get("/api/v1/tokens")) == (403, "not_allowed")


def test_a_token_with_scopes_does_only_what_they_name(pool: PoolDriver) -> None:
    pool.secret("lab-22", "viewer")
    token = create(pool.admin, "lab-22", "reader", scopes=["models:read", "models:read"]).json()
    assert token["scopes"] == ["models:read"]
    client = pool.client(token["secret"])
    assert client.get("/api/v1/models").status_code == 200
    assert client.get("/api/v1/whoami").json()["scopes"] == ["models:read"]
    refused = client.get("/api/v1/rounds")
    assert error_of(refused) == (403, "not_allowed")
    assert refused.json()["error"]["details"]["scopes"] == ["rounds"]
    assert "models:read" in refused.json()["error"]["message"]
    unknown = create(pool.admin, "lab-22", "x", scopes=["everything"])
    assert error_of(unknown) == (422, "invalid_request")


def test_an_admin_with_scopes_cannot_grant_more(pool: PoolDriver) -> None:
    pool.secret("lab-23", "viewer")
    narrow = create(
        pool.admin, "lab-23", "narrow", role="admin", scopes=["admin", "models:read"]
    ).json()
    client = pool.client(narrow["secret"])
    assert error_of(create(client, "lab-23", "a")) == (403, "not_allowed")
    assert error_of(create(client, "lab-23", "b", scopes=["rounds"])) == (403, "not_allowed")
    assert create(client, "lab-23", "c", scopes=["models:read"]).status_code == 201
