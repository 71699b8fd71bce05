"""Users: their tokens never may more than they do."""

from typing import Any

import httpx
import pytest

from tests.pool_server.people.invitations.test_invitations import accept, invite, listed
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


def make(client: httpx.Client, site: str, name: str, **fields: Any) -> dict[str, Any]:
    answer = client.post("/api/v1/tokens", json={"site": site, "name": name, **fields})
    assert answer.status_code == 201, answer.text
    return answer.json()


def listed_token(client: httpx.Client, token_id: str) -> dict[str, Any]:
    items = client.get("/api/v1/tokens").json()["items"]
    return dict(next(item for item in items if item["token_id"] == token_id))


def test_a_token_made_by_a_user_belongs_to_the_user(pool: PoolDriver) -> None:
    ada = join(pool, "out-1", "ada", role="admin")
    laptop = make(ada, "out-1", "laptop", role="admin")
    assert (laptop["user"], laptop["made_by"]) == ("ada", "out-1/ada")
    secret = laptop.pop("secret")
    assert listed_token(ada, laptop["token_id"]) == laptop
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
        assert listed_token(pool.admin, made["token_id"])["made_by"] == "out-2/ada"


def test_invitations_by_disabled_users_cannot_be_accepted(pool: PoolDriver) -> None:
    ada = join(pool, "out-6", "ada", role="admin")
    machine = pool.client(make(ada, "out-6", "m", role="admin", for_machine=True)["secret"])
    mine, by_machine = invite(ada, "out-6"), invite(machine, "out-6")
    for made in (mine, by_machine):
        assert made["made_by"] == "out-6/ada"
        assert listed(pool.admin, made["invitation_id"])["made_by"] == "out-6/ada"
    others = invite(pool.admin, "out-6")
    assert others["made_by"] is None
    change(pool.admin, "out-6", "ada", disabled=True)
    for made in (mine, by_machine):
        refused = accept(pool, made["secret"], "eve")
        assert error_of(refused) == (403, "invitation_refused")
        assert (
            "user out-6/ada, who made this invitation, is disabled"
            in (refused.json()["error"]["message"])
        )
    assert accept(pool, others["secret"], "bob").status_code == 201
    change(pool.admin, "out-6", "ada", disabled=False)
    assert accept(pool, mine["secret"], "eve").status_code == 201, "nothing was used up"
