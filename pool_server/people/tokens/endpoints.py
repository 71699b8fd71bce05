"""Addresses of tokens."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Path

from pool_server.errors import TooManyRequestsError
from pool_server.http.error_responses import documented
from pool_server.http.identity import SiteAdmin, needs
from pool_server.http.rate_limits import Limits
from pool_server.http.session import ReadingSession, WritingSession
from pool_server.people.tokens import repository, service
from pool_server.people.tokens.creators import find_creators
from pool_server.wire.people.tokens import TokenCreatedResponse, TokenList, TokenRequest

router = APIRouter(prefix="/tokens", tags=["tokens"], dependencies=[needs("admin")])

TOO_MANY = "tokens and invitations made or revoked with this token"


@router.get("", summary="List the tokens")
def list_tokens(caller: SiteAdmin, session: ReadingSession) -> TokenList:
    """Return one's own site's tokens, newest first, revoked ones too; never a secret.

    For admins of a site; those of the pool get the tokens of all sites.
    """
    found, creators = repository.list_tokens(session, caller), find_creators(session).tokens
    return TokenList(items=[service.describe_token(each, creators.get(each.id)) for each in found])


@router.post(
    "",
    status_code=201,
    summary="Create a token",
    responses=documented(TooManyRequestsError),
)
def create_token(
    caller: SiteAdmin, session: WritingSession, limits: Limits, request: TokenRequest
) -> TokenCreatedResponse:
    """Create a token for a site, or for a user of it. The answer holds the secret, this once.

    For admins of the site. Nobody gives more than they have. What a user's token makes for the
    user's own site is that user's too, and refused when the user is disabled, unless the request
    names another `user`, or says `for_machine`.
    """
    limits.token_acts.take(caller.token_id, TOO_MANY)
    return service.create_token(session, caller, request)


@router.delete(
    "/{token_id}",
    status_code=204,
    summary="Revoke a token",
    responses=documented(TooManyRequestsError),
)
def revoke_token(
    caller: SiteAdmin,
    session: WritingSession,
    limits: Limits,
    token_id: Annotated[
        str,
        Path(
            pattern="^[0-9a-f]{16}$",
            description="Identifier from the list of tokens.",
            examples=["4f1d2c3b4a596877"],
        ),
    ],
) -> None:
    """End a token's validity at once. The pool's last admin token stays. For the site's admins."""
    limits.token_acts.take(caller.token_id, TOO_MANY)
    service.revoke_token(session, caller, token_id)
