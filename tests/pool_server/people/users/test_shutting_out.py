"""Who is disabled is shut out: with the tokens made and the invitations written, too."""

from __future__ import annotations

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


def test_nobody_comes_in_by_an_invitation_of_who_is_shut_out(pool: PoolDriver) -> None:
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
