"""What can be done with sites and tokens."""

from __future__ import annotations

import secrets
from datetime import timedelta
from typing import cast

from sqlalchemy.orm import Session

from pool_server.database import wait_for_turn
from pool_server.errors import LastAdminError, SiteExistsError, TokenExistsError
from pool_server.http.audit import record_act
from pool_server.http.identity import Caller, hash_secret, new_secret
from pool_server.records import AuditRecord, SiteRecord, TokenRecord, now_utc
from pool_server.sites import repository
from pool_server.wire.sites import (
    Role,
    SiteRequest,
    SiteResponse,
    TokenCreatedResponse,
    TokenRequest,
    TokenResponse,
)

FIRST_SITE = "admin"
FIRST_TOKEN = "first-admin"


def describe_site(site: SiteRecord) -> SiteResponse:
    return SiteResponse(
        name=site.name,
        display_name=site.display_name,
        contact=site.contact,
        created_at=site.created_at,
    )


def describe_token(token: TokenRecord) -> TokenResponse:
    return TokenResponse(
        token_id=token.id,
        site=token.site.name,
        name=token.name,
        role=cast("Role", token.role),
        created_at=token.created_at,
        expires_at=token.expires_at,
        last_used_at=token.last_used_at,
        revoked_at=token.revoked_at,
    )


def create_site(session: Session, caller: Caller, request: SiteRequest) -> SiteResponse:
    """Create a site; its name can never be changed.

    Raises
    ------
    SiteExistsError
        The name is taken.
    """
    # Should another process come between, the unique name decides, and the request is handled anew.
    if repository.find_site(session, request.name) is not None:
        raise SiteExistsError(f"site {request.name!r} is there already")
    site = SiteRecord(name=request.name, display_name=request.display_name, contact=request.contact)
    session.add(site)
    session.flush()
    record_act(session, caller, "site.create", site.name)
    return describe_site(site)


def create_token(session: Session, caller: Caller, request: TokenRequest) -> TokenCreatedResponse:
    """Create a token and return its secret, this once.

    Raises
    ------
    SiteNotFoundError, TokenExistsError
    """
    site = repository.get_site(session, request.site)
    if repository.has_valid_token(session, site.id, request.name):
        raise TokenExistsError(
            f"site {site.name!r} has a valid token named {request.name!r}",
            hint="Choose another name, or revoke that token first.",
        )
    token, secret = make_token(site, request.name, request.role, request.expires_in_days)
    session.add(token)
    session.flush()
    record_act(
        session,
        caller,
        "token.create",
        f"{site.name}/{token.name}",
        token_id=token.id,
        role=token.role,
    )
    return TokenCreatedResponse(**describe_token(token).model_dump(), secret=secret)


def revoke_token(session: Session, caller: Caller, token_id: str) -> None:
    """End a token's validity now; again is no error.

    Raises
    ------
    TokenNotFoundError, LastAdminError
    """
    token = repository.get_token(session, token_id)
    if token.revoked_at is not None:
        return
    # Two admins that revoke one another at once must not both succeed.
    wait_for_turn(session, "admins")
    if token.role == "admin" and not repository.other_lasting_admin(session, token.id):
        raise LastAdminError(
            "this is the last valid admin token; without it nobody could look after the pool",
            hint="Create another admin token first.",
        )
    token.revoked_at = now_utc()
    record_act(
        session, caller, "token.revoke", f"{token.site.name}/{token.name}", token_id=token.id
    )


def make_token(
    site: SiteRecord, name: str, role: str, expires_in_days: int | None = None
) -> tuple[TokenRecord, str]:
    """Return a new token that is not stored yet, and its secret."""
    secret = new_secret()
    now = now_utc()
    token = TokenRecord(
        id=secrets.token_hex(8),
        site=site,
        name=name,
        role=role,
        # An admin looks after the whole pool.
        pool_wide=role == "admin",
        secret_hash=hash_secret(secret),
        created_at=now,
        expires_at=None if expires_in_days is None else now + timedelta(days=expires_in_days),
    )
    return token, secret


def create_first_admin(session: Session) -> str | None:
    """Give an empty pool its first site and admin token.

    Returns
    -------
    str or None
        The secret, for the one time it is shown; None when the pool has a site already.
    """
    if repository.count_sites(session):
        return None
    site = SiteRecord(name=FIRST_SITE, display_name="Administration of this pool")
    token, secret = make_token(site, FIRST_TOKEN, "admin")
    session.add_all([site, token])
    session.add(
        AuditRecord(
            actor_site=FIRST_SITE,
            actor_token=FIRST_TOKEN,
            token_id=token.id,
            action="pool.create",
            subject=FIRST_SITE,
            details={},
        )
    )
    return secret
