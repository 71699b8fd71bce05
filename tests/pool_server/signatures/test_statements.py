"""Statements that come with files: taken when they hold, refused when anything is wrong."""

from pathlib import Path
from typing import Any

import pytest

from pool_server.wire.signatures.keys import Envelope, PrivateKey, PublicKey
from pool_server.wire.signatures.statements import open_statement
from tests.pool_server.conftest import OpenPool
from tests.pool_server.model_files import network_bytes
from tests.pool_server.pool_driver import (
    PoolDriver,
    announce,
    complete,
    error_of,
    send_parts,
    upload,
)
from tests.pool_server.signatures.signers import (
    register,
    revoke,
    signed,
    statement_of,
    upload_signed,
)

KEY = PrivateKey.from_seed(b"k" * 32)


@pytest.fixture(scope="module")
def site(pool: PoolDriver) -> str:
    register(pool.member("signer"), "signer", KEY)
    return "signer"


def statement_path(version: dict[str, Any]) -> str:
    address = f"{version['site']}/{version['name']}/versions/{version['version']}"
    return f"/api/v1/models/{address}/statement"


@pytest.mark.both_databases
def test_a_signed_upload_can_be_checked_by_anybody(pool: PoolDriver, site: str) -> None:
    content = network_bytes()
    version = upload_signed(
        pool.member(site),
        f"{site}/face",
        KEY,
        content,
        labels={"population": "infant"},
        metrics={"mean_error": 0.07},
        description="Infants",
    )
    assert version["signed_by"] == version["signed_by"] | {
        "key_id": KEY.public.key_id,
        "origin": None,
        "revoked_as": None,
    }
    reader = pool.member("reader", "viewer")
    body = reader.get(statement_path(version)).json()
    assert (body["digest"], body["origin"]) == (version["digest"], None)
    statement = open_statement(
        Envelope.model_validate(body["envelope"]), PublicKey.from_text(body["key"]["public_key"])
    )
    assert statement.digest == version["digest"]
    assert (statement.predicate.site, statement.predicate.name) == (site, "face")
    assert statement.predicate.labels == {"population": "infant"}
    listed = reader.get("/api/v1/models", params={"site": site, "name": "face"}).json()["items"]
    assert [version["signed_by"]["key_id"] for version in listed] == [KEY.public.key_id]


def test_an_unsigned_version_has_no_statement(pool: PoolDriver) -> None:
    version = upload(pool.member("unsigned"), "unsigned/face")
    assert version["signed_by"] is None
    answer = pool.member("unsigned").get(statement_path(version))
    assert error_of(answer) == (404, "statement_not_found")
    assert "poolctl models sign unsigned/face@1" in answer.json()["error"]["hint"]


@pytest.mark.parametrize(
    ("said", "named"),
    [
        ({"site": "other"}, "site: signed 'other', found 'signer'"),
        ({"name": "other"}, "name: signed 'other', found 'tampered'"),
        ({"size_bytes": 1}, "size: signed 1, found"),
        ({"description": "Adults"}, "description: signed 'Adults', found 'Infants'"),
        (
            {"labels": {"population": "adult"}},
            "labels: signed {'population': 'adult'}, found {'population': 'infant'}",
        ),
        (
            {"metrics": {"mean_error": 0.01}},
            "metrics: signed {'mean_error': 0.01}, found {'mean_error': 0.07}",
        ),
        ({"terms": [{"code": "DUO:0000006"}]}, "terms: signed and missing [('DUO:0000006', '')]"),
        ({"card_digest": "0" * 64}, "card: signed '0000"),
        ({"recipe_digest": "0" * 64}, "recipe: signed '0000"),
        ({"parents": ["0" * 64]}, "parents: signed ['0000"),
    ],
)
def test_a_statement_of_anything_else_is_refused(
    pool: PoolDriver, site: str, said: dict[str, Any], named: str
) -> None:
    content = network_bytes()
    fields: dict[str, Any] = {
        "description": "Infants",
        "labels": {"population": "infant"},
        "metrics": {"mean_error": 0.07},
    }
    statement = statement_of("signer/tampered", content, **fields | said)
    answer = announce(
        pool.member(site), "signer/tampered", content, statement=signed(statement, KEY), **fields
    )
    assert error_of(answer) == (422, "statement_refused")
    assert named in answer.json()["error"]["message"]


def test_statements_of_other_files_names_and_kinds_are_refused(pool: PoolDriver, site: str) -> None:
    content, other = network_bytes(), network_bytes()
    client = pool.member(site)
    of_other = signed(statement_of("signer/kinds", other, size_bytes=len(content)), KEY)
    answer = announce(client, "signer/kinds", content, statement=of_other)
    assert "digest" in answer.json()["error"]["message"]
    renamed = signed(statement_of("signer/kinds", content), KEY)
    answer = announce(client, "signer/kinds", content, statement=renamed, file_name="b.bin")
    assert "file name: signed 'kinds.bin', found 'b.bin'" in answer.json()["error"]["message"]
    # Of which kind the file is, the pool finds out when it has it.
    claimed = signed(statement_of("signer/kinds", content, kind="ert"), KEY)
    opened = announce(client, "signer/kinds", content, statement=claimed).json()
    send_parts(client, opened, content)
    refused = complete(client, opened)
    assert error_of(refused) == (422, "statement_refused")
    assert "kind: signed 'ert', found 'network'" in refused.json()["error"]["message"]
    assert client.get("/api/v1/models/signer/kinds").status_code == 404, "nothing was published"


