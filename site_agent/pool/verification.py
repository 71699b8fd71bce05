"""Verification: a version is used only if its site signed the pool's record of it.

A malicious or compromised pool cannot pass a file off as one of a site, nor change its
labels, metrics, terms, card, recipe or parents, because it cannot sign with the site's key; and it
cannot come with a key of its own, because the site's keys were pinned when first met
(`site_agent.pool.trust`). It can keep back newer versions; it can give one version of a
model the number of another, because numbers are not signed; and it can call a version older than
it is: a version without a signature that claims to be from before the site signed anything is only
warned of.

Steps: find the statement (kept on this machine, or asked for); find a key that is trusted to sign
for the site; open the statement with it; fetch the card and the recipe that were signed; compare
everything (`pool_server.wire.signatures.statements`); pin keys that are new; keep the statement.
"""

import os
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any, Literal, Protocol

from pydantic import ValidationError

from aggregators.whole_file import write_whole
from pool_server.wire.merges import recipe_digest
from pool_server.wire.models import ModelVersionResponse
from pool_server.wire.signatures import KeyResponse, StatementResponse, statements
from pool_server.wire.signatures.keys import PublicKey, readable_fingerprint
from site_agent.errors import InvalidInputError, SignatureError
from site_agent.pool import trust
from site_agent.pool.cache import ModelCache
from site_agent.pool.signing import facts_of_version

SignaturePolicy = Literal["check", "require", "ignore"]
POLICIES: tuple[SignaturePolicy, ...] = ("check", "require", "ignore")
"""``check``: signatures must hold, and a site that signs must go on signing; ``require``:
everything must be signed; ``ignore``: nothing is checked."""


@dataclass(frozen=True)
class Verification:
    """The outcome of verifying a version."""

    status: Literal["verified", "unsigned", "unchecked"]
    key_id: str = ""
    """Empty without a signature."""
    origin: str = ""
    """``SITE@POOL`` of an imported version."""
    note: str = ""
    """A notice to show once: a key was met for the first time."""
    warning: str = ""
    """A notice to show always."""

    @property
    def words(self) -> str:
        """The finding in a few words."""
        if self.status != "verified":
            return self.status
        by = f" by {self.origin}" if self.origin else ""
        return f"signed{by} with {self.key_id[:16]}"


def chosen_policy() -> SignaturePolicy:
    """Return the mode in ``POOL_SIGNATURES``; ``check`` by default."""
    word = os.environ.get("POOL_SIGNATURES", "").strip().lower() or "check"
    if word not in POLICIES:
        raise InvalidInputError(f"POOL_SIGNATURES={word!r}: expected one of {', '.join(POLICIES)}")
    return word


class StatementSource(Protocol):
    """The pool's requests for verifying a version."""

    def statement(self, version: ModelVersionResponse) -> StatementResponse:
        """Return the signed statement, unverified."""

    def keys(self, site: str) -> list[KeyResponse]:
        """Return the keys of a site."""

    def card(self, version: ModelVersionResponse) -> str:
        """Return the card as its site wrote it; empty where it wrote none."""

    def recipe(self, version: ModelVersionResponse) -> Mapping[str, Any] | None:
        """Return the recipe of a merged version."""


