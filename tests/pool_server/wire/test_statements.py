"""Statements of sites: in-toto attestations that only the right key can make."""

import json
from datetime import UTC, datetime
from typing import Any

import pytest

from pool_server.wire.signatures.keys import PrivateKey, seal
from pool_server.wire.signatures.statements import (
    PAYLOAD_TYPE,
    ModelPredicate,
    StatedTerm,
    Statement,
    open_statement,
    sign_statement,
)

KEY = PrivateKey.from_seed(bytes(range(32)))
STATEMENT = Statement.of(
    "siteA.dat",
    "9f86" * 16,
    ModelPredicate(
        site="site-a",
        name="face-68",
        kind="ert",
        size_bytes=12,
        description="Infants",
        labels={"population": "infant"},
        metrics={"mean_error": 0.0727},
        terms=(StatedTerm(code="DUO:0000006"),),
        recipe_digest="60ab" * 16,
        parents=("1234" * 16,),
        signed_at=datetime(2026, 3, 1, 12, tzinfo=UTC),
    ),
)


def test_a_statement_is_an_in_toto_statement() -> None:
    envelope = sign_statement(STATEMENT, KEY)
    assert envelope.payloadType == "application/vnd.in-toto+json"
    content = json.loads(envelope.body())
    assert content == {
        "_type": "https://in-toto.io/Statement/v1",
        "subject": [{"name": "siteA.dat", "digest": {"sha256": "9f86" * 16}}],
        "predicateType": "urn:poolctl:model-version:v1",
        "predicate": {
            "site": "site-a",
            "name": "face-68",
            "kind": "ert",
            "size_bytes": 12,
            "description": "Infants",
            "labels": {"population": "infant"},
            "metrics": {"mean_error": 0.0727},
            "terms": [{"code": "DUO:0000006", "detail": ""}],
            "card_digest": None,
            "recipe_digest": "60ab" * 16,
            "parents": ["1234" * 16],
            "signed_at": "2026-03-01T12:00:00Z",
        },
    }
    assert open_statement(envelope, KEY.public) == STATEMENT
    assert sign_statement(STATEMENT, KEY) == envelope, "the same statement, the same bytes"


def without(path: str) -> dict[str, Any]:
    content: dict[str, Any] = json.loads(STATEMENT.to_bytes())
    *steps, last = path.split(".")
    place = content
    for step in steps:
        place = place[step]
    del place[last]
    return content


@pytest.mark.parametrize(
    ("content", "named"),
    [
        (without("subject"), "subject"),
        (without("predicate.site"), "predicate.site"),
        (
            without("predicateType") | {"predicateType": "https://slsa.dev/provenance/v1"},
            "predicateType",
        ),
        (without("subject") | {"subject": [{"name": "a", "digest": {"sha1": "0" * 40}}]}, "sha256"),
        (
            without("subject") | {"subject": [{"name": "../a", "digest": {"sha256": "0" * 64}}]},
            "name",
        ),
    ],
)
def test_invalid_statements_are_refused_naming_the_field(content: Any, named: str) -> None:
    sealed = seal(PAYLOAD_TYPE, json.dumps(content).encode(), KEY)
    with pytest.raises(ValueError, match=named):
        open_statement(sealed, KEY.public)


def test_a_foreign_signature_is_found_before_anything_is_read() -> None:
    other = PrivateKey.generate()
    with pytest.raises(ValueError, match="not one of key"):
        open_statement(seal(PAYLOAD_TYPE, b"no json at all", other), KEY.public)
    with pytest.raises(ValueError, match="text/plain"):
        open_statement(seal("text/plain", STATEMENT.to_bytes(), KEY), KEY.public)
