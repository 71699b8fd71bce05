"""Importing a release into a pool: nothing is sent before all of it was checked."""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from aggregators.errors import RecipeError
from aggregators.formats import file_digest
from aggregators.methods import parse_recipe
from pool_server.wire.data_use import Term
from pool_server.wire.exports import PortableStatement, PortableVersion
from pool_server.wire.merges import recipe_digest
from pool_server.wire.models import Visibility
from pool_server.wire.signatures import ForeignKey, SignedStatement
from pool_server.wire.signatures.keys import PublicKey, readable_fingerprint
from pool_server.wire.signatures.statements import differences, open_statement, text_digest
from pool_server.wire.uploads import UploadRequest
from site_agent.errors import ForbiddenError, NotFoundError, ReleaseRefusedError, SignatureError
from site_agent.pool import trust
from site_agent.pool.requests import build_request
from site_agent.pool.signing import facts_of_version
from site_agent.pool.verification import SignaturePolicy
from site_agent.work import no_progress

if TYPE_CHECKING:
    from site_agent.pool.client import PoolClient


@dataclass(frozen=True)
class ImportedVersion:
    """A version after the import: its address in the pool it comes from, and now.

    `address` has no number where it was not sent (`dry_run`). `was_there`: the pool had it already.
    """

    source: str
    address: str
    digest: str
    was_there: bool
    sent_bytes: int
    signed: bool


def import_version(
    pool: "PoolClient",
    record: PortableVersion,
    file: Path,
    *,
    site_map: Mapping[str, str] | None = None,
    visibility: Visibility | None = None,
    dry_run: bool = False,
) -> ImportedVersion:
    """Import a version under its name, with all that came with it.

    A version that the pool has stays as it is, so an interrupted or repeated import continues where
    it stopped. The pool numbers the version again.

    `site_map` names, by the site of the record, the site of this pool that gets the model; without
    it the site keeps its name. The site must exist. `visibility` is as this pool's settings say
    when None.

    Raises, before anything is sent, `ReleaseRefusedError`: record, file, recipe and signature
    contradict each other. `SignatureError`: the model is not signed, and ``POOL_SIGNATURES``
    requires it. `ForbiddenError`: the site is missing here, or the user may not upload to it.
    """
    key = check_record(record, file)
    _require_trustworthy(record, key, pool.signatures.policy)
    site = _require_target(pool, record, site_map or {})
    target = f"pool://{site}/{record.name}"
    if dry_run:
        return ImportedVersion(
            record.address, target, record.digest, False, 0, record.statement is not None
        )
    was_there = _has(pool, f"{site}/{record.name}@sha256:{record.digest}")
    uploaded = pool.send_announced(file, _request(record, site, visibility), no_progress)
    version = uploaded.version
    return ImportedVersion(
        source=record.address,
        address=version.address,
        digest=version.digest,
        was_there=was_there,
        sent_bytes=uploaded.sent_bytes,
        signed=version.signed_by is not None,
    )


def check_record(record: PortableVersion, file: Path) -> PublicKey | None:
    """Compare a record with its file, its recipe and its signature; return the key that signed."""
    if file.stat().st_size != record.size_bytes or file_digest(file) != record.digest:
        raise _wrong(record, f"its file does not have the digest {record.digest}")
    _check_recipe(record)
    signed = record.statement
    if signed is None:
        return None
    try:
        key = PublicKey.from_text(signed.public_key)
        statement = open_statement(signed.envelope, key)
    except ValueError as error:
        raise _wrong(record, f"its signature does not hold: {error}") from error
    if signed.origin is None:
        raise _wrong(record, "it does not name the site and pool that signed it")
    # Nobody can see from here whether the pool that exported it had imported it before.
    facts = facts_of_version(
        record,
        card_digest=text_digest(record.card),
        recipe_digest=None if record.recipe is None else recipe_digest(record.recipe),
    )
    if problems := differences(statement, facts):
        raise _wrong(record, f"its signature is about something else: {'; '.join(problems)}")
    return key


