"""Keys of sites: registration needs possession; mere knowledge is not enough."""

import pytest

from pool_server.wire.signatures.keys import PrivateKey
from tests.pool_server.pool_driver import PoolDriver, error_of
from tests.pool_server.signatures.signers import proof, register, revoke


def actions(pool: PoolDriver, site: str) -> list[str]:
    keys = pool.admin.get(f"/api/v1/sites/{site}/keys").json()["items"]
    return [f"{key['name']} {key['revoked_as']}" for key in keys]


@pytest.mark.both_databases
def test_a_site_registers_lists_and_revokes_keys(pool: PoolDriver) -> None:
    client = pool.member("keys-a")
    first, second = PrivateKey.generate(), PrivateKey.generate()
    made = register(client, "keys-a", first)
    assert made.status_code == 201
    assert made.json() == made.json() | {
        "site": "keys-a",
        "key_id": first.public.key_id,
        "public_key": first.public.text,
        "origin": None,
        "created_by": "keys-a/test-contributor",
        "revoked_as": None,
    }
    again = register(client, "keys-a", first, "other-name")
    assert (again.status_code, again.json()["name"]) == (200, "laptop"), "it is there already"
    assert register(client, "keys-a", second, "desk").status_code == 201
    listed = pool.member("keys-b", "viewer").get("/api/v1/sites/keys-a/keys")
    assert [item["key_id"] for item in listed.json()["items"]] == [
        first.public.key_id,
        second.public.key_id,
    ]
    assert revoke(client, "keys-a", first, "superseded").json()["revoked_as"] == "superseded"
    at_first = revoke(client, "keys-a", first, "superseded").json()["revoked_at"]
    assert actions(pool, "keys-a") == ["laptop superseded", "desk None"]
    stolen = revoke(client, "keys-a", first, "compromised").json()
    assert (stolen["revoked_as"], stolen["revoked_at"]) == ("compromised", at_first)
    kept = revoke(client, "keys-a", first, "superseded").json()
    assert kept["revoked_as"] == "compromised", "nothing makes it good again"
    assert error_of(register(client, "keys-a", first)) == (422, "key_refused")
    unknown = revoke(client, "keys-a", PrivateKey.generate(), "superseded")
    assert error_of(unknown) == (404, "key_not_found")


def test_a_proof_is_of_one_caller_site_and_key(pool: PoolDriver) -> None:
    mine, theirs = PrivateKey.generate(), PrivateKey.generate()
    client = pool.member("keys-e")
    path = "/api/v1/sites/keys-e/keys"

    def challenge_for(key: PrivateKey) -> str:
        asked = client.post(f"{path}/challenge", json={"public_key": key.public.text})
        challenge: str = asked.json()["challenge"]
        assert challenge.split(" ")[:3] == ["poolctl-key-challenge/1", "keys-e", key.public.key_id]
        return challenge

    challenge = challenge_for(theirs)
    # Knowing only the public half is not enough to sign.
    forged = proof(mine, challenge) | {"public_key": theirs.public.text}
    assert error_of(client.post(path, json=forged)) == (422, "key_refused")
    # A challenge for one key proves nothing of another.
    assert error_of(client.post(path, json=proof(mine, challenge))) == (422, "key_refused")
    # Nor does one that another token was given, or that was changed.
    other = pool.member("keys-e", "admin")
    mine_challenge = challenge_for(mine)
    assert error_of(other.post(path, json=proof(mine, mine_challenge))) == (422, "key_refused")
    later = mine_challenge.split(" ")
    later[3] = str(int(later[3]) + 1)
    assert error_of(client.post(path, json=proof(mine, " ".join(later)))) == (422, "key_refused")
    assert error_of(client.post(path, json=proof(mine, "nonsense"))) == (422, "key_refused")
    # A signature of the bare words is not one of the challenge.
    bare = proof(mine, mine_challenge) | {"signature": "A" * 86 + "=="}
    assert error_of(client.post(path, json=bare)) == (422, "key_refused")
    assert client.post(path, json=proof(mine, mine_challenge)).status_code == 201
