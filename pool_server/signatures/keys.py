"""Keys of sites, and their routes: registered with a proof, imported with models, revoked.

Registration requires proof of the private half: the caller signs a challenge. Challenges are not
stored: each carries a code made with the hash of the caller's own token, so that any process of the
pool can verify that the pool issued it to this caller, for this site and key.
"""

import base64
import binascii
import hashlib
import hmac
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from typing import Annotated

from fastapi import APIRouter, Path, Response
from sqlalchemy import select
from sqlalchemy.orm import Session, contains_eager, joinedload

from pool_server.activity.events import write_event
from pool_server.database import engine, records
from pool_server.errors import KeyRefusedError, MissingError
from pool_server.http.audit import record_act
from pool_server.http.identity import Caller, SignedIn, Uploader, needs
from pool_server.http.parameters import SiteName, describe
from pool_server.http.session import Parts, ReadingSession, WritingSession
from pool_server.people.sites import get_site
from pool_server.wire import signatures
from pool_server.wire.names import DIGEST_PATTERN
from pool_server.wire.signatures.keys import PublicKey, pae
from pool_server.wire.signatures.statements import Revocation

CHALLENGE_LIFETIME = timedelta(minutes=10)
MOST_KEYS_PER_SITE = 200
COMPROMISED: Revocation = "compromised"

router = APIRouter(prefix="/sites/{site}/keys", tags=["signatures"])

KeyId = Annotated[str, Path(pattern=DIGEST_PATTERN, description="SHA-256 of the raw public key.")]


def describe_key(key: records.SiteKeyRecord) -> signatures.KeyResponse:
    """Return a key, loaded with its site, as clients see it."""
    return describe(
        signatures.KeyResponse,
        key,
        site=key.site.name,
        key_id=key.id,
        origin=key.origin or None,
        revoked_as=key.revocation or None,
    )


@router.get("", dependencies=[needs()], summary="List a site's keys")
def show_keys(_caller: SignedIn, session: ReadingSession, site: SiteName) -> signatures.KeyList:
    """Return all keys of a site, revoked and imported ones too, oldest first."""
    site_keys = list_keys(session, get_site(session, site).id)
    return signatures.KeyList(items=[describe_key(key) for key in site_keys])


@router.post("/challenge", dependencies=[needs("keys")], summary="Request a challenge")
def challenge(
    caller: Uploader,
    parts: Parts,
    session: ReadingSession,
    site: SiteName,
    request: signatures.ChallengeRequest,
) -> signatures.ChallengeResponse:
    """Return a challenge; its signature proves that the caller holds the private key."""
    caller.require_role(parts.settings.key_role, site)
    get_site(session, site)
    key = read_key(request.public_key)
    expires_at = records.now_utc().replace(microsecond=0) + CHALLENGE_LIFETIME
    start = f"{signatures.CHALLENGE_START} {site} {key.key_id} {int(expires_at.timestamp())}"
    return signatures.ChallengeResponse(
        challenge=f"{start} {_code_of(session, caller, start)}", expires_at=expires_at
    )


@router.post("", dependencies=[needs("keys")], status_code=201, summary="Register a key")
def register_key(  # noqa: PLR0917 - FastAPI gives them by name
    caller: Uploader,
    parts: Parts,
    session: WritingSession,
    site: SiteName,
    request: signatures.KeyRequest,
    response: Response,
) -> signatures.KeyResponse:
    """Register a signing key of the site; its other keys stay valid."""
    caller.require_role(parts.settings.key_role, site)
    home = get_site(session, site)
    key = read_key(request.public_key)
    _require_proof(session, caller, site, key, request)
    lock_keys(session, home.id)
    known = find_key(session, home.id, key.key_id)
    if known is not None and known.revoked_at is not None:
        raise KeyRefusedError(
            f"key {key.key_id[:16]}... was revoked on {known.revoked_at:%Y-%m-%d}",
            hint="Create a new one: `poolctl keys create --force`.",
        )
    if known is not None and not known.origin:
        response.status_code = 200
        return describe_key(known)
    if known is None:
        known = _add_key(session, caller, home, request.name, key)
    known.origin, known.name = "", request.name
    known.created_at, known.created_by = records.now_utc(), caller.name
    record_act(session, caller, "key.register", site, key_id=key.key_id, name=request.name)
    session.flush()
    write_event(session, home.id, "key.registered", key.key_id, name=request.name, by=caller.name)
    return describe_key(known)


def import_key(
    session: Session,
    caller: Caller,
    site: records.SiteRecord,
    foreign: signatures.ForeignKey,
    key: PublicKey,
) -> records.SiteKeyRecord:
    """Store the key of a statement that was signed for another pool."""
    lock_keys(session, site.id)
    known = find_key(session, site.id, key.key_id)
    if known is not None:
        return known
    origin = foreign.origin
    added = _add_key(session, caller, site, foreign.name, key)
    added.origin = origin
    record_act(session, caller, "key.import", site.name, key_id=key.key_id, origin=origin)
    session.flush()
    write_event(session, site.id, "key.imported", key.key_id, origin=origin, by=added.created_by)
    return added


