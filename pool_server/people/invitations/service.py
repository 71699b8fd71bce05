"""What can be done with invitations."""

from __future__ import annotations

import secrets
from datetime import timedelta
from typing import cast

from sqlalchemy.orm import Session

from pool_server.database.records import InvitationRecord, UserRecord, now_utc
from pool_server.errors import ConflictError, NotAllowedError
from pool_server.http.audit import record_act
from pool_server.http.identity import Caller, caller_of, hash_secret, new_secret
from pool_server.people.invitations import repository
from pool_server.people.sites.repository import get_site
from pool_server.people.tokens.creators import INVITATION_MADE, find_creators, user_behind
from pool_server.people.tokens.service import details_of, make_token, with_secret
from pool_server.people.users.repository import has_user, is_disabled
from pool_server.wire.people.sites import Role
from pool_server.wire.people.tokens import TokenCreatedResponse
from pool_server.wire.people.users import (
    AcceptanceRequest,
    InvitationCreatedResponse,
    InvitationRequest,
    InvitationResponse,
)

SECRET_PREFIX = "invite_"


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


def invite(
    session: Session, caller: Caller, request: InvitationRequest
) -> InvitationCreatedResponse:
    """Make an invitation and return its secret, this once."""
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
        created_by=f"{caller.site}/{caller.token_name}",
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


def revoke_invitation(session: Session, caller: Caller, invitation_id: str) -> None:
    """Make an invitation worthless; one that is used or over stays as it is."""
    invitation = repository.get_invitation(session, caller, invitation_id)
    site = invitation.site.name
    caller.require_role("admin", None if invitation.pool_wide else site)
    if repository.revoke_invitation(session, invitation.id, now_utc()):
        record_act(session, caller, "invitation.revoke", site, invitation_id=invitation.id)


def accept(
    session: Session, request: AcceptanceRequest, *, address: str, request_id: str
) -> TokenCreatedResponse:
    """Make whoever has an invitation's secret a user, with a first token.

    Raises
    ------
    NotAllowedError
        Unknown, used, revoked or expired, to a suspended site, or of a user who is disabled; told
        apart only to those who know the secret. It is not used up by the errors below.
    """
    now = now_utc()
    invitation = repository.find_invitation(session, hash_secret(request.secret))
    problem = _problem(session, invitation)
    if invitation is None or problem or not repository.use_invitation(session, invitation.id, now):
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
    newcomer = caller_of(token, address=address, request_id=request_id)
    record_act(
        session,
        newcomer,
        "invitation.accept",
        f"{site.name}/{user.name}",
        invitation_id=invitation.id,
        **details_of(token),
    )
    return with_secret(token, secret)


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
    return _shut_out(session, invitation)


def _shut_out(session: Session, invitation: InvitationRecord) -> str:
    """Return who of those that invite is shut out; empty for nobody."""
    if invitation.site.suspended_at is not None:
        return f"site {invitation.site.name!r} is suspended"
    maker = find_creators(session).invitations.get(invitation.id)
    if maker is not None and is_disabled(session, *maker.split("/")):
        return f"user {maker}, who made this invitation, is disabled"
    return ""
