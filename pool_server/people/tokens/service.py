"""What can be done with tokens."""

from __future__ import annotations

import secrets
from datetime import timedelta
from typing import Any, cast

from sqlalchemy.orm import Session

from pool_server.database.records import AuditRecord, SiteRecord, TokenRecord, UserRecord, now_utc
from pool_server.database.records.activity import FIRST_SITE, local_act
from pool_server.errors import ConflictError, NotAllowedError
from pool_server.http.audit import record_act
from pool_server.http.identity import SECRET_PREFIX, Caller, hash_secret, new_secret, rank
from pool_server.people.sites.last_admin import keeping_an_admin
from pool_server.people.sites.repository import count_sites, find_site, get_site
from pool_server.people.tokens import repository
from pool_server.people.tokens.creators import TOKEN_MADE, user_behind
from pool_server.people.users.repository import get_user
from pool_server.wire.people.sites import SCOPES, Role
from pool_server.wire.people.tokens import (
    TokenCreatedResponse,
    TokenKind,
    TokenRequest,
    TokenResponse,
)

FIRST_TOKEN = "first-admin"


def describe_token(token: TokenRecord, made_by: str | None = None) -> TokenResponse:
    """Describe a token; `creators` finds who made it."""
    return TokenResponse(
        token_id=token.id,
        site=token.site.name,
        name=token.name,
        role=cast("Role", token.role),
        kind=cast("TokenKind", token.kind),
        pool_wide=token.pool_wide,
        scopes=None if token.scopes is None else [each for each in SCOPES if each in token.scopes],
        user=None if token.user is None else token.user.name,
        made_by=made_by,
        created_at=token.created_at,
        expires_at=token.expires_at,
        last_used_at=token.last_used_at,
        revoked_at=token.revoked_at,
    )


def create_token(session: Session, caller: Caller, request: TokenRequest) -> TokenCreatedResponse:
    """Create a token and return its secret, this once.

    Nobody gives more than they have: the role is at most the caller's, and a caller whose own
    token is narrowed gives none of the scopes that it lacks.

    A user's token makes tokens of that user, so that none of them is left when the user is
    disabled; save where it is told to make one for a machine, or for somebody else. Those for
    another site are for that site's people to look after, and so of the site.
    """
    caller.require_role("admin", request.site)
    if request.pool_wide:
        caller.require_role("admin")
    _require_own_scopes(caller, request)
    site = get_site(session, request.site)
    owner = request.user
    if owner is None and caller.user and site.name == caller.site and not request.for_machine:
        owner = caller.user
    user = None if owner is None else get_user(session, caller, site.name, owner)
    if user is not None:
        _require_within(request, user)
    token, secret = make_token(
        session,
        site,
        request.name,
        request.role,
        kind=request.kind,
        pool_wide=request.pool_wide,
        scopes=request.scopes,
        user=user,
        expires_in_days=request.expires_in_days,
    )
    record_act(session, caller, TOKEN_MADE, f"{site.name}/{token.name}", **details_of(token))
    return with_secret(token, secret, user_behind(session, caller))


def revoke_token(session: Session, caller: Caller, token_id: str) -> None:
    """End a token's validity now; again is no error.

    Raises
    ------
    NotAllowedError
        A token of the whole pool is not for the admin of a site to revoke.
    """
    if repository.get_token(session, caller, token_id).revoked_at is not None:
        return
    with keeping_an_admin(session):
        token = repository.get_token(session, caller, token_id)
        caller.require_role("admin", None if token.pool_wide else token.site.name)
        if not repository.revoke_token(session, token.id, now_utc()):
            return
    record_act(
        session, caller, "token.revoke", f"{token.site.name}/{token.name}", token_id=token.id
    )


