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

Every signature of a model version goes through `differences`, the one comparison of a statement
with the version that it is about, in the pool and at the sites:

=========================  ===========================================  ======================
who may lie                how                                          who refuses
=========================  ===========================================  ======================
a pool, or whoever broke   shows another file, name, card, recipe,      the client, before it
into it                    label, metric or term than the site signed,  uses a version, and when
                           or passes the statement of one version off   it reads a card or recipe
                           as another's
an uploader                signs something else than it uploads         the pool, when the file
                                                                        is announced and when it
                                                                        becomes a version
another site               replays a statement for a model of its own,  the pool: site and name
                           or signs in the name of a site               are signed, and the key
                                                                        must be the site's own
whoever carries a bundle   changes a record between two pools           the client that reads it,
                                                                        and the second pool
=========================  ===========================================  ======================

The pool's half is `pool_server.signatures.statements`, the client's `site_agent.pool.verification`.
Number, aliases, state, visibility and dates of a version are the pool's own and not signed; format
and fingerprint follow from the file, whose digest is.

Sources: in-toto attestation framework, `spec/v1/statement.md` and its parsing rules (fields that
are not known are passed over); OpenSSF model-signing format.
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
    def of(cls, file_name: str, digest: str, predicate: ModelPredicate) -> "Statement":
        subject = _Subject(name=file_name, digest=_SubjectDigest(sha256=digest))
        return cls(subject=(subject,), predicate=predicate)

    @classmethod
    def parse(cls, body: bytes) -> "Statement":
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


StatedTerms = frozenset[tuple[str, str]]
"""Codes with their details."""

_SHOWN_CHARACTERS = 160


@dataclass(frozen=True)
class VersionFacts:
    """All that a statement speaks of, as it was found: in an upload, a version or a bundle.

    `site` must have signed: that of the version, or of an imported one where it came from. `kind`
    is empty as long as nobody has read the file. `own_terms` are those that the site itself
    attached, `inherited_terms` came from inputs and copies; `terms_are_settled` once a pool has
    worked them out, before that they are exactly what the uploader said. Of an import, what it had
    inherited elsewhere may have become its own terms.
    """

    site: str
    name: str
    file_name: str
    digest: str
    size_bytes: int
    kind: str
    description: str
    labels: Mapping[str, str]
    metrics: Mapping[str, float]
    own_terms: StatedTerms
    inherited_terms: StatedTerms
    card_digest: str | None
    recipe_digest: str | None
    parents: tuple[str, ...]
    terms_are_settled: bool = True
    is_import: bool = False

    def statement(self, signed_at: datetime) -> Statement:
        """Return the statement that says all this; `differences` then finds none."""
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


def differences(statement: Statement, found: VersionFacts) -> list[str]:
    """Return each field in which a signed statement differs from what was found, in words.

    All signed fields are compared but the time of signing; the tests hold that against
    `ModelPredicate`.
    """
    said = statement.predicate
    compared: dict[str, tuple[object, object]] = {
        "digest": (statement.digest, found.digest),
        "site": (said.site, found.site),
        "name": (said.name, found.name),
        "file name": (statement.file_name, found.file_name),
        "size": (said.size_bytes, found.size_bytes),
        # A signer that cannot read the file leaves its kind open, and a pool does not know it
        # before the file is there; the digest binds it in any case.
        "kind": (said.kind, found.kind) if said.kind and found.kind else ("", ""),
        "description": (said.description, found.description),
        "labels": (said.labels, found.labels),
        "metrics": (said.metrics, found.metrics),
        "card": (said.card_digest, found.card_digest),
        "recipe": (said.recipe_digest, found.recipe_digest),
        # The digest of the recipe binds their order.
        "parents": (sorted(set(said.parents)), sorted(set(found.parents))),
    }
    problems = [
        f"{word}: signed {_shorten(signed)}, found {_shorten(other)}"
        for word, (signed, other) in compared.items()
        if signed != other
    ]
    terms = _compare_terms(frozenset((each.code, each.detail) for each in said.terms), found)
    return [*problems, f"terms: {terms}"] if terms else problems


def text_digest(text: str | None) -> str | None:
    """Return the SHA-256 of a card's text; None without a card."""
    return hashlib.sha256(text.encode()).hexdigest() if text else None


def _compare_terms(signed: StatedTerms, found: VersionFacts) -> str:
    """Compare terms: none may be lost that binds, and none may appear that allows more."""
    shown = found.own_terms | found.inherited_terms
    lost, added = signed - shown, set(found.own_terms - signed)
    if found.terms_are_settled:
        # A merge drops what would allow more than its inputs do.
        lost = frozenset(each for each in lost if each[0] not in PERMISSIVE)
    if found.is_import:
        added.clear()
    if not found.parents:
        # Only inputs can hand down a permission: copies of a file hand down what binds.
        added |= {each for each in shown - signed if each[0] in PERMISSIVE}
    parts = [f"signed and missing {_shorten(sorted(lost))}"] if lost else []
    parts += [f"not signed {_shorten(sorted(added))}"] if added else []
    return ", ".join(parts)


def _shorten(value: object) -> str:
    text = repr(value)
    return text if len(text) <= _SHOWN_CHARACTERS else f"{text[:_SHOWN_CHARACTERS]}..."