@router.post("/{key_id}/revoke", dependencies=[needs("keys")], summary="Revoke a key")
def revoke_key(
    caller: Uploader,
    session: WritingSession,
    site: SiteName,
    key_id: KeyId,
    request: signatures.KeyRevocationRequest,
) -> signatures.KeyResponse:
    """Revoke a key for ever. A superseded key may later be declared compromised."""
    caller.require_role("contributor", site)
    home = get_site(session, site)
    lock_keys(session, home.id)
    key = find_key(session, home.id, key_id)
    if key is None:
        raise MissingError(
            f"site {site!r} has no key {key_id[:16]}...",
            code="key_not_found",
            hint=f"`poolctl keys ls {site}` lists them.",
        )
    if key.revocation in {request.reason, COMPROMISED}:
        return describe_key(key)
    key.revoked_at = key.revoked_at or records.now_utc()
    key.revocation = request.reason
    record_act(session, caller, "key.revoke", site, key_id=key.id, reason=request.reason)
    session.flush()
    write_event(session, home.id, "key.revoked", key.id, reason=request.reason)
    return describe_key(key)


def read_key(text: str) -> PublicKey:
    """Read a public key."""
    try:
        return PublicKey.from_text(text)
    except ValueError as error:
        raise KeyRefusedError(str(error)) from error


def _add_key(
    session: Session, caller: Caller, site: records.SiteRecord, name: str, key: PublicKey
) -> records.SiteKeyRecord:
    if engine.count_rows(session, records.SiteKeyRecord.site_id == site.id) >= MOST_KEYS_PER_SITE:
        raise KeyRefusedError(f"site {site.name!r} has {MOST_KEYS_PER_SITE} keys, the maximum")
    record = records.SiteKeyRecord(
        site_id=site.id,
        site=site,
        id=key.key_id,
        name=name,
        public_key=key.text,
        origin="",
        created_by=caller.name,
        revocation="",
    )
    session.add(record)
    session.flush()
    return record


def _require_proof(
    session: Session, caller: Caller, site: str, key: PublicKey, request: signatures.KeyRequest
) -> None:
    start, _, code = request.challenge.rpartition(" ")
    hint = "Request a new one: `poolctl keys create` does all of it."
    expected = _code_of(session, caller, start)
    if not hmac.compare_digest(code.encode(), expected.encode()):
        raise KeyRefusedError("Invalid challenge: not issued by this pool to this token", hint=hint)
    # The code matches, so the pool wrote the text and it has four parts.
    _, for_site, for_key, expires = start.split(" ")
    if (for_site, for_key) != (site, key.key_id):
        raise KeyRefusedError("the challenge is for another site or key", hint=hint)
    if datetime.fromtimestamp(int(expires), UTC) < records.now_utc():
        raise KeyRefusedError("the challenge has expired", hint=hint)
    try:
        signature = base64.b64decode(request.signature, validate=True)
    except (binascii.Error, ValueError):
        signature = b""
    if not key.verifies(signature, pae(signatures.CHALLENGE_TYPE, request.challenge.encode())):
        raise KeyRefusedError(
            "the challenge was not signed with the private half of this key",
            hint="Sign it as the body of a DSSE envelope, or use `poolctl keys create`.",
        )


def _code_of(session: Session, caller: Caller, challenge_text: str) -> str:
    token = session.get_one(records.TokenRecord, caller.token_id)
    return hmac.new(
        bytes.fromhex(token.secret_hash), challenge_text.encode(), hashlib.sha256
    ).hexdigest()


def list_keys(session: Session, site_id: int) -> Sequence[records.SiteKeyRecord]:
    """Return the current keys of a site, its own and imported ones, oldest first."""
    return session.scalars(
        select(records.SiteKeyRecord)
        .join(records.SiteKeyRecord.site)
        .options(contains_eager(records.SiteKeyRecord.site))
        .where(records.SiteKeyRecord.site_id == site_id)
        .order_by(records.SiteKeyRecord.created_at, records.SiteKeyRecord.id)
        .execution_options(populate_existing=True)
    ).all()


def has_valid_key(session: Session, site_id: int) -> bool:
    """Return whether a site signs its versions: readers then refuse those without a signature."""
    is_own = (records.SiteKeyRecord.origin == "", records.SiteKeyRecord.revoked_at.is_(None))
    keys = select(records.SiteKeyRecord.id).where(records.SiteKeyRecord.site_id == site_id, *is_own)
    return session.scalar(keys.limit(1)) is not None


def find_key(session: Session, site_id: int, key_id: str) -> records.SiteKeyRecord | None:
    return session.scalar(
        select(records.SiteKeyRecord)
        .join(records.SiteKeyRecord.site)
        .options(contains_eager(records.SiteKeyRecord.site))
        .where(records.SiteKeyRecord.site_id == site_id, records.SiteKeyRecord.id == key_id)
    )


def lock_keys(session: Session, site_id: int) -> None:
    """Lock a site's keys, so that one transaction at a time changes or relies on them."""
    session.execute(
        select(records.SiteRecord.id)
        .where(records.SiteRecord.id == site_id)
        .with_for_update(key_share=True)
    )


def find_statement(session: Session, version_id: int) -> records.StatementRecord | None:
    """Return the statement of a version with its key and the key's site."""
    return session.scalar(
        select(records.StatementRecord)
        .options(joinedload(records.StatementRecord.key).joinedload(records.SiteKeyRecord.site))
        .where(records.StatementRecord.version_id == version_id)
    )