@dataclass(frozen=True)
class Verifier:
    """Checks versions of one pool, at a host and port (`profiles.host_of`).

    Statements are kept in the cache's folder, so that a known one needs no request. `source` is the
    pool; None while offline.
    """

    pool: str
    policy: SignaturePolicy
    cache: ModelCache
    source: StatementSource | None

    def verify(
        self,
        version: ModelVersionResponse,
        *,
        pin: bool = True,
        may_be_unsigned: bool = False,
        card: str | None = None,
        recipe: Mapping[str, Any] | None = None,
    ) -> Verification:
        """Check the signature of a version; the `code` of a `SignatureError` tells the fault.

        With `pin`, keys that are met for the first time are remembered. With `may_be_unsigned`, a
        missing signature is refused only where everything must be signed. `card` and `recipe` are
        the pool's; they are fetched if they are needed and None.
        """
        if self.policy == "ignore":
            return Verification("unchecked")
        pinned = trust.trusted_keys(self.pool, version.site)
        summary = version.signed_by
        if summary is None:
            known_keys = {} if may_be_unsigned else pinned
            return self._judge_unsigned(version, known_keys)
        _require_valid(version, summary)
        kept = self._kept_statement(version, summary)
        answer = kept
        if answer is None and self.source is not None:
            answer = self.source.statement(version)
        if answer is None:
            if self.policy == "require":
                raise SignatureError(
                    f"{version.address}: its statement is not on this machine, and POOL_OFFLINE "
                    "is set",
                    code="signature_missing",
                )
            return Verification(
                "unchecked", warning=f"{version.address}: its signature cannot be checked offline"
            )
        known = pinned.get(summary.key_id)
        if known is None and pinned:
            raise self._untrusted(version, answer.key)
        if known is not None and known.origin != (summary.origin or ""):
            raise SignatureError(
                f"{version.address}: key {summary.key_id[:16]}... is trusted for "
                f"{known.origin or version.site}, and here it signs for "
                f"{summary.origin or version.site}"
            )
        # The pinned key itself, not what the pool gives under its identifier.
        key = known.public if known is not None else _key_of(version, summary, answer)
        statement = _open(version, answer, key)
        # Compared files are not fetched again: only this machine can change the cache.
        agreed = statement.predicate if kept is not None else None
        facts = facts_of_version(
            version,
            card_digest=self._card_digest(version, card, agreed),
            recipe_digest=self._recipe_digest(version, recipe, agreed),
        )
        if problems := statements.differences(statement, facts):
            raise SignatureError(
                f"{version.address}: the pool shows something else than the site signed: "
                f"{'; '.join(problems)}",
                hint="do not use this version; notify the site and the pool's admin",
            )
        # Only now: nobody is trusted on the strength of a statement that does not hold.
        note = ""
        if known is None:
            note = self._pin(version, answer.key) if pin else "its key was never met before"
        self._remember(version, answer)
        return Verification("verified", summary.key_id, summary.origin or "", note)

    def _judge_unsigned(
        self, version: ModelVersionResponse, pinned: dict[str, trust.TrustedKey]
    ) -> Verification:
        direct_keys = [item for item in pinned.values() if not item.origin]
        signs_since = min(
            (datetime.fromisoformat(item.registered_at) for item in direct_keys), default=None
        )
        hint = (
            f"the site can still sign it (poolctl models sign {version.site}/{version.name}"
            f"@{version.version}); to use it anyway: POOL_SIGNATURES=ignore"
        )
        if self.policy == "require":
            raise SignatureError(
                f"{version.address}: is not signed", hint=hint, code="signature_missing"
            )
        if signs_since is None:
            return Verification("unsigned")
        # The pool could simply leave the signature out.
        if version.created_at >= signs_since:
            raise SignatureError(
                f"{version.address}: is not signed, although {version.site} has signed its "
                f"versions since {signs_since:%Y-%m-%d}; somebody may have put another file in "
                "its place",
                hint=hint,
                code="signature_missing",
            )
        return Verification(
            "unsigned",
            warning=f"{version.address}: is not signed; the pool says that it is from before "
            f"{version.site} signed anything",
        )

    def _kept_statement(
        self, version: ModelVersionResponse, summary: statements.SignatureSummary
    ) -> StatementResponse | None:
        """Return the statement that an earlier verification kept, if it is still the one."""
        try:
            kept = StatementResponse.model_validate_json(self._file(version).read_bytes())
        except (OSError, ValidationError):
            return None
        # A version is signed again when its labels or its card are corrected.
        is_meant = (kept.key.key_id, kept.accepted_at) == (summary.key_id, summary.accepted_at)
        return kept if is_meant else None

    def _card_digest(
        self,
        version: ModelVersionResponse,
        card: str | None,
        agreed: statements.ModelPredicate | None,
    ) -> str | None:
        if card is not None:
            return statements.text_digest(card)
        if not version.has_card:
            return None
        if agreed is not None or self.source is None:
            return None if agreed is None else agreed.card_digest
        return statements.text_digest(self.source.card(version))

    def _recipe_digest(
        self,
        version: ModelVersionResponse,
        recipe: Mapping[str, Any] | None,
        agreed: statements.ModelPredicate | None,
    ) -> str | None:
        if recipe is None and not version.has_recipe:
            return None
        if recipe is None and agreed is not None:
            return agreed.recipe_digest
        if recipe is None and self.source is not None:
            recipe = self.source.recipe(version)
        return None if recipe is None else recipe_digest(recipe)

    def _remember(self, version: ModelVersionResponse, answer: StatementResponse) -> None:
        path = self._file(version)
        if path.exists() and path.read_text(encoding="utf-8") == answer.model_dump_json():
            return
        path.parent.mkdir(parents=True, exist_ok=True)
        write_whole(path, answer.model_dump_json())

    def _file(self, version: ModelVersionResponse) -> Path:
        place = self.cache.folder / "verified" / self.pool / version.site / version.name
        return place / f"{version.digest}.json"

    def _pin(self, version: ModelVersionResponse, key: KeyResponse) -> str:
        """Pin the keys of an unknown site; return a notice about it.

        The site's other valid keys are pinned with this one, on the same trust: otherwise a site
        with several keys would seem to have changed its key at the next version.
        """
        keys = [key]
        if self.source is not None:
            keys += [
                key
                for key in self.source.keys(version.site)
                if not key.origin and key.revoked_as != "compromised"
            ]
        trust.trust_keys(self.pool, version.site, keys, "first use")
        elsewhere = [
            f"{site} at {pool}"
            for pool, site, entry in trust.all_trusted_keys()
            if entry.key_id == key.key_id and (pool, site) != (self.pool, version.site)
        ]
        where = f" (imported from {key.origin})" if key.origin else ""
        again = f"; it is also the key of {elsewhere[0]}" if elsewhere else ""
        return (
            f"{version.site} signs with key {readable_fingerprint(key.key_id)}{where}: met for "
            f"the first time and trusted from now on{again}. Best ask {version.site} whether it "
            "is theirs"
        )

    def _untrusted(self, version: ModelVersionResponse, key: KeyResponse) -> SignatureError:
        where = f", imported from {key.origin}," if key.origin else ""
        return SignatureError(
            f"{version.address}: signed with key {readable_fingerprint(key.key_id)}{where} which "
            f"is not a known key of {version.site}; the site may have a new one, or somebody "
            "else may have signed",
            hint=f"ask {version.site} for the fingerprint of its key; if it is this one: "
            f"poolctl keys trust {version.site} {key.key_id[:16]}",
            code="key_not_trusted",
        )


