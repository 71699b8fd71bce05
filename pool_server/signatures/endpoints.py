"""Addresses of sites' keys and of signed statements."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Path, Response
from sqlalchemy.orm import Session

from pool_server.database.engine import write_with_retry
from pool_server.errors import MissingError
from pool_server.http.identity import SignedIn, Uploader, needs
from pool_server.http.parameters import ModelName, Reference, SiteName
from pool_server.http.session import Parts, ReadingSession
from pool_server.people.sites import get_site
from pool_server.registry.service import VersionToRead, resolve_version
from pool_server.registry.withdrawal_status import subject_of
from pool_server.signatures import keys, statements
from pool_server.wire.names import DIGEST_PATTERN
from pool_server.wire.signatures.signatures import (
    ChallengeRequest,
    ChallengeResponse,
    KeyList,
    KeyRequest,
    KeyResponse,
    KeyRevocationRequest,
    SignedStatement,
    StatementResponse,
)

router = APIRouter(tags=["signatures"])

KeyId = Annotated[
    str,
    Path(
        pattern=DIGEST_PATTERN,
        description="SHA-256 of the raw public key.",
        examples=["21fe31dfa154a261626bf854046fd2271b7bed4b6abe45aa58877ef47f9721b9"],
    ),
]


@router.get("/sites/{site}/keys", dependencies=[needs()], summary="List a site's keys")
def list_keys(_caller: SignedIn, session: ReadingSession, site: SiteName) -> KeyList:
    """Return all keys of a site, revoked and imported ones too, oldest first."""
    found = keys.list_keys(session, get_site(session, site).id)
    return KeyList(items=[keys.describe_key(each) for each in found])


@router.post(
    "/sites/{site}/keys/challenge",
    dependencies=[needs("keys")],
    summary="Ask for something to sign",
)
def challenge(
    caller: Uploader,
    parts: Parts,
    session: ReadingSession,
    site: SiteName,
    request: ChallengeRequest,
) -> ChallengeResponse:
    """Return a challenge: a signature of it with the key proves that the caller holds the key."""
    caller.require_role(parts.settings.key_role, site)
    get_site(session, site)
    return keys.make_challenge(session, caller, site, keys.read_key(request.public_key))


@router.post(
    "/sites/{site}/keys",
    dependencies=[needs("keys")],
    status_code=201,
    summary="Register a key",
    responses={200: {"model": KeyResponse, "description": "The key is registered already."}},
)
def register_key(
    caller: Uploader, parts: Parts, site: SiteName, request: KeyRequest, response: Response
) -> KeyResponse:
    """Register a key with which the site signs from now on; its other keys stay valid."""
    role = parts.settings.key_role
    answer, is_new = write_with_retry(
        parts.database, lambda session: keys.register_key(session, caller, role, site, request)
    )
    if not is_new:
        response.status_code = 200
    return answer


@router.post(
    "/sites/{site}/keys/{key_id}/revoke", dependencies=[needs("keys")], summary="Revoke a key"
)
def revoke_key(
    caller: Uploader, parts: Parts, site: SiteName, key_id: KeyId, request: KeyRevocationRequest
) -> KeyResponse:
    """End a key. A superseded key may still be called compromised; nothing makes it valid again."""
    return write_with_retry(
        parts.database,
        lambda session: keys.revoke_key(session, caller, site, key_id, request.reason),
    )


@router.get(
    "/models/{site}/{name}/versions/{reference}/statement",
    dependencies=[needs("models:read")],
    summary="Get the signed statement of a version",
)
def get_statement(session: ReadingSession, version: VersionToRead) -> StatementResponse:
    """Return what the site signed of a version, and the key to check it with.

    Whether the key is to be trusted, the reader decides: `poolctl` remembers the keys that it met
    first, and refuses others.
    """
    found = keys.find_statement(session, version.id)
    if found is None:
        raise MissingError(
            f"{subject_of(version)} is not signed",
            code="statement_not_found",
            hint=f"{version.model.site.name} can still do so: "
            f"`poolctl keys sign {subject_of(version)}`.",
        )
    return statements.describe_statement(version, found)


@router.put(
    "/models/{site}/{name}/versions/{reference}/statement",
    dependencies=[needs("models:write")],
    summary="Sign a version that is there",
)
def add_statement(  # noqa: PLR0917 - FastAPI gives them by name
    caller: Uploader,
    parts: Parts,
    site: SiteName,
    name: ModelName,
    reference: Reference,
    request: SignedStatement,
) -> StatementResponse:
    """Add a statement to a version without one, or with one by a key that was revoked.

    For versions from before the site had a key, and for those that the pool made itself.
    """

    def act(session: Session) -> StatementResponse:
        version = resolve_version(session, caller, site, name, reference)
        return statements.add_statement(session, caller, version, request)

    return write_with_retry(parts.database, act)