def _check_recipe(record: PortableVersion) -> None:
    if record.recipe is None:
        if record.parents:
            raise _wrong(record, "it has parents, and no recipe that names them")
        return
    try:
        recipe = parse_recipe(json.dumps(record.recipe))
    except RecipeError as error:
        raise _wrong(record, str(error)) from error
    made = recipe.output.digest if recipe.output is not None else None
    if made != record.digest:
        raise _wrong(record, f"its recipe makes {made}")
    inputs = [digest for digest in recipe.input_digests if digest != record.digest]
    if inputs != record.parents:
        raise _wrong(record, "its parents are not the inputs of its recipe")


def _wrong(record: PortableVersion, why: str) -> ReleaseRefusedError:
    return ReleaseRefusedError(
        f"{record.address}: {why}", hint="nothing of this export should be used"
    )


def _has(pool: "PoolClient", address: str) -> bool:
    try:
        pool.version(address)
    except NotFoundError:
        return False
    return True


def _request(record: PortableVersion, site: str, visibility: Visibility | None) -> UploadRequest:
    names = set(UploadRequest.model_fields) & set(PortableVersion.model_fields)
    kept = record.model_dump(include=names - {"site", "terms", "statement"})
    return build_request(
        UploadRequest,
        **kept,
        site=site,
        # The pool need not have the parents, so the version brings what it inherited.
        terms=[Term(code=term.code, detail=term.detail) for term in record.terms],
        statement=_signed(record.statement),
        visibility=visibility,
        # Versions made from withdrawn ones arrive flagged.
        despite_withdrawal=True,
    )


def _signed(statement: PortableStatement | None) -> SignedStatement | None:
    if statement is None or statement.origin is None:
        return None
    key = ForeignKey(
        origin=statement.origin, name=statement.key_name, public_key=statement.public_key
    )
    return SignedStatement(envelope=statement.envelope, foreign_key=key)


def _require_trustworthy(
    record: PortableVersion, key: PublicKey | None, policy: SignaturePolicy
) -> None:
    signed = record.statement
    if key is None or signed is None:
        if policy == "require":
            raise SignatureError(
                f"{record.address}: is not signed",
                hint="have it signed and exported again; to import it unsigned: "
                "POOL_SIGNATURES=check",
                code="signature_missing",
            )
        return
    if signed.revoked_as == "compromised":
        raise ReleaseRefusedError(
            f"{record.address}: signed with key {key.key_id[:16]}..., which {signed.origin} "
            "declared compromised",
            hint="have it signed with another key and exported again",
        )
    site, _, pool = (signed.origin or "").partition("@")
    known = trust.trusted_keys(pool, site)
    if known and key.key_id not in known:
        raise SignatureError(
            f"{record.address}: signed with key {readable_fingerprint(key.key_id)}, which is not "
            f"one that this machine trusts for {signed.origin}",
            hint=f"ask {site} for the fingerprint of its key; if it is this one, forget the "
            f"old one with the login of {pool}: poolctl keys trust {site} --remove",
            code="key_not_trusted",
        )


def _require_target(
    pool: "PoolClient", record: PortableVersion, site_map: Mapping[str, str]
) -> str:
    """Return the site here for the site of the record."""
    if unknown := sorted(set(site_map) - {record.site}):
        raise ForbiddenError(
            f"the export has no model of site {unknown[0]!r}; its model is of {record.site}"
        )
    site = site_map.get(record.site, record.site)
    if site not in {known.name for known in pool.sites.list()}:
        raise ForbiddenError(
            f"{pool.endpoint} has no site {site}",
            hint=f"an admin creates it (poolctl admin sites create {site}), or put the model under "
            f"another: --site-map {record.site}=SITE",
        )
    who = pool.whoami()
    if who.role == "viewer" or (site != who.site and not who.pool_wide):
        raise ForbiddenError(
            f"{who.site}/{who.token_name} ({who.role}) may not upload to {site}",
            hint="import as an admin of the pool, or put the model under your own site: "
            f"--site-map {record.site}={who.site}",
        )
    return site
