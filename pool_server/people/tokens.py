"""Tokens, which authenticate programs."""

import secrets
from datetime import datetime, timedelta
from typing import Annotated, Any

from fastapi import APIRouter, Path
from sqlalchemy import Select, select, update
from sqlalchemy.orm import Session, contains_eager

from pool_server.database import records
from pool_server.database.engine import change_rows, count_rows
from pool_server.errors import ConflictError, MissingError, NotAllowedError, PoolError
from pool_server.http import audit, identity, parameters, rate_limits
from pool_server.http.session import ReadingSession, WritingSession
from pool_server.people.sites import (
    find_site,
    find_sites,
    get_site,
    get_user,
    require_remaining_admin,
)
from pool_server.wire import people
from pool_server.wire.people import SCOPES

router = APIRouter(prefix="/tokens", tags=["tokens"], dependencies=[identity.needs("admin")])

TOO_MANY = "tokens and invitations made or revoked with this token"

FIRST_TOKEN = "first-admin"


@router.get("", summary="List the tokens")
def list_tokens(caller: identity.SiteAdmin, session: ReadingSession) -> people.TokenList:
    """Return your own site's tokens, newest first, revoked ones too; never a secret.

    For admins of a site; admins of the pool get the tokens of all sites.
    """
    tokens = session.scalars(whole_tokens(caller))
    return people.TokenList(items=[describe_token(token) for token in tokens])


@router.post("", status_code=201, summary="Create a token")
def create_token(
    caller: identity.SiteAdmin,
    session: WritingSession,
    limits: rate_limits.Limits,
    request: people.TokenRequest,
) -> people.TokenCreatedResponse:
    """Create a token for a site, or for a user of it. Only this response contains the secret.

    For admins of the site. A token cannot have more rights than its creator. A token made with a
    user's token for the user's own site belongs to that user, and is refused when the user is
    disabled, unless the request names another `user` or sets `for_machine`.
    """
    limits.token_acts.take(caller.token_id, TOO_MANY)
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
        pool_wide=request.pool_wide,
        scopes=request.scopes,
        user=user,
        made_by=user_behind(session, caller),
        expires_in_days=request.expires_in_days,
    )
    subject = f"{site.name}/{token.name}"
    audit.record_act(session, caller, "token.create", subject, **details_of(token))
    return with_secret(token, secret)


@router.delete("/{token_id}", status_code=204, summary="Revoke a token")
def revoke_token(
    caller: identity.SiteAdmin,
    session: WritingSession,
    limits: rate_limits.Limits,
    token_id: Annotated[
        str, Path(pattern="^[0-9a-f]{16}$", description="Identifier from the list of tokens.")
    ],
) -> None:
    """Revoke a token at once, unless it is the pool's last admin token. For the site's admins."""
    limits.token_acts.take(caller.token_id, TOO_MANY)
    if get_token(session, caller, token_id).revoked_at is not None:
        return
    with require_remaining_admin(session):
        token = get_token(session, caller, token_id)
        caller.require_role("admin", None if token.pool_wide else token.site.name)
        if not end_token(session, token.id, records.now_utc()):
            return
    audit.record_act(
        session, caller, "token.revoke", f"{token.site.name}/{token.name}", token_id=token.id
    )


def describe_token(token: records.TokenRecord) -> people.TokenResponse:
    scopes = None if token.scopes is None else [scope for scope in SCOPES if scope in token.scopes]
    refused = ""
    try:
        identity.require_valid(token)
    except PoolError as error:
        refused = error.message
    return parameters.describe(
        people.TokenResponse,
        token,
        token_id=token.id,
        site=token.site.name,
        scopes=scopes,
        user=None if token.user is None else token.user.name,
        refused=refused,
    )


def make_token(
    session: Session,
    site: records.SiteRecord,
    name: str,
    role: str,
    *,
    kind: people.TokenKind = "program",
    pool_wide: bool = False,
    scopes: list[Any] | None = None,
    user: records.UserRecord | None = None,
    made_by: str | None = None,
    expires_in_days: int | None = None,
) -> tuple[records.TokenRecord, str]:
    """Create a token and return it with its secret."""
    if has_valid_token(session, site.id, name):
        raise ConflictError(
            f"site {site.name!r} has a valid token named {name!r}",
            code="token_exists",
            hint="Choose another name, or revoke that token first.",
        )
    secret = identity.new_secret()
    now = records.now_utc()
    token = records.TokenRecord(
        id=secrets.token_hex(8),
        site=site,
        name=name,
        kind=kind,
        role=role,
        pool_wide=pool_wide,
        scopes=None if scopes is None else sorted(set(scopes)),
        user=user,
        made_by=made_by,
        secret_hash=identity.hash_secret(secret),
        created_at=now,
        expires_at=None if expires_in_days is None else now + timedelta(days=expires_in_days),
    )
    session.add(token)
    session.flush()
    return token, secret