def _require_valid(version: ModelVersionResponse, summary: statements.SignatureSummary) -> None:
    if summary.revoked_at is None:
        return
    if summary.revoked_as == "compromised":
        raise SignatureError(
            f"{version.address}: signed with key {summary.key_id[:16]}..., which {version.site} "
            f"declared compromised on {summary.revoked_at:%Y-%m-%d}: anybody may have signed it",
            hint=f"{version.site} can sign it again: poolctl models sign "
            f"{version.site}/{version.name}@{version.version}",
        )
    if summary.accepted_at > summary.revoked_at:
        raise SignatureError(
            f"{version.address}: signed on {summary.accepted_at:%Y-%m-%d} with key "
            f"{summary.key_id[:16]}..., which was retired on {summary.revoked_at:%Y-%m-%d}"
        )


def _key_of(
    version: ModelVersionResponse, summary: statements.SignatureSummary, answer: StatementResponse
) -> PublicKey:
    try:
        key = PublicKey.from_text(answer.key.public_key)
    except ValueError as error:
        raise SignatureError(f"{version.address}: {error}") from error
    if not key.key_id == answer.key.key_id == summary.key_id:
        raise SignatureError(
            f"{version.address}: the pool names key {summary.key_id[:16]}... and gives "
            f"{key.key_id[:16]}..."
        )
    return key


def _open(
    version: ModelVersionResponse, answer: StatementResponse, key: PublicKey
) -> statements.Statement:
    try:
        return statements.open_statement(answer.envelope, key)
    except ValueError as error:
        raise SignatureError(
            f"{version.address}: {error}",
            hint="do not use this version; notify the site and the pool's admin",
        ) from error