def test_only_a_registered_key_of_the_site_counts(pool: PoolDriver, site: str) -> None:
    content = network_bytes()
    statement = statement_of("signer/keys", content)
    stranger, foreign = PrivateKey.generate(), PrivateKey.generate()
    register(pool.member("another"), "another", foreign)
    for key in (stranger, foreign):
        answer = announce(
            pool.member(site), "signer/keys", content, statement=signed(statement, key)
        )
        assert error_of(answer) == (422, "statement_refused")
        assert key.public.key_id[:16] in answer.json()["error"]["message"]
    # The hint of the key alone is worth nothing.
    claimed = signed(statement, stranger)
    claimed["envelope"]["signatures"][0]["keyid"] = KEY.public.key_id
    answer = announce(pool.member(site), "signer/keys", content, statement=claimed)
    assert error_of(answer) == (422, "statement_refused")
    # Without the hint, the key is found.
    plain = signed(statement, KEY)
    plain["envelope"]["signatures"][0]["keyid"] = ""
    assert announce(pool.member(site), "signer/keys", content, statement=plain).status_code == 201


def test_a_key_revoked_while_the_file_travels_signs_nothing(pool: PoolDriver) -> None:
    key, content = PrivateKey.generate(), network_bytes()
    client = pool.member("rotating")
    register(client, "rotating", key)
    statement = signed(statement_of("rotating/face", content), key)
    opened = announce(client, "rotating/face", content, statement=statement).json()
    send_parts(client, opened, content)
    revoke(client, "rotating", key, "superseded")
    refused = complete(client, opened)
    assert error_of(refused) == (422, "statement_refused")
    assert "was revoked on" in refused.json()["error"]["message"]
    # A new key, and the same file again.
    successor = PrivateKey.generate()
    register(client, "rotating", successor)
    version = upload_signed(client, "rotating/face", successor, content)
    assert version["signed_by"]["key_id"] == successor.public.key_id


def test_a_version_is_signed_later_and_once(pool: PoolDriver) -> None:
    key, content = PrivateKey.generate(), network_bytes()
    client = pool.member("late")
    version = upload(client, "late/face", content, labels={"population": "infant"})
    register(client, "late", key)
    path = statement_path(version)
    said = {"labels": {"population": "infant"}, "kind": "network"}
    wrong = signed(statement_of("late/face", content), key)
    assert error_of(client.put(path, json=wrong)) == (422, "statement_refused"), "no labels"
    good = signed(statement_of("late/face", content, **said), key)
    assert error_of(pool.member("another").put(path, json=good)) == (403, "not_allowed")
    assert client.put(path, json=good).status_code == 200
    assert client.put(path, json=good).status_code == 200, "the same again"
    other = signed(statement_of("late/face", content), key)
    assert error_of(client.put(path, json=other)) == (409, "statement_exists")
    # After the key was stolen, another takes its place.
    successor = PrivateKey.generate()
    register(client, "late", successor)
    revoke(client, "late", key, "compromised")
    anew = signed(statement_of("late/face", content, **said), successor)
    assert client.put(path, json=anew).status_code == 200
    summary = client.get("/api/v1/models/late/face/versions/1").json()["signed_by"]
    assert (summary["key_id"], summary["revoked_as"]) == (successor.public.key_id, None)


def test_bytes_already_in_the_pool_can_be_signed(pool: PoolDriver, site: str) -> None:
    content = network_bytes()
    client = pool.member(site)
    upload(client, "signer/original", content)
    statement = signed(statement_of("signer/copy", content), KEY)
    answer = announce(client, "signer/copy", content, statement=statement).json()
    assert answer["state"] == "complete"
    assert answer["version"]["signed_by"]["key_id"] == KEY.public.key_id


def test_an_import_brings_its_key_and_that_signs_nothing_new(pool: PoolDriver) -> None:
    key, content = PrivateKey.generate(), network_bytes()
    client = pool.member("importer")
    foreign = {"origin": "site-a@pool.example.org", "name": "laptop", "public_key": key.public.text}
    statement = signed(statement_of("site-a/face", content), key) | {"foreign_key": foreign}
    version = upload(client, "importer/face", content, statement=statement, file_name="face.bin")
    assert version["signed_by"]["origin"] == "site-a@pool.example.org"
    body = client.get(statement_path(version)).json()
    assert (body["origin"], body["key"]["origin"]) == (foreign["origin"],) * 2
    # The key is no key of the site.
    more = network_bytes()
    importer_statement = signed(statement_of("importer/more", more), key)
    answer = announce(client, "importer/more", more, statement=importer_statement)
    assert error_of(answer) == (422, "statement_refused")
    # Its statement must be about the site it came from.
    wrong = signed(statement_of("site-b/more", more), key) | {"foreign_key": foreign}
    answer = announce(client, "importer/more", more, statement=wrong)
    assert "site: signed 'site-b', found 'site-a'" in answer.json()["error"]["message"]
    # The holder may register it for the site, which then owns it.
    assert register(client, "importer", key).status_code == 201
    [listed] = client.get("/api/v1/sites/importer/keys").json()["items"]
    assert listed["origin"] is None
    assert upload_signed(client, "importer/more", key, more)["signed_by"]["origin"] is None


def test_a_pool_may_demand_signatures(open_pool: OpenPool, tmp_path: Path) -> None:
    with open_pool(tmp_path, require_signatures=True, key_role="admin") as pool:
        content = network_bytes()
        client = pool.member("strict")
        answer = announce(client, "strict/face", content)
        assert error_of(answer) == (422, "signature_required")
        assert "poolctl keys create" in answer.json()["error"]["hint"]
        asked = client.post(
            "/api/v1/sites/strict/keys/challenge", json={"public_key": KEY.public.text}
        )
        assert asked.status_code == 403, "this pool lets only admins of a site register keys"
        assert register(pool.member("strict", "admin"), "strict", KEY).status_code == 201
        assert upload_signed(client, "strict/face", KEY, content)["signed_by"]
