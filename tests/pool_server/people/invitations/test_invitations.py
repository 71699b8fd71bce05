"""Invitations: made, accepted once, refused."""

import threading
from datetime import timedelta
from typing import Any

import httpx
import pytest
from sqlalchemy import update

from pool_server.database.records import InvitationRecord, now_utc
from tests.pool_server.pool_driver import PoolDriver, error_of


def invite(client: httpx.Client, site: str, **fields: Any) -> dict[str, Any]:
    answer = client.post("/api/v1/invitations", json={"site": site, **fields})
    assert answer.status_code == 201, answer.text
    return answer.json()


def accept(pool: PoolDriver, secret: str, name: str, **fields: Any) -> httpx.Response:
    request = {"secret": secret, "name": name, **fields}
    return pool.client(None).post("/api/v1/invitations/accept", json=request)


def listed(client: httpx.Client, invitation_id: str) -> dict[str, Any]:
    items = client.get("/api/v1/invitations").json()["items"]
    (invitation,) = (item for item in items if item["invitation_id"] == invitation_id)
    return dict(invitation)


@pytest.mark.both_databases
def test_accepting_an_invitation_gives_a_user_and_a_token(pool: PoolDriver) -> None:
    admin = pool.member("inv-1", "admin")
    made = invite(admin, "inv-1", role="curator", email="ada@lab.example")
    assert made["secret"].startswith("invite_")
    assert made["created_by"] == "inv-1/test-admin"
    assert made["secret"] not in admin.get("/api/v1/invitations").text
    accepted = accept(pool, made["secret"], "ada", display_name="Ada", token_name="laptop")
    assert accepted.status_code == 201
    token = accepted.json()
    assert (token["site"], token["name"], token["role"], token["user"]) == (
        "inv-1", "laptop", "curator", "ada",
    )  # fmt: skip
    identity = pool.client(token["secret"]).get("/api/v1/whoami").json()
    assert (identity["user"], identity["role"]) == ("ada", "curator")
    (user,) = (u for u in admin.get("/api/v1/users").json()["items"] if u["name"] == "ada")
    assert (user["display_name"], user["email"]) == ("Ada", "ada@lab.example")
    assert listed(admin, made["invitation_id"])["used_by"] == "ada"
    again = accept(pool, made["secret"], "eve")
    assert error_of(again) == (403, "invitation_refused")
    assert "used" in again.json()["error"]["message"]


def test_a_used_name_does_not_use_up_the_invitation(pool: PoolDriver) -> None:
    pool.secret("inv-2", "viewer")
    for _ in range(2):
        made = invite(pool.admin, "inv-2")
        answer = accept(pool, made["secret"], "ada")
    assert error_of(answer) == (409, "user_exists")
    refused_name = accept(pool, made["secret"], "bea", token_name="test-viewer")
    assert error_of(refused_name) == (409, "token_exists")
    assert accept(pool, made["secret"], "bea").status_code == 201


def test_expired_used_and_revoked_invitations_are_refused(pool: PoolDriver) -> None:
    admin = pool.member("inv-3", "admin")
    revoked, expired, suspended = (invite(admin, "inv-3") for _ in range(3))
    for _ in range(2):
        address = f"/api/v1/invitations/{revoked['invitation_id']}"
        assert admin.delete(address).status_code == 204
    pool.change(
        update(InvitationRecord)
        .where(InvitationRecord.id == expired["invitation_id"])
        .values(expires_at=now_utc() - timedelta(seconds=1))
    )
    pool.admin.patch("/api/v1/sites/inv-3", json={"suspended": True})
    reasons = {"revoked": revoked, "expired": expired, "suspended": suspended}
    for reason, made in reasons.items():
        refused = accept(pool, made["secret"], "ada")
        assert error_of(refused) == (403, "invitation_refused")
        assert reason in refused.json()["error"]["message"]
    assert error_of(accept(pool, "invite_unknown", "ada")) == (403, "invitation_refused")


def test_nobody_invites_beyond_their_own_site(pool: PoolDriver) -> None:
    admin = pool.member("inv-4", "admin")
    pool.secret("inv-5", "viewer")

    def refused(site: str, **fields: Any) -> tuple[int, str]:
        return error_of(admin.post("/api/v1/invitations", json={"site": site, **fields}))

    assert refused("inv-5") == (403, "not_allowed")
    assert refused("inv-4", pool_wide=True) == (403, "not_allowed")
    foreign = invite(pool.admin, "inv-5")
    gone = admin.delete(f"/api/v1/invitations/{foreign['invitation_id']}")
    assert error_of(gone) == (404, "invitation_not_found")
    of_pool = invite(pool.admin, "inv-4", role="curator", pool_wide=True)
    kept = admin.delete(f"/api/v1/invitations/{of_pool['invitation_id']}")
    assert error_of(kept) == (403, "not_allowed")
    token = accept(pool, of_pool["secret"], "cora").json()
    assert (token["role"], token["pool_wide"]) == ("curator", True)


def test_a_token_with_scopes_cannot_invite(pool: PoolDriver) -> None:
    admin = pool.member("inv-8", "admin")
    request = {"site": "inv-8", "name": "narrow", "role": "admin", "scopes": ["admin"]}
    narrow = pool.client(admin.post("/api/v1/tokens", json=request).json()["secret"])
    invited = narrow.post("/api/v1/invitations", json={"site": "inv-8", "role": "admin"})
    assert error_of(invited) == (403, "not_allowed")
    assert invited.json()["error"]["details"] == {"scopes": ["admin"]}
    assert narrow.get("/api/v1/invitations").json()["items"] == []


def test_of_many_who_accept_at_once_one_gets_in(pool: PoolDriver) -> None:
    pool.secret("inv-6", "viewer")
    made = invite(pool.admin, "inv-6")
    answers: list[int] = []
    threads = [
        threading.Thread(
            target=lambda name: answers.append(accept(pool, made["secret"], name).status_code),
            args=(f"user-{number}",),
        )
        for number in range(6)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(answers) == [201, 403, 403, 403, 403, 403]
