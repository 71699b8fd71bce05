"""Sites, tokens and identity."""

from __future__ import annotations

import pytest

from pool_server.database import Database
from pool_server.records import AuditRecord, TokenRecord
from tests.pool_server.pool_driver import PoolDriver, error_of


def test_a_site_is_created_once_and_listed(pool: PoolDriver) -> None:
    request = {"name": "lab-1", "display_name": "Infant lab", "contact": "room 3"}
    created = pool.admin.post("/api/v1/sites", json=request)
    assert created.status_code == 201
    assert created.json().items() >= request.items()
    assert error_of(pool.admin.post("/api/v1/sites", json=request)) == (409, "site_exists")
    listed = pool.admin.get("/api/v1/sites").json()["items"]
    assert created.json() in listed
    assert [site["name"] for site in listed] == sorted(site["name"] for site in listed)


@pytest.mark.parametrize("name", ["", "A", "-a", "a/b", "a" * 65, "..", "a\n"])
def test_names_that_are_none(pool: PoolDriver, name: str) -> None:
    answer = pool.admin.post("/api/v1/sites", json={"name": name})
    assert error_of(answer) == (422, "invalid_request")


def test_a_token_identifies_its_site(pool: PoolDriver) -> None:
    answer = pool.member("lab-2", "viewer").get("/api/v1/whoami").json()
    assert (answer["site"], answer["token_name"], answer["role"]) == (
        "lab-2", "test-viewer", "viewer",
    )  # fmt: skip
    assert answer["expires_at"] is None
    assert answer["pool_version"]


def test_a_secret_is_shown_once_and_kept_nowhere(pool: PoolDriver) -> None:
    pool.admin.post("/api/v1/sites", json={"name": "lab-3"})
    request = {"site": "lab-3", "name": "laptop", "expires_in_days": 30}
    created = pool.admin.post("/api/v1/tokens", json=request).json()
    secret = created.pop("secret")
    assert secret.startswith("pool_")
    assert len(secret) >= 48
    assert created["role"] == "contributor"
    assert created in pool.admin.get("/api/v1/tokens").json()["items"]
    assert secret not in pool.admin.get("/api/v1/tokens").text
    for file in pool.settings.data_folder.glob("pool.sqlite3*"):
        assert secret.encode() not in file.read_bytes()
    assert pool.client(secret).get("/api/v1/whoami").json()["expires_at"] == created["expires_at"]


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
    second = pool.admin.post("/api/v1/tokens", json=request)
    assert second.status_code == 201


def test_a_token_for_no_site(pool: PoolDriver) -> None:
    answer = pool.admin.post("/api/v1/tokens", json={"site": "nowhere", "name": "a"})
    assert error_of(answer) == (404, "site_not_found")


def test_the_last_admin_token_stays(pool: PoolDriver) -> None:
    admins = [
        token
        for token in pool.admin.get("/api/v1/tokens").json()["items"]
        if token["role"] == "admin" and token["revoked_at"] is None
    ]
    (last,) = admins
    answer = pool.admin.delete(f"/api/v1/tokens/{last['token_id']}")
    assert error_of(answer) == (409, "last_admin")


def test_the_last_use_is_noted(pool: PoolDriver) -> None:
    pool.member("lab-5", "viewer").get("/api/v1/whoami")
    database = Database.open(pool.settings)
    with database.read() as session:
        token = session.query(TokenRecord).filter_by(name="test-viewer").first()
        assert token is not None
        assert token.last_used_at is not None
    database.close()


def test_acts_are_in_the_audit_with_who_and_from_where(pool: PoolDriver) -> None:
    pool.admin.post("/api/v1/sites", json={"name": "lab-6"}, headers={"X-Request-ID": "audited-1"})
    database = Database.open(pool.settings)
    with database.read() as session:
        entry = session.query(AuditRecord).filter_by(request_id="audited-1").one()
        assert (entry.action, entry.subject, entry.actor_site, entry.actor_token) == (
            "site.create", "lab-6", "admin", "first-admin",
        )  # fmt: skip
        assert entry.address == "127.0.0.1"
    database.close()
