"""Signed statements of model versions, in the form of in-toto.

The statement names the file by its SHA-256 and repeats the uploader's description of it::

    {"_type": "https://in-toto.io/Statement/v1",
     "subject": [{"name": "siteA.dat", "digest": {"sha256": "9f86..."}}],
     "predicateType": "urn:poolctl:model-version:v1",
     "predicate": {"site": "site-a", "name": "face-68", "labels": {...}, ...}}

It travels in a DSSE envelope of type ``application/vnd.in-toto+json``, which other programs that
check in-toto attestations accept, too. The OpenSSF model-signing predicate
(``https://model_signing/signature/v1.0``) has no place for labels, terms or lineage, and its root
digest over a folder of files has no meaning here, where a model is one file; so the predicate is
poolctl's own.

This module is part of the wire format because both sides need all of it: a site writes statements
that its pool checks, and reads back statements that the pool sends.

Every signature of a model version goes through `differences`, the one comparison of a statement
with its version, in the pool and at the sites:

=========================  ===========================================  ======================
possible liar              lie                                          refused by
=========================  ===========================================  ======================
a pool, or an intruder     shows another file, name, card, recipe,      the client, before it
                           label, metric or term than the site signed,  uses a version, and when
                           or passes the statement of one version off   it reads a card or recipe
                           as another's
an uploader                signs something else than it uploads         the pool, when the file
                                                                        is announced and when it
                                                                        becomes a version
another site               replays a statement for a model of its own,  the pool: site and name
                           or signs in the name of a site               are signed, and the key
                                                                        must be the site's own
the carrier of an export   changes a record between two pools           the client that reads it,
                                                                        and the second pool
=========================  ===========================================  ======================

The pool's half is `pool_server.signatures.statements`, the client's `site_agent.pool.verification`.
Number, state, visibility and dates of a version are the pool's own and not signed; format
and fingerprint follow from the file, and its digest is signed.

Sources: in-toto attestation framework, `spec/v1/statement.md` and its parsing rules (unknown fields
are ignored); OpenSSF model-signing format.
"""

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Literal

from pydantic import AwareDatetime, BaseModel, ConfigDict, Field, ValidationError

from pool_server.wire import names
from pool_server.wire.data_use_rules import PERMISSIVE
from pool_server.wire.signatures.keys import Envelope, PrivateKey, PublicKey, seal

PAYLOAD_TYPE = "application/vnd.in-toto+json"
StatementType = Literal["https://in-toto.io/Statement/v1"]
PredicateType = Literal["urn:poolctl:model-version:v1"]
STATEMENT_TYPE: StatementType = "https://in-toto.io/Statement/v1"
PREDICATE_TYPE: PredicateType = "urn:poolctl:model-version:v1"

Revocation = Literal["superseded", "compromised"]


class StatedTerm(BaseModel):
    """One term of use attached by the site itself."""

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
    def of(cls, file_name: str, digest: str, predicate: ModelPredicate) -> "Statement":
        subject = _Subject(name=file_name, digest=_SubjectDigest(sha256=digest))
        return cls(subject=(subject,), predicate=predicate)

    @classmethod
    def parse(cls, body: bytes) -> "Statement":
        """Read the output of `to_bytes` or another program; `ValueError` names a wrong field."""
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
        """Return the JSON to sign; equal statements give equal bytes."""
        return canonical_json(self.model_dump(mode="json", by_alias=True))


class SignatureSummary(BaseModel):
    """The key that claims to have signed a version; the reader must verify the signature."""

    key_id: names.Digest = Field(description="SHA-256 of the raw public key: the fingerprint.")
    origin: str | None = Field(
        default=None,
        description="`SITE@POOL` for a version and key imported from another pool; absent for a "
        "key proved to this pool by the "
        "site.",
    )
    accepted_at: datetime = Field(description="Time at which the pool accepted the statement.")
    revoked_at: datetime | None = None
    revoked_as: Revocation | None = None


def sign_statement(statement: Statement, key: PrivateKey) -> Envelope:
    """Put a statement into an envelope."""
    return seal(PAYLOAD_TYPE, statement.to_bytes(), key)


def open_statement(envelope: Envelope, key: PublicKey) -> Statement:
    """Return the statement that `key` signed, else raise `ValueError`.

    Nothing of the payload is parsed before the signature is verified.
    """
    if envelope.signed_by([key]) is None:
        raise ValueError(f"the signature is not one of key {key.key_id[:16]}...")
    if envelope.payloadType != PAYLOAD_TYPE:
        raise ValueError(
            f"the payload has type {envelope.payloadType!r}, expected {PAYLOAD_TYPE!r}"
        )
    try:
        return Statement.parse(envelope.body())
    except ValueError as error:
        raise ValueError(f"the payload is not a statement of a model version: {error}") from None


