"""Inspecting a bundle: its content is listed and verified, without any pool."""

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from aggregators.errors import RecipeError
from aggregators.methods import parse_recipe
from pool_server.wire.bundles import PortableStatement, PortableVersion
from pool_server.wire.merges import recipe_digest
from pool_server.wire.signatures.keys import PublicKey
from pool_server.wire.signatures.statements import differences, open_statement, text_digest
from site_agent.bundles import Bundle, open_bundle
from site_agent.errors import BundleRefusedError
from site_agent.pool import trust
from site_agent.pool.signing import facts_of_version
from site_agent.work import Progress, no_progress

Trust = Literal["", "trusted", "changed", "unknown"]


@dataclass(frozen=True)
class InspectedVersion:
    """One version of a bundle; its record, file and signature agree."""

    address: str
    site: str
    name: str
    version: int
    digest: str
    size_bytes: int
    kind: str
    key_id: str
    origin: str
    """Key and ``SITE@POOL`` of the signer; empty where nobody signed."""
    trust: Trust
    """``trusted`` where this machine knows the key as one of the site that signed, ``changed``
    where it knows others of that site, ``unknown`` where it knows none."""
    revoked_as: str
    parents: tuple[str, ...]
    """Digests."""
    parents_here: int
    evaluations: int


@dataclass(frozen=True)
class BundleReport:
    """The content of a bundle; `identifier` is the SHA-256 of its manifest.

    `versions` has parents before their children.
    """

    path: Path
    identifier: str
    size_bytes: int
    versions: tuple[InspectedVersion, ...]


def inspect_bundle(path: Path, *, progress: Progress | None = None) -> BundleReport:
    """Check a bundle as a whole: structure, digests, signatures, recipes."""
    bundle = open_bundle(path)
    bundle.verify_content(progress or no_progress)
    versions = []
    addresses: set[str] = set()
    used: set[str] = set()
    for span in bundle.records:
        record = bundle.read_record(span)
        if record.address in addresses:
            raise BundleRefusedError(f"{path}: {record.address} is there twice")
        addresses.add(record.address)
        used.add(record.digest)
        key = check_record(bundle, record)
        versions.append(_describe(bundle, record, key))
    # Bytes that no signature covers could be anything, even a program.
    if unused := sorted(set(bundle.blobs) - used):
        raise BundleRefusedError(f"{path}: no record speaks of the file {unused[0]}")
    return BundleReport(path, bundle.identifier, path.stat().st_size, tuple(versions))


def check_record(bundle: Bundle, record: PortableVersion) -> PublicKey | None:
    """Compare a record with its file, its recipe and its signature; return the key that signed."""
    blob = bundle.blobs.get(record.digest)
    if blob is None or blob.member.size_bytes != record.size_bytes:
        raise _wrong(bundle, record, f"its file {record.digest} is missing, or of another size")
    _check_recipe(bundle, record)
    signed = record.statement
    if signed is None:
        return None
    try:
        key = PublicKey.from_text(signed.public_key)
        statement = open_statement(signed.envelope, key)
    except ValueError as error:
        raise _wrong(bundle, record, f"its signature does not hold: {error}") from error
    if signed.origin is None:
        raise _wrong(bundle, record, "it does not name the site and pool that signed it")
    # Nobody can see from here whether the pool that exported it had imported it before.
    facts = facts_of_version(
        record,
        card_digest=text_digest(record.card),
        recipe_digest=None if record.recipe is None else recipe_digest(record.recipe),
    )
    if problems := differences(statement, facts):
        raise _wrong(
            bundle, record, f"its signature is about something else: {'; '.join(problems)}"
        )
    return key


def _check_recipe(bundle: Bundle, record: PortableVersion) -> None:
    if record.recipe is None:
        if record.parents:
            raise _wrong(bundle, record, "it has parents, and no recipe that names them")
        return

    try:
        recipe = parse_recipe(json.dumps(record.recipe))
    except RecipeError as error:
        raise _wrong(bundle, record, str(error)) from error
    made = recipe.output.digest if recipe.output is not None else None
    if made != record.digest:
        raise _wrong(bundle, record, f"its recipe makes {made}")
    inputs = [digest for digest in recipe.input_digests if digest != record.digest]
    if inputs != record.parents:
        raise _wrong(bundle, record, "its parents are not the inputs of its recipe")


def _describe(bundle: Bundle, record: PortableVersion, key: PublicKey | None) -> InspectedVersion:
    signed = record.statement
    names = ("address", "site", "name", "version", "digest", "size_bytes", "kind")
    return InspectedVersion(
        **{name: getattr(record, name) for name in names},
        key_id="" if key is None else key.key_id,
        origin=(signed.origin or "") if signed is not None else "",
        trust=_trust(key, signed),
        revoked_as=(signed.revoked_as or "") if signed is not None else "",
        parents=tuple(record.parents),
        parents_here=sum(parent in bundle.blobs for parent in record.parents),
        evaluations=len(record.evaluations),
    )


def _trust(key: PublicKey | None, signed: PortableStatement | None) -> Trust:
    if key is None or signed is None:
        return ""
    site, _, pool = (signed.origin or "").partition("@")
    known = trust.trusted_keys(pool, site)
    if not known:
        return "unknown"
    return "trusted" if key.key_id in known else "changed"


def _wrong(bundle: Bundle, record: PortableVersion, why: str) -> BundleRefusedError:
    return BundleRefusedError(
        f"{bundle.path}: {record.address}: {why}", hint="nothing of this bundle should be used"
    )
