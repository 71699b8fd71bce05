"""Bundles made here, whole and broken."""

import hashlib
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from pool_server.wire.bundles import PortableStatement, PortableVersion
from pool_server.wire.signatures.keys import PrivateKey
from pool_server.wire.signatures.statements import ModelPredicate, Statement, sign_statement
from site_agent.bundles.exporting import Blob, BundleWriter
from tests.pool_server.model_files import network_bytes, sha256

KEY = PrivateKey.from_seed(b"b" * 32)
MOMENT = datetime(2026, 3, 1, 12, tzinfo=UTC)


def ignore(_fraction: float, _words: str) -> None:
    return


def record_of(content: bytes, name: str = "face", **fields: Any) -> PortableVersion:
    defaults: dict[str, Any] = {
        "site": "site-a",
        "name": name,
        "version": 1,
        "digest": sha256(content),
        "size_bytes": len(content),
        "file_name": f"{name}.safetensors",
        "kind": "network",
        "labels": {"population": "infant"},
        "created_at": MOMENT,
        "created_by": "site-a/laptop",
    }
    return PortableVersion.model_validate(defaults | fields)


def signed(record: PortableVersion, key: PrivateKey = KEY, **said: Any) -> PortableVersion:
    """Return a record with the statement that its site would have signed."""
    fields: dict[str, Any] = {
        "site": record.site,
        "name": record.name,
        "size_bytes": record.size_bytes,
        "labels": record.labels,
        "signed_at": MOMENT,
    }
    statement = Statement.of(record.file_name, record.digest, ModelPredicate(**fields | said))
    return record.model_copy(
        update={
            "statement": PortableStatement(
                envelope=sign_statement(statement, key),
                public_key=key.public.text,
                key_name="laptop",
                origin="site-a@pool.example.org",
            )
        }
    )


def write_bundle(path: Path, records: Sequence[PortableVersion], contents: Sequence[bytes]) -> str:
    """Write a bundle of records and files as they are; return its identifier."""
    blobs = []
    for content in contents:
        file = path.with_name(f"{hashlib.sha256(content).hexdigest()}.blob")
        file.write_bytes(content)
        blobs.append(Blob(file, sha256(content), len(content)))
    writer = BundleWriter(path)
    with writer.collecting() as add:
        for record in records:
            add(record)
        identifier = writer.write(blobs, ignore)
    for blob in blobs:
        blob.path.unlink(missing_ok=True)
    return identifier


def good_bundle(path: Path, *, models: int = 2) -> str:
    contents = [network_bytes(seed=number) for number in range(models)]
    records = [
        signed(record_of(content, f"face-{number}")) for number, content in enumerate(contents)
    ]
    return write_bundle(path, records, contents)
