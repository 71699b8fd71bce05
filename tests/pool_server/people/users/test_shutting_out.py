"""Disabling a user also ends the user's tokens and invitations."""

from typing import Any

import httpx

from tests.pool_server.people.invitations.test_invitations import accept, invite, listed
from tests.pool_server.people.users.test_users import change, join
from tests.pool_server.pool_driver import PoolDriver, error_of


def make(client: httpx.Client, site: str, name: str, **fields: Any) -> dict[str, Any]:
    answer = client.post("/api/v1/tokens", json={"site": site, "name": name, **fields})
    assert answer.status_code == 201, answer.text
    made: dict[str, Any] = answer.json()
    return made


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
