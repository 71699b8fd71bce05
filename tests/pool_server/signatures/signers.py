"""A site that signs, in tests: as another program than ours would do it over the wire."""

import base64
from datetime import UTC, datetime
from typing import Any

import httpx

from pool_server.wire.signatures import CHALLENGE_TYPE
from pool_server.wire.signatures.keys import PrivateKey, pae
from pool_server.wire.signatures.statements import ModelPredicate, Statement, sign_statement
from tests.pool_server.model_files import network_bytes, sha256
from tests.pool_server.pool_driver import upload


def register(
    client: httpx.Client, site: str, key: PrivateKey, name: str = "laptop"
) -> httpx.Response:
    asked = client.post(
        f"/api/v1/sites/{site}/keys/challenge", json={"public_key": key.public.text}
    )
    assert asked.status_code == 200, asked.text
    return client.post(
        f"/api/v1/sites/{site}/keys", json=proof(key, asked.json()["challenge"], name)
    )


def proof(key: PrivateKey, challenge: str, name: str = "laptop") -> dict[str, str]:
    signature = key.sign(pae(CHALLENGE_TYPE, challenge.encode()))
    return {
        "name": name,
        "public_key": key.public.text,
        "challenge": challenge,
        "signature": base64.b64encode(signature).decode(),
    }


def revoke(client: httpx.Client, site: str, key: PrivateKey, reason: str) -> httpx.Response:
    path = f"/api/v1/sites/{site}/keys/{key.public.key_id}/revoke"
    return client.post(path, json={"reason": reason})


def statement_of(address: str, content: bytes, **said: Any) -> Statement:
    site, name = address.split("/")
    fields: dict[str, Any] = {
        "site": site,
        "name": name,
        "size_bytes": len(content),
        "signed_at": datetime(2026, 3, 1, tzinfo=UTC),
    }
    return Statement.of(f"{name}.bin", sha256(content), ModelPredicate(**fields | said))


def signed(statement: Statement, key: PrivateKey) -> dict[str, Any]:
    return {"envelope": sign_statement(statement, key).model_dump(mode="json")}


def upload_signed(
    client: httpx.Client, address: str, key: PrivateKey, content: bytes | None = None, **fields: Any
) -> dict[str, Any]:
    """Upload a file with a matching statement."""
    content = network_bytes() if content is None else content
    said = statement_of(address, content, **fields)
    return upload(client, address, content, statement=signed(said, key), **fields)
