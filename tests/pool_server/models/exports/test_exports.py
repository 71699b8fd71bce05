"""Models leave the pool only when their owners, their terms and their standing allow it."""

from typing import Any

import httpx

from pool_server.wire.exports import PortableVersion
from pool_server.wire.merges import recipe_digest
from pool_server.wire.signatures.keys import PrivateKey
from tests.pool_server.model_files import network_bytes, sha256
from tests.pool_server.pool_driver import PoolDriver, error_of, upload
from tests.pool_server.signatures.signers import (
    register,
    revoke,
    signed,
    statement_of,
    upload_signed,
)
from tests.pool_server.transfers.test_recipes import recipe_for


def ask(client: httpx.Client, address: str) -> httpx.Response:
    model, number = address.removeprefix("pool://").split("@")
    return client.post(f"/api/v1/models/{model}/versions/{number}/export")


def share(client: httpx.Client, model: str, *rights: str) -> None:
    answer = client.put(
        f"/api/v1/models/{model}/sharing", json={"visibility": "consortium", "rights": list(rights)}
    )
    assert answer.status_code == 200, answer.text


def merged(client: httpx.Client, address: str, *parents: dict[str, Any]) -> dict[str, Any]:
    content = network_bytes()
    recipe = recipe_for(content, *(parent["digest"] for parent in parents))
    return upload(client, address, content, recipe=recipe)


def reasons(answer: httpx.Response) -> str:
    assert error_of(answer) == (403, "export_refused")
    return str(answer.json()["error"]["message"]).partition("may not leave the pool: ")[2]


def test_a_sites_own_models_are_exported_with_their_records(pool: PoolDriver) -> None:
    client, key = pool.member("exporter"), PrivateKey.generate()
    register(client, "exporter", key)
    content, card = network_bytes(), "# Infants\n"
    said: dict[str, Any] = {
        "labels": {"population": "infant"},
        "metrics": {"mean_error": 0.07},
        "description": "Infants",
    }
    statement = statement_of("exporter/face", content, **said, card_digest=sha256(card.encode()))
    version = upload(
        client, "exporter/face", content, statement=signed(statement, key), card=card, **said
    )
    record = PortableVersion.model_validate(ask(client, version["address"]).json())
    assert (record.address, record.digest) == (version["address"], version["digest"])
    assert record.labels == {"population": "infant"}
    assert record.card == "# Infants\n"
    assert record.statement is not None
    assert record.statement.public_key == key.public.text


def test_exporting_others_models_needs_the_right_to_redistribute(pool: PoolDriver) -> None:
    owner, other = pool.member("keeper"), pool.member("taker")
    version = upload(owner, "keeper/face")
    assert reasons(ask(other, version["address"])) == "keeper has not granted redistribute"
    share(owner, "keeper/face", "download", "redistribute")
    assert ask(other, version["address"]).status_code == 200
    share(owner, "keeper/face", "redistribute")
    assert reasons(ask(other, version["address"])) == "keeper has not granted download"
    # The owner hears who took it along; nobody hears of what was refused.
    events = owner.get("/api/v1/events").json()["items"]
    told = [event for event in events if event["kind"] == "version.exported"]
    assert [(event["subject"], event["details"]["by"]) for event in told] == [
        (version["address"], "taker")
    ]
    audit = pool.admin.get("/api/v1/audit", params={"action": "version.export"}).json()["items"]
    assert [
        (act["actor"], act["details"]["digest"])
        for act in audit
        if act["subject"] == "keeper/face@1"
    ] == [("taker/test-contributor", version["digest"])]


def test_a_merge_is_exported_without_its_inputs(pool: PoolDriver) -> None:
    a, b = pool.member("family-a"), pool.member("family-b")
    parent = upload(a, "family-a/parent")
    child = merged(b, "family-b/child", parent)
    assert ask(b, child["address"]).json()["parents"] == [parent["digest"]]
    assert reasons(ask(b, parent["address"])) == "family-a has not granted redistribute"