def with_secret(token: records.TokenRecord, secret: str) -> people.TokenCreatedResponse:
    return people.TokenCreatedResponse(**describe_token(token).model_dump(), secret=secret)


def details_of(token: records.TokenRecord) -> dict[str, Any]:
    """Return the audit's details of a new token."""
    return {
        "token_id": token.id,
        "kind": token.kind,
        "role": token.role,
        "pool_wide": token.pool_wide,
        "scopes": token.scopes,
        "user": None if token.user is None else token.user.name,
    }


def create_first_admin(session: Session) -> str | None:
    """Create an empty pool's first site and admin token, and return the token's secret.

    Return None if the pool has a site already. The secret is shown only once.
    """
    if find_sites(session):
        return None
    token, secret = make_token(
        session, _add_first_site(session), FIRST_TOKEN, "admin", pool_wide=True
    )
    session.add(
        records.AuditRecord(
            actor_site=records.FIRST_SITE,
            actor_token=FIRST_TOKEN,
            token_id=token.id,
            action="pool.create",
            subject=records.FIRST_SITE,
            details={},
        )
    )
    return secret


def _add_first_site(session: Session) -> records.SiteRecord:
    site = records.SiteRecord(name=records.FIRST_SITE, display_name="Administration of this pool")
    session.add(site)
    session.flush()
    return site


def recover_admin(session: Session) -> tuple[records.TokenRecord, str]:
    """Create another admin token of the whole pool, to replace lost ones.

    It belongs to the pool's first site, and lifts its suspension, if any, so that the token is
    valid. Return the token and its secret, which is shown only once.
    """
    site = find_site(session, records.FIRST_SITE) or _add_first_site(session)
    was_suspended, site.suspended_at = site.suspended_at is not None, None
    name = f"recovered-{records.now_utc():%Y%m%dt%H%M%S}"
    token, secret = make_token(session, site, name, "admin", pool_wide=True)
    subject = f"{site.name}/{token.name}"
    details = details_of(token) | {"site_was_suspended": was_suspended}
    session.add(records.AuditRecord(**records.local_act("admin.recover", subject, **details)))
    return token, secret


def _require_own_scopes(caller: identity.Caller, request: people.TokenRequest) -> None:
    if caller.scopes is None:
        return
    if request.scopes is None or not caller.scopes.issuperset(request.scopes):
        raise NotAllowedError(
            f"your token is limited to {', '.join(sorted(caller.scopes))} and cannot grant more",
            hint="Give the new token scopes among these, or use a token without scopes.",
        )


def _require_within(request: people.TokenRequest, user: records.UserRecord) -> None:
    if identity.rank(request.role) > identity.rank(user.role) or (
        request.pool_wide and not user.pool_wide
    ):
        scope = "of the whole pool" if user.pool_wide else f"at site {request.site!r}"
        raise NotAllowedError(
            f"user {user.name!r} is {user.role} {scope}; a token cannot have more rights than its "
            f"user",
            hint="Give the token a lower role, or the user a higher one.",
        )


def whole_tokens(caller: identity.Caller) -> Select[records.TokenRecord]:
    """Select tokens of the caller's site, or of all for an admin of the pool, newest first."""
    tokens = (
        select(records.TokenRecord)
        .join(records.TokenRecord.site)
        .outerjoin(records.TokenRecord.user)
        .options(contains_eager(records.TokenRecord.site), contains_eager(records.TokenRecord.user))
        .order_by(records.TokenRecord.created_at.desc(), records.TokenRecord.id)
    )
    return (
        tokens if caller.is_admin else tokens.where(records.TokenRecord.site_id == caller.site_id)
    )


def get_token(session: Session, caller: identity.Caller, token_id: str) -> records.TokenRecord:
    """Return the token with this identifier, with its site and user."""
    token = session.scalar(
        whole_tokens(caller)
        .where(records.TokenRecord.id == token_id)
        .execution_options(populate_existing=True)
    )
    if token is None:
        raise MissingError(
            f"the pool has no token {token_id!r}",
            code="token_not_found",
            hint="`poolctl admin people ls tokens` lists them.",
        )
    return token


def end_token(session: Session, token_id: str, now: datetime) -> bool:
    """Revoke a token; return False if it was revoked before."""
    is_valid = (records.TokenRecord.id == token_id, records.TokenRecord.revoked_at.is_(None))
    ended = update(records.TokenRecord).where(*is_valid).values(revoked_at=now)
    return change_rows(session, ended) == 1


def has_valid_token(session: Session, site_id: int, name: str) -> bool:
    token = records.TokenRecord
    is_it = (token.site_id == site_id, token.name == name, token.revoked_at.is_(None))
    return count_rows(session, *is_it) > 0


def user_behind(session: Session, caller: identity.Caller) -> str | None:
    """Return the user behind a caller as ``SITE/USER``, also behind a token for machines."""
    if caller.user:
        return f"{caller.site}/{caller.user}"
    return session.get_one(records.TokenRecord, caller.token_id).made_by
