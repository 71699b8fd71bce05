"""Invitations, tokens and users: made, limited, refused."""

import sqlite3
from contextlib import closing
from datetime import timedelta
from functools import partial
from pathlib import Path
from typing import Any

import httpx
import pytest
from sqlalchemy import update

from pool_server.database.records import InvitationRecord, now_utc
from tests.pool_server.pages.browser import Browser
from tests.pool_server.pool_driver import PoolDriver, at_once, error_of, pool_in_process, upload


def invite(client: httpx.Client, site: str, **fields: Any) -> dict[str, Any]:
    answer = client.post("/api/v1/invitations", json={"site": site, **fields})
    assert answer.status_code == 201, answer.text
    return answer.json()


def accept(pool: PoolDriver, secret: str, name: str, **fields: Any) -> httpx.Response:
    request = {"secret": secret, "name": name, **fields}
    return pool.client(None).post("/api/v1/invitations/accept", json=request)


def listed(client: httpx.Client, noun: str, made: dict[str, Any]) -> dict[str, Any]:
    """Return an invitation or a token as it is listed."""
    items = client.get(f"/api/v1/{noun}s").json()["items"]
    key = f"{noun}_id"
    return dict(next(item for item in items if item[key] == made[key]))


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
    assert listed(admin, "invitation", made)["used_by"] == "ada"
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
    assert "limited to admin" in invited.json()["error"]["message"]
    assert narrow.get("/api/v1/invitations").json()["items"] == []


def test_of_many_who_accept_at_once_one_gets_in(pool: PoolDriver) -> None:
    pool.secret("inv-6", "viewer")
    made = invite(pool.admin, "inv-6")
    answers = at_once(*[partial(accept, pool, made["secret"], f"user-{n}") for n in range(6)])
    assert sorted(answer.status_code for answer in answers) == [201, 403, 403, 403, 403, 403]


def create(client: httpx.Client, site: str, name: str, **fields: Any) -> httpx.Response:
    return client.post("/api/v1/tokens", json={"site": site, "name": name, **fields})


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
        with closing(sqlite3.connect(pool.settings.database_file)) as database, database:
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
    told = "narrowed to models:read; this needs the scope rounds"
    assert told in refused.json()["error"]["message"]
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


def join(pool: PoolDriver, site: str, name: str, **fields: Any) -> httpx.Client:
    """Make a user, and return a client with the first token."""
    pool.secret(site, "viewer")
    accepted = accept(pool, invite(pool.admin, site, **fields)["secret"], name)
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
    assert listed(pool.admin, "token", second)["refused"] == "user people-2/ada is disabled"
    for client in (ada, pool.client(second["secret"])):
        refused = client.get("/api/v1/models")
        assert error_of(refused) == (403, "suspended")
        assert "people-2/ada" in refused.json()["error"]["message"]
    assert change(pool.admin, "people-2", "ada", disabled=False).json()["disabled_at"] is None
    assert listed(pool.admin, "token", second)["refused"] == ""
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


def make(client: httpx.Client, site: str, name: str, **fields: Any) -> dict[str, Any]:
    answer = create(client, site, name, **fields)
    assert answer.status_code == 201, answer.text
    return answer.json()


def test_a_token_made_by_a_user_belongs_to_the_user(pool: PoolDriver) -> None:
    ada = join(pool, "out-1", "ada", role="admin")
    laptop = make(ada, "out-1", "laptop", role="admin")
    assert (laptop["user"], laptop["made_by"]) == ("ada", "out-1/ada")
    secret = laptop.pop("secret")
    assert listed(ada, "token", laptop) == laptop
    change(pool.admin, "out-1", "ada", disabled=True)
    assert error_of(pool.client(secret).get("/api/v1/models")) == (403, "suspended")


def test_tokens_for_machines_and_others_name_their_creator(pool: PoolDriver) -> None:
    ada = join(pool, "out-2", "ada", role="admin")
    join(pool, "out-2", "bea")
    machine = make(ada, "out-2", "nightly", role="admin", for_machine=True)
    assert (machine["user"], machine["made_by"]) == (None, "out-2/ada")
    nightly = pool.client(machine["secret"])
    # A machine has no user, and so makes tokens of nobody.
    further = make(nightly, "out-2", "further")
    assert (further["user"], further["made_by"]) == (None, "out-2/ada")
    of_bea = make(ada, "out-2", "of-bea", user="bea")
    assert (of_bea["user"], of_bea["made_by"]) == ("bea", "out-2/ada")
    assert make(pool.admin, "out-2", "by-the-first")["made_by"] is None
    change(pool.admin, "out-2", "ada", disabled=True)
    for made in (machine, further, of_bea):
        assert pool.client(made["secret"]).get("/api/v1/models").status_code == 200
        assert listed(pool.admin, "token", made)["made_by"] == "out-2/ada"


def test_invitations_by_disabled_users_cannot_be_accepted(pool: PoolDriver) -> None:
    ada = join(pool, "out-6", "ada", role="admin")
    machine = pool.client(make(ada, "out-6", "m", role="admin", for_machine=True)["secret"])
    mine, by_machine = invite(ada, "out-6"), invite(machine, "out-6")
    for made in (mine, by_machine):
        assert made["made_by"] == "out-6/ada"
        assert listed(pool.admin, "invitation", made)["made_by"] == "out-6/ada"
    others = invite(pool.admin, "out-6")
    assert others["made_by"] is None
    change(pool.admin, "out-6", "ada", disabled=True)
    for made in (mine, by_machine):
        refused = accept(pool, made["secret"], "eve")
        assert error_of(refused) == (403, "invitation_refused")
        reason = "user out-6/ada, who made this invitation, is disabled"
        assert refused.json()["error"]["message"] == reason
        assert listed(pool.admin, "invitation", made)["refused"] == reason
    assert accept(pool, others["secret"], "bob").status_code == 201
    change(pool.admin, "out-6", "ada", disabled=False)
    assert accept(pool, mine["secret"], "eve").status_code == 201, "nothing was used up"