def canonical_json(content: Mapping[str, Any]) -> bytes:
    """Return JSON in one form: keys sorted, no spaces, UTF-8."""
    return json.dumps(
        content, sort_keys=True, separators=(",", ":"), ensure_ascii=False, allow_nan=False
    ).encode()


StatedTerms = frozenset[tuple[str, str]]
"""Codes with their details."""

_SHOWN_CHARACTERS = 160


@dataclass(frozen=True)
class VersionFacts:
    """The actual values of a statement's subjects, in an upload, a version or an export."""

    site: str
    """The site that must have signed: the version's, or that of an import's origin."""
    name: str
    file_name: str
    digest: str
    size_bytes: int
    kind: str
    """Empty until somebody has read the file."""
    description: str
    labels: Mapping[str, str]
    metrics: Mapping[str, float]
    own_terms: StatedTerms
    """Terms attached by the site itself; for an import, perhaps also those inherited elsewhere."""
    inherited_terms: StatedTerms
    """Terms from inputs and copies."""
    card_digest: str | None
    recipe_digest: str | None
    parents: tuple[str, ...]
    terms_are_settled: bool = True
    """True if a pool has derived the terms; before that they are exactly the uploader's."""
    is_import: bool = False

    def statement(self, signed_at: datetime) -> Statement:
        """Return the matching statement, for which `differences` returns nothing."""
        predicate = ModelPredicate(
            site=self.site,
            name=self.name,
            kind=self.kind,
            size_bytes=self.size_bytes,
            description=self.description,
            labels=dict(self.labels),
            metrics=dict(self.metrics),
            terms=tuple(
                StatedTerm(code=code, detail=text) for code, text in sorted(self.own_terms)
            ),
            card_digest=self.card_digest,
            recipe_digest=self.recipe_digest,
            parents=self.parents,
            signed_at=signed_at,
        )
        return Statement.of(self.file_name, self.digest, predicate)


def differences(statement: Statement, facts: VersionFacts) -> list[str]:
    """Return a description of each field in which a signed statement differs from the facts.

    All signed fields except the time of signing are compared; the tests check that against
    `ModelPredicate`.
    """
    said = statement.predicate
    compared: dict[str, tuple[object, object]] = {
        "digest": (statement.digest, facts.digest),
        "site": (said.site, facts.site),
        "name": (said.name, facts.name),
        "file name": (statement.file_name, facts.file_name),
        "size": (said.size_bytes, facts.size_bytes),
        # A signer that cannot read the file leaves its kind open, and a pool does not know it
        # before the file is there; the digest binds it in any case.
        "kind": (said.kind, facts.kind) if said.kind and facts.kind else ("", ""),
        "description": (said.description, facts.description),
        "labels": (said.labels, facts.labels),
        "metrics": (said.metrics, facts.metrics),
        "card": (said.card_digest, facts.card_digest),
        "recipe": (said.recipe_digest, facts.recipe_digest),
        # The digest of the recipe binds their order.
        "parents": (sorted(set(said.parents)), sorted(set(facts.parents))),
    }
    problems = [
        f"{word}: signed {_shorten(signed)}, found {_shorten(other)}"
        for word, (signed, other) in compared.items()
        if signed != other
    ]
    terms = _compare_terms(frozenset((term.code, term.detail) for term in said.terms), facts)
    return [*problems, f"terms: {terms}"] if terms else problems


def text_digest(text: str | None) -> str | None:
    """Return the SHA-256 of a card's text; None without a card."""
    return hashlib.sha256(text.encode()).hexdigest() if text else None


def _compare_terms(signed: StatedTerms, facts: VersionFacts) -> str:
    """Describe differing terms: restrictions must not be lost, nor permissions added."""
    shown = facts.own_terms | facts.inherited_terms
    lost, added = signed - shown, set(facts.own_terms - signed)
    if facts.terms_are_settled:
        # A merge drops permissions that its inputs do not have.
        lost = frozenset(term for term in lost if term[0] not in PERMISSIVE)
    if facts.is_import:
        added.clear()
    if not facts.parents:
        # Only inputs can pass on permissions: copies of a file pass on restrictions.
        added |= {term for term in shown - signed if term[0] in PERMISSIVE}
    parts = [f"signed and missing {_shorten(sorted(lost))}"] if lost else []
    parts += [f"not signed {_shorten(sorted(added))}"] if added else []
    return ", ".join(parts)


def _shorten(value: object) -> str:
    text = repr(value)
    return text if len(text) <= _SHOWN_CHARACTERS else f"{text[:_SHOWN_CHARACTERS]}..."