def make_token(
    session: Session,
    site: SiteRecord,
    name: str,
    role: str,
    *,
    kind: TokenKind = "program",
    pool_wide: bool = False,
    scopes: list[Any] | None = None,
    user: UserRecord | None = None,
    expires_in_days: int | None = None,
) -> tuple[TokenRecord, str]:
    """Write a new token, and return it with its secret.

    Raises
    ------
    ConflictError
        The site has a valid token of that name.
    """
    if repository.has_valid_token(session, site.id, name):
        raise ConflictError(
            f"site {site.name!r} has a valid token named {name!r}",
            code="token_exists",
            hint="Choose another name, or revoke that token first.",
        )
    secret = new_secret("feed_" if kind == "feed" else SECRET_PREFIX)
    now = now_utc()
    token = TokenRecord(
        id=secrets.token_hex(8),
        site=site,
        name=name,
        kind=kind,
        role=role,
        pool_wide=pool_wide,
        scopes=None if scopes is None else sorted(set(scopes)),
        user=user,
        secret_hash=hash_secret(secret),
        created_at=now,
        expires_at=None if expires_in_days is None else now + timedelta(days=expires_in_days),
    )
    session.add(token)
    session.flush()
    return token, secret


def with_secret(
    token: TokenRecord, secret: str, made_by: str | None = None
) -> TokenCreatedResponse:
    return TokenCreatedResponse(**describe_token(token, made_by).model_dump(), secret=secret)


def details_of(token: TokenRecord) -> dict[str, Any]:
    """Return what the audit keeps of a new token."""
    return {
        "token_id": token.id,
        "kind": token.kind,
        "role": token.role,
        "pool_wide": token.pool_wide,
        "scopes": token.scopes,
        "user": None if token.user is None else token.user.name,
    }


def create_first_admin(session: Session) -> str | None:
    """Give an empty pool its first site and admin token.

    Returns
    -------
    str or None
        The secret, for the one time it is shown; None when the pool has a site already.
    """
    if count_sites(session):
        return None
    site = SiteRecord(name=FIRST_SITE, display_name="Administration of this pool")
    session.add(site)
    session.flush()
    token, secret = make_token(session, site, FIRST_TOKEN, "admin", pool_wide=True)
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


def recover_admin(session: Session) -> tuple[TokenRecord, str]:
    """Make a further admin token of the whole pool, for whoever runs it and lost the others.

    The pool's first site gets it. That is suspended no longer then, for its tokens would not be
    valid.

    Returns
    -------
    TokenRecord
    str
        The secret, for the one time it is shown.
    """
    site = find_site(session, FIRST_SITE)
    if site is None:
        site = SiteRecord(name=FIRST_SITE, display_name="Administration of this pool")
        session.add(site)
        session.flush()
    was_suspended, site.suspended_at = site.suspended_at is not None, None
    name = f"recovered-{now_utc():%Y%m%dt%H%M%S}"
    token, secret = make_token(session, site, name, "admin", pool_wide=True)
    subject = f"{site.name}/{token.name}"
    details = details_of(token) | {"site_was_suspended": was_suspended}
    session.add(AuditRecord(**local_act("admin.recover", subject, **details)))
    return token, secret


def _require_own_scopes(caller: Caller, request: TokenRequest) -> None:
    if caller.scopes is None:
        return
    if request.scopes is None or not caller.scopes.issuperset(request.scopes):
        raise NotAllowedError(
            f"your token is narrowed to {', '.join(sorted(caller.scopes))}, and cannot give more",
            hint="Give the new token scopes among these, or use a token without scopes.",
            details={"scopes": sorted(caller.scopes)},
        )


def _require_within(request: TokenRequest, user: UserRecord) -> None:
    if rank(request.role) > rank(user.role) or (request.pool_wide and not user.pool_wide):
        where = "of the whole pool" if user.pool_wide else f"at site {request.site!r}"
        raise NotAllowedError(
            f"user {user.name!r} is {user.role} {where}; a token never may more than its user",
            hint="Give the token a lower role, or the user a higher one.",
        )
