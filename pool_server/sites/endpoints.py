"""Addresses of sites, tokens and identity."""

from __future__ import annotations

from importlib.metadata import PackageNotFoundError, version
from typing import Annotated

from fastapi import APIRouter, Path

from pool_server.errors import (
    LastAdminError,
    NotAllowedError,
    NotAuthenticatedError,
    SiteExistsError,
    SiteNotFoundError,
    TokenExistsError,
    TokenNotFoundError,
)
from pool_server.http.error_responses import documented
from pool_server.http.identity import Administrator, SignedIn
from pool_server.http.scopes import needs
from pool_server.http.session import ReadingSession, WritingSession
from pool_server.sites import repository, service
from pool_server.wire.sites import (
    IdentityResponse,
    SiteList,
    SiteRequest,
    SiteResponse,
    TokenCreatedResponse,
    TokenList,
    TokenRequest,
)

router = APIRouter()


def pool_version() -> str:
    """Return the version of the installed program."""
    try:
        return version("poolctl")
    except PackageNotFoundError:
        return "0+unknown"


@router.get(
    "/whoami",
    tags=["sites"],
    dependencies=[needs()],
    summary="Tell who I am",
    responses=documented(NotAuthenticatedError),
)
def whoami(caller: SignedIn) -> IdentityResponse:
    """Return site, name, role and expiry of the token sent, and the pool's version."""
    return IdentityResponse(
        site=caller.site,
        token_name=caller.token_name,
        role=caller.role,
        expires_at=caller.expires_at,
        pool_version=pool_version(),
    )


@router.get(
    "/sites",
    tags=["sites"],
    dependencies=[needs()],
    summary="List the sites",
    responses=documented(NotAuthenticatedError),
)
def list_sites(_caller: SignedIn, session: ReadingSession) -> SiteList:
    """Return all sites of the pool by name."""
    return SiteList(items=[service.describe_site(each) for each in repository.list_sites(session)])


@router.post(
    "/sites",
    status_code=201,
    tags=["sites"],
    dependencies=[needs("admin")],
    summary="Create a site",
    responses=documented(NotAuthenticatedError, NotAllowedError, SiteExistsError),
)
def create_site(
    caller: Administrator, session: WritingSession, request: SiteRequest
) -> SiteResponse:
    """Create a site. Its name begins the addresses of its models and never changes. Admins only."""
    return service.create_site(session, caller, request)


@router.get(
    "/tokens",
    tags=["tokens"],
    dependencies=[needs("admin")],
    summary="List the tokens",
    responses=documented(NotAuthenticatedError, NotAllowedError),
)
def list_tokens(_caller: Administrator, session: ReadingSession) -> TokenList:
    """Return all tokens, newest first, revoked ones too; never a secret. Admins only."""
    return TokenList(
        items=[service.describe_token(each) for each in repository.list_tokens(session)]
    )


@router.post(
    "/tokens",
    status_code=201,
    tags=["tokens"],
    dependencies=[needs("admin")],
    summary="Create a token",
    responses=documented(
        NotAuthenticatedError, NotAllowedError, SiteNotFoundError, TokenExistsError
    ),
)
def create_token(
    caller: Administrator, session: WritingSession, request: TokenRequest
) -> TokenCreatedResponse:
    """Create a token for a site. The answer holds the secret, this once. Admins only."""
    return service.create_token(session, caller, request)


@router.delete(
    "/tokens/{token_id}",
    status_code=204,
    tags=["tokens"],
    dependencies=[needs("admin")],
    summary="Revoke a token",
    responses=documented(
        NotAuthenticatedError, NotAllowedError, TokenNotFoundError, LastAdminError
    ),
)
def revoke_token(
    caller: Administrator,
    session: WritingSession,
    token_id: Annotated[
        str,
        Path(
            pattern="^[0-9a-f]{16}$",
            description="Identifier from the list of tokens.",
            examples=["4f1d2c3b4a596877"],
        ),
    ],
) -> None:
    """End a token's validity at once. The last admin token stays. Admins only."""
    service.revoke_token(session, caller, token_id)
