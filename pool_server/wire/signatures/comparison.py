"""The one comparison of a signed statement with the version that it is about.

Every signature of a model version goes through `differences`, in the pool and at the sites:

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
"""

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime

from pool_server.wire.data_use_rules import PERMISSIVE
from pool_server.wire.signatures.statements import ModelPredicate, StatedTerm, Statement

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