def named_recipe(content: bytes, *parents: dict[str, Any]) -> dict[str, Any]:
    """Return a recipe that names its inputs, and the omitted inputs of another merge."""
    entries = [
        {"digest": parent["digest"], "address": parent["address"], "file_name": parent["file_name"]}
        for parent in parents
    ]
    recipe = recipe_for(content)
    claim = {"digest": "12" * 32, "without": entries}
    return {**recipe, "inputs": entries, "successor_of": claim}


def test_a_record_does_not_name_inputs_that_are_not_shared(pool: PoolDriver) -> None:
    owner, other = pool.member("maker"), pool.member("taker")
    secret = upload(owner, "maker/secret", visibility="private", file_name="patient-7.bin")
    open_one = upload(owner, "maker/open")
    content = network_bytes()
    recipe = named_recipe(content, secret, open_one)
    merged_one = upload(owner, "maker/merged", content, recipe=recipe, visibility="consortium")
    share(owner, "maker/merged", "download", "redistribute")
    for client, knows in ((owner, True), (pool.admin, True), (other, False)):
        answer = ask(client, merged_one["address"])
        record = PortableVersion.model_validate(answer.json())
        assert record.parents == [secret["digest"], open_one["digest"]]
        assert record.recipe is not None
        for entries in (record.recipe["inputs"], record.recipe["successor_of"]["without"]):
            assert [entry["digest"] for entry in entries] == record.parents
            assert entries[1]["address"] == open_one["address"]
            assert entries[0]["address"] == (secret["address"] if knows else None)
        assert ("maker/secret" in answer.text) is knows
        assert ("patient-7" in answer.text) is knows


def test_a_record_of_a_signed_version_does_not_name_hidden_inputs(pool: PoolDriver) -> None:
    """The signed form of a recipe has no names, so that they can be left out."""
    owner, key = pool.member("signer"), PrivateKey.generate()
    register(owner, "signer", key)
    secret = upload(owner, "signer/secret", visibility="private", file_name="patient-7.bin")
    content = network_bytes()
    recipe = named_recipe(content, secret)
    version = upload(owner, "signer/merged", content, recipe=recipe, visibility="consortium")
    tree = owner.get("/api/v1/models/signer/merged/versions/1/lineage").json()
    digest = recipe_digest(tree["recipe"])
    statement = statement_of(
        "signer/merged", content, recipe_digest=digest, parents=version["parent_digests"]
    )
    path = "/api/v1/models/signer/merged/versions/1/statement"
    assert owner.put(path, json=signed(statement, key)).status_code == 200
    share(owner, "signer/merged", "download", "redistribute")
    answer = ask(pool.member("taker"), version["address"])
    assert "signer/secret" not in answer.text
    assert "patient-7" not in answer.text
    record = PortableVersion.model_validate(answer.json())
    assert record.recipe is not None
    assert recipe_digest(record.recipe) == digest


def test_terms_and_standing_block_exports(pool: PoolDriver) -> None:
    client, key = pool.member("bound"), PrivateKey.generate()
    register(client, "bound", key)
    term = {"code": "DUO:0000028", "detail": "bound"}
    for_one = upload(client, "bound/for-one", terms=[term])
    withdrawn = upload(client, "bound/withdrawn")
    child = merged(client, "bound/child", withdrawn)
    draft = upload(client, "bound/draft", draft=True)
    stolen = upload_signed(client, "bound/stolen", key)
    client.post(
        "/api/v1/models/bound/withdrawn/versions/1/withdraw", json={"reason": "consent-withdrawn"}
    ).raise_for_status()
    revoke(client, "bound", key, "compromised")
    why = reasons(ask(client, for_one["address"]))
    assert "DUO:0000028" in why or "institution" in why
    for version, expected in (
        (child, "it contains a withdrawn file"),
        (draft, "it is draft"),
        (stolen, "it is signed with a key that was declared compromised"),
        (withdrawn, "it is withdrawn"),
    ):
        assert reasons(ask(client, version["address"])) == expected
