"""Invitations: how people become users of a site."""

from __future__ import annotations

import secrets
from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import Annotated, cast

from fastapi import APIRouter, Path, Request
from sqlalchemy import CursorResult, Select, select, update
from sqlalchemy.orm import Session, contains_eager

from pool_server.database.records import InvitationRecord, UserRecord, now_utc
from pool_server.errors import ConflictError, MissingError, NotAllowedError, TooManyRequestsError
from pool_server.http.audit import record_act
from pool_server.http.error_responses import document_errors, request_id_of
from pool_server.http.identity import Caller, SiteAdmin, caller_of, hash_secret, needs, new_secret
from pool_server.http.rate_limits import Limits, client_address, rate_limit_key
from pool_server.http.session import ReadingSession, WritingSession
from pool_server.people.sites import get_site
from pool_server.people.tokens import (
    INVITATION_MADE,
    TOO_MANY,
    details_of,
    find_creators,
    make_token,
    user_behind,
    with_secret,
)
from pool_server.people.users import has_user, is_disabled
from pool_server.wire.people import (
    AcceptanceRequest,
    InvitationCreatedResponse,
    InvitationList,
    InvitationRequest,
    InvitationResponse,
    TokenCreatedResponse,
)
from pool_server.wire.sites import Role

router = APIRouter(prefix="/invitations", tags=["users"])


SECRET_PREFIX = "invite_"


@router.get("", dependencies=[needs("admin")], summary="List the invitations")
def list_invitations(caller: SiteAdmin, session: ReadingSession) -> InvitationList:
    """Return invitations to one's own site, newest first; to all for the pool's admins."""
    found, creators = (find_invitations(session, caller), find_creators(session).invitations)
    return InvitationList(
        items=[describe_invitation(each, creators.get(each.id)) for each in found]
    )


@router.post(
    "",
    status_code=201,
    dependencies=[needs("admin")],
    summary="Invite somebody",
    responses=document_errors(TooManyRequestsError),
)
def invite(
    caller: SiteAdmin, session: WritingSession, limits: Limits, request: InvitationRequest
) -> InvitationCreatedResponse:
    """Invite one person to a site. The answer holds the secret to pass on, this once.

    For admins of the site.
    """
    limits.token_acts.take(caller.token_id, TOO_MANY)
    caller.require_role("admin", None if request.pool_wide else request.site)
    _require_whole_token(caller)
    site = get_site(session, request.site)
    secret = new_secret(SECRET_PREFIX)
    now = now_utc()
    invitation = InvitationRecord(
        id=secrets.token_hex(8),
        secret_hash=hash_secret(secret),
        site=site,
        email=request.email,
        role=request.role,
        pool_wide=request.pool_wide,
        created_at=now,
        created_by=caller.name,
        expires_at=now + timedelta(days=request.expires_in_days),
        user=None,
    )
    session.add(invitation)
    session.flush()
    record_act(
        session,
        caller,
        INVITATION_MADE,
        site.name,
        invitation_id=invitation.id,
        role=invitation.role,
        pool_wide=invitation.pool_wide,
    )
    described = describe_invitation(invitation, user_behind(session, caller)).model_dump()
    return InvitationCreatedResponse(**described, secret=secret)


@router.post(
    "/accept",
    status_code=201,
    summary="Accept an invitation",
    responses=document_errors(TooManyRequestsError),
)
def accept(
    http_request: Request, session: WritingSession, limits: Limits, request: AcceptanceRequest
) -> TokenCreatedResponse:
    """Become a user of the site that invited, and get a first token. Needs no token.

    An invitation is used once.
    """
    address = client_address(http_request)
    limits.acceptances.take(rate_limit_key(address), "invitations from your address")
    now = now_utc()
    invitation = find_invitation(session, hash_secret(request.secret))
    problem = _problem(session, invitation)
    if invitation is None or problem or not use_invitation(session, invitation.id, now):
        raise NotAllowedError(
            problem or "this invitation was used or revoked just now",
            code="invitation_refused",
            hint="Ask whoever invited you for a new one.",
        )
    site = invitation.site
    if has_user(session, site.id, request.name):
        raise ConflictError(
            f"site {site.name!r} has a user named {request.name!r}",
            code="user_exists",
            hint="Choose another name.",
        )
    user = UserRecord(
        site=site,
        name=request.name,
        display_name=request.display_name,
        email=invitation.email if request.email is None else request.email,
        role=invitation.role,
        pool_wide=invitation.pool_wide,
    )
    session.add(user)
    session.flush()
    invitation.user = user
    token, secret = make_token(
        session,
        site,
        request.token_name or request.name,
        user.role,
        pool_wide=user.pool_wide,
        user=user,
        expires_in_days=request.token_expires_in_days,
    )
    newcomer = caller_of(token, address=address, request_id=request_id_of(http_request))
    record_act(
        session,
        newcomer,
        "invitation.accept",
        f"{site.name}/{user.name}",
        invitation_id=invitation.id,
        **details_of(token),
    )
    return with_secret(token, secret)


