"""Signed statements of model versions, in the form of in-toto.

The statement names the file by its SHA-256 and repeats what the uploader said of it::

    {"_type": "https://in-toto.io/Statement/v1",
     "subject": [{"name": "siteA.dat", "digest": {"sha256": "9f86..."}}],
     "predicateType": "urn:poolctl:model-version:v1",
     "predicate": {"site": "site-a", "name": "face-68", "labels": {...}, ...}}

It travels in a DSSE envelope of type ``application/vnd.in-toto+json``, which other programs that
check in-toto attestations take too. The OpenSSF model-signing predicate
(``https://model_signing/signature/v1.0``) has no place for labels, terms or lineage, and its root
digest over a folder of files says nothing here, where a model is one file; so the predicate is
poolctl's own.

This stands beside the requests and responses because both sides need all of it: a site writes
what its pool checks, and reads back what the pool gives it.

Sources: in-toto attestation framework, `spec/v1/statement.md` and its parsing rules (fields that
are not known are passed over); OpenSSF model-signing format.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from datetime import datetime
from typing import Any, Literal

from pydantic import AwareDatetime, BaseModel, ConfigDict, Field, ValidationError

from pool_server.wire import names
from pool_server.wire.signatures.keys import Envelope, PrivateKey, PublicKey, seal

PAYLOAD_TYPE = "application/vnd.in-toto+json"
StatementType = Literal["https://in-toto.io/Statement/v1"]
PredicateType = Literal["urn:poolctl:model-version:v1"]
STATEMENT_TYPE: StatementType = "https://in-toto.io/Statement/v1"
PREDICATE_TYPE: PredicateType = "urn:poolctl:model-version:v1"

Revocation = Literal["superseded", "compromised"]


class StatedTerm(BaseModel):
    """One term of use that the site itself attached."""

    model_config = ConfigDict(frozen=True)

    code: str = Field(max_length=64)
    detail: str = Field(default="", max_length=256)


class ModelPredicate(BaseModel):
    """The description of a file that a site publishes as a version of ``site/name``."""

    model_config = ConfigDict(frozen=True)

    site: names.Name
    name: names.Name
    kind: str = Field(default="", max_length=64, description="`hog-svm`, `ert` or `network`.")
    size_bytes: int = Field(ge=1)
    description: names.Description = ""
    labels: dict[names.LabelKey, names.LabelValue] = Field(default_factory=dict)
    metrics: dict[names.LabelKey, names.FiniteFloat] = Field(default_factory=dict)
    terms: tuple[StatedTerm, ...] = ()
    card_digest: names.Digest | None = Field(
        default=None, description="SHA-256 of the card's text."
    )
    recipe_digest: names.Digest | None = Field(
        default=None, description="SHA-256 of the recipe's canonical JSON, without names."
    )
    parents: tuple[names.Digest, ...] = Field(default=(), description="Inputs of the recipe.")
    signed_at: AwareDatetime


class _SubjectDigest(BaseModel):
    model_config = ConfigDict(frozen=True)

    sha256: names.Digest


class _Subject(BaseModel):
    model_config = ConfigDict(frozen=True)

    name: names.FileName
    digest: _SubjectDigest


class Statement(BaseModel):
    """A whole statement, of one file."""

    model_config = ConfigDict(frozen=True, populate_by_name=True)

    statement_type: StatementType = Field(default=STATEMENT_TYPE, alias="_type")
    subject: tuple[_Subject] = Field(description="The file.")
    predicate_type: PredicateType = Field(default=PREDICATE_TYPE, alias="predicateType")
    predicate: ModelPredicate

    @classmethod
    def of(cls, file_name: str, digest: str, predicate: ModelPredicate) -> Statement:
        subject = _Subject(name=file_name, digest=_SubjectDigest(sha256=digest))
        return cls(subject=(subject,), predicate=predicate)

    @classmethod
    def parse(cls, body: bytes) -> Statement:
        """Read what `to_bytes` or another program wrote; `ValueError` names a wrong field."""
        try:
            return cls.model_validate_json(body)
        except ValidationError as error:
            problem = error.errors(include_url=False, include_context=False)[0]
            where = ".".join(str(step) for step in problem["loc"]) or "the whole"
            raise ValueError(f"{where}: {problem['msg']}") from None

    @property
    def digest(self) -> str:
        """SHA-256 of the file."""
        return self.subject[0].digest.sha256

    @property
    def file_name(self) -> str:
        return self.subject[0].name

    def to_bytes(self) -> bytes:
        """Return the JSON that is signed; equal statements give equal bytes."""
        return canonical_json(self.model_dump(mode="json", by_alias=True))


class SignatureSummary(BaseModel):
    """With which key a version is signed; whether it truly is, the reader checks."""

    key_id: names.Digest = Field(description="SHA-256 of the raw public key: the fingerprint.")
    origin: str | None = Field(
        default=None,
        description="`SITE@POOL` where the version was imported from another pool, and its key "
        "with it; absent for a key that the site proved to hold to this pool.",
    )
    accepted_at: datetime = Field(description="When the pool checked and took the statement.")
    revoked_at: datetime | None = None
    revoked_as: Revocation | None = None


def sign_statement(statement: Statement, key: PrivateKey) -> Envelope:
    """Put a statement into an envelope."""
    return seal(PAYLOAD_TYPE, statement.to_bytes(), key)


def open_statement(envelope: Envelope, key: PublicKey) -> Statement:
    """Return the statement that `key` signed, else raise `ValueError`.

    Nothing of the payload is read before the signature is found good.
    """
    if envelope.signed_by([key]) is None:
        raise ValueError(f"the signature is not one of key {key.key_id[:16]}...")
    if envelope.payloadType != PAYLOAD_TYPE:
        raise ValueError(f"signed was {envelope.payloadType!r}, expected {PAYLOAD_TYPE!r}")
    try:
        return Statement.parse(envelope.body())
    except ValueError as error:
        raise ValueError(f"the payload is not a statement of a model version: {error}") from None


def canonical_json(content: Mapping[str, Any]) -> bytes:
    """Return JSON in one form: keys sorted, no spaces, UTF-8."""
    return json.dumps(
        content, sort_keys=True, separators=(",", ":"), ensure_ascii=False, allow_nan=False
    ).encode()
