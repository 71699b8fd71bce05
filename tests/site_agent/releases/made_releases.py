"""Records of versions made here, right and wrong."""

from datetime import UTC, datetime
from typing import Any

from pool_server.wire.exports import PortableStatement, PortableVersion
from pool_server.wire.signatures.keys import PrivateKey
from pool_server.wire.signatures.statements import ModelPredicate, Statement, sign_statement
from tests.pool_server.model_files import sha256

KEY = PrivateKey.from_seed(b"b" * 32)
MOMENT = datetime(2026, 3, 1, 12, tzinfo=UTC)


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