@router.delete(
    "/{invitation_id}",
    status_code=204,
    dependencies=[needs("admin")],
    summary="Revoke an invitation",
    responses=document_errors(TooManyRequestsError),
)
def revoke_invitation(
    caller: SiteAdmin,
    session: WritingSession,
    limits: Limits,
    invitation_id: Annotated[
        str,
        Path(
            pattern="^[0-9a-f]{16}$",
            description="Identifier from the list of invitations.",
            examples=["4f1d2c3b4a596877"],
        ),
    ],
) -> None:
    """Make an invitation worthless; one that was used or is over stays as it is."""
    limits.token_acts.take(caller.token_id, TOO_MANY)
    invitation = get_invitation(session, caller, invitation_id)
    site = invitation.site.name
    caller.require_role("admin", None if invitation.pool_wide else site)
    if end_invitation(session, invitation.id, now_utc()):
        record_act(session, caller, "invitation.revoke", site, invitation_id=invitation.id)


def describe_invitation(
    invitation: InvitationRecord, made_by: str | None = None
) -> InvitationResponse:
    """Describe an invitation; `find_creators` finds who made it."""
    return InvitationResponse(
        invitation_id=invitation.id,
        site=invitation.site.name,
        role=cast("Role", invitation.role),
        pool_wide=invitation.pool_wide,
        email=invitation.email,
        created_at=invitation.created_at,
        created_by=invitation.created_by,
        made_by=made_by,
        expires_at=invitation.expires_at,
        used_at=invitation.used_at,
        used_by=None if invitation.user is None else invitation.user.name,
        revoked_at=invitation.revoked_at,
    )


def _require_whole_token(caller: Caller) -> None:
    """Raise for a narrowed token: who accepts an invitation gets a token that is not."""
    if caller.scopes is not None:
        raise NotAllowedError(
            f"your token is narrowed to {', '.join(sorted(caller.scopes))}, and whoever accepts an "
            "invitation gets a token that may all that the role may",
            hint="Invite with a token without scopes.",
            details={"scopes": sorted(caller.scopes)},
        )


def _problem(session: Session, invitation: InvitationRecord | None) -> str:
    """Return why an invitation cannot be accepted; empty where it can."""
    if invitation is None:
        return "the pool does not know this invitation"
    if invitation.revoked_at is not None:
        return "this invitation was revoked"
    if invitation.used_at is not None:
        return f"this invitation was used on {invitation.used_at:%Y-%m-%d %H:%M} UTC"
    if invitation.expires_at <= now_utc():
        return f"this invitation expired on {invitation.expires_at:%Y-%m-%d %H:%M} UTC"
    return _find_shut_out(session, invitation)


def _find_shut_out(session: Session, invitation: InvitationRecord) -> str:
    """Return why nobody may join by an invitation any more; empty where somebody may."""
    if invitation.site.suspended_at is not None:
        return f"site {invitation.site.name!r} is suspended"
    maker = find_creators(session).invitations.get(invitation.id)
    if maker is not None and is_disabled(session, *maker.split("/")):
        return f"user {maker}, who made this invitation, is disabled"
    return ""


def whole_invitations() -> Select[InvitationRecord]:
    return (
        select(InvitationRecord)
        .join(InvitationRecord.site)
        .outerjoin(InvitationRecord.user)
        .options(contains_eager(InvitationRecord.site), contains_eager(InvitationRecord.user))
        .order_by(InvitationRecord.created_at.desc(), InvitationRecord.id)
    )


def find_invitations(session: Session, caller: Caller) -> Sequence[InvitationRecord]:
    """Return invitations to the caller's site, to all for an admin of the pool, newest first."""
    return session.scalars(_looked_after(whole_invitations(), caller)).all()


def get_invitation(session: Session, caller: Caller, invitation_id: str) -> InvitationRecord:
    """Return an invitation with its site.

    Raises
    ------
    MissingError
        No such one, or one to a site that the caller does not administer: the two look the same.
    """
    invitation = session.scalar(
        _looked_after(whole_invitations(), caller).where(InvitationRecord.id == invitation_id)
    )
    if invitation is None:
        raise MissingError(
            f"the pool has no invitation {invitation_id!r}",
            code="invitation_not_found",
            hint="`poolctl admin invitations ls` lists them.",
        )
    return invitation


def find_invitation(session: Session, secret_hash: str) -> InvitationRecord | None:
    return session.scalar(whole_invitations().where(InvitationRecord.secret_hash == secret_hash))


def use_invitation(session: Session, invitation_id: str, now: datetime) -> bool:
    """Use an invitation up; False when that was done before, or it is not valid any more."""
    return _end(session, invitation_id, now, used_at=now)


def end_invitation(session: Session, invitation_id: str, now: datetime) -> bool:
    """Revoke an invitation; False when it is not valid any more."""
    return _end(session, invitation_id, now, revoked_at=now)


def _end(session: Session, invitation_id: str, now: datetime, **values: datetime) -> bool:
    result = session.execute(
        update(InvitationRecord)
        .where(
            InvitationRecord.id == invitation_id,
            InvitationRecord.used_at.is_(None),
            InvitationRecord.revoked_at.is_(None),
            InvitationRecord.expires_at > now,
        )
        .values(**values)
    )
    assert isinstance(result, CursorResult)
    return bool(result.rowcount == 1)


def _looked_after(
    invitations: Select[InvitationRecord], caller: Caller
) -> Select[InvitationRecord]:
    if caller.is_admin:
        return invitations
    return invitations.where(InvitationRecord.site_id == caller.site_id)
