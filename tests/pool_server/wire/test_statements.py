"""Statements of sites: only the right key makes them, and each difference is named."""

import json
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

import pytest

from pool_server.wire.signatures.keys import PrivateKey, seal
from pool_server.wire.signatures.statements import (
    PAYLOAD_TYPE,
    ModelPredicate,
    StatedTerm,
    Statement,
    VersionFacts,
    differences,
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


NOW = datetime(2026, 3, 1, tzinfo=UTC)
GENERAL, NON_COMMERCIAL, CLINICAL = ("DUO:0000042", ""), ("DUO:0000046", ""), ("DUO:0000043", "")
FACTS = VersionFacts(
    site="site-a",
    name="face-68",
    file_name="face.dat",
    digest="0" * 64,
    size_bytes=12,
    kind="ert",
    description="Infants",
    labels={"population": "infant"},
    metrics={"mean_error": 0.07},
    own_terms=frozenset({GENERAL}),
    inherited_terms=frozenset({NON_COMMERCIAL}),
    card_digest="1" * 64,
    recipe_digest="2" * 64,
    parents=("3" * 64, "4" * 64),
)
CHANGES: dict[str, dict[str, Any]] = {
    "digest": {"digest": "f" * 64},
    "site": {"site": "site-b"},
    "name": {"name": "face-5"},
    "file name": {"file_name": "run.sh"},
    "size": {"size_bytes": 13},
    "kind": {"kind": "hog-svm"},
    "description": {"description": ""},
    "labels": {"labels": {}},
    "metrics": {"metrics": {"mean_error": 0.01}},
    "terms": {"own_terms": frozenset()},
    "card": {"card_digest": None},
    "recipe": {"recipe_digest": "f" * 64},
    "parents": {"parents": ("3" * 64,)},
}


def test_a_statement_contains_all_facts() -> None:
    assert differences(FACTS.statement(NOW), FACTS) == []


def test_every_signed_field_is_compared() -> None:
    fields = {field.replace(" ", "_") for field in CHANGES}
    renamed = {"size_bytes": "size", "card_digest": "card", "recipe_digest": "recipe"}
    signed = {renamed.get(field, field) for field in ModelPredicate.model_fields}
    assert fields == (signed - {"signed_at"}) | {"digest", "file_name"}


@pytest.mark.parametrize("word", CHANGES)
def test_each_difference_is_named(word: str) -> None:
    [problem] = differences(FACTS.statement(NOW), replace(FACTS, **CHANGES[word]))
    assert problem.startswith(f"{word}: signed ")


def test_all_differences_are_named() -> None:
    changed = replace(FACTS, **{k: v for field in CHANGES.values() for k, v in field.items()})
    assert len(differences(FACTS.statement(NOW), changed)) == len(CHANGES)


def test_a_kind_may_be_left_open() -> None:
    assert differences(replace(FACTS, kind="").statement(NOW), FACTS) == []
    assert differences(FACTS.statement(NOW), replace(FACTS, kind="")) == []


@pytest.mark.parametrize(
    ("signed", "actual", "problem"),
    [
        # Inherited terms bind more.
        ({}, {"inherited_terms": frozenset({NON_COMMERCIAL, ("DUO:0000019", "")})}, ""),
        # A merge drops what would allow more than its inputs do, the uploader must not.
        ({"own_terms": frozenset({GENERAL, CLINICAL})}, {}, ""),
        (
            {"own_terms": frozenset({GENERAL, CLINICAL})},
            {"terms_are_settled": False},
            "terms: signed and missing [('DUO:0000043', '')]",
        ),
        # A binding term may be shown as inherited, not be lost.
        ({}, {"own_terms": frozenset(), "inherited_terms": frozenset({GENERAL})}, ""),
        # The site is not said to have attached what it did not sign ...
        (
            {},
            {"own_terms": frozenset({GENERAL, NON_COMMERCIAL})},
            "terms: not signed [('DUO:0000046', '')]",
        ),
        # ... unless it comes from another pool, where it was inherited.
        ({}, {"own_terms": frozenset({GENERAL, NON_COMMERCIAL}), "is_import": True}, ""),
        # Only inputs hand down a permission.
        ({}, {"inherited_terms": frozenset({CLINICAL})}, ""),
        (
            {"parents": ()},
            {"parents": (), "inherited_terms": frozenset({CLINICAL})},
            "terms: not signed [('DUO:0000043', '')]",
        ),
        (
            {"parents": ()},
            {"parents": (), "own_terms": frozenset({GENERAL, CLINICAL}), "is_import": True},
            "terms: not signed [('DUO:0000043', '')]",
        ),
    ],
)
def test_terms_may_bind_more_and_never_less(
    signed: dict[str, Any], actual: dict[str, Any], problem: str
) -> None:
    statement = replace(FACTS, **signed).statement(NOW)
    assert "".join(differences(statement, replace(FACTS, **actual))) == problem
