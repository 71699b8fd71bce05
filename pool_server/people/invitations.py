"""Invitations, by which people become users of a site."""

import secrets
from collections.abc import Iterator
from datetime import datetime, timedelta
from functools import cache
from typing import Annotated

from fastapi import APIRouter, Path, Request
from sqlalchemy import Select, select, update
from sqlalchemy.orm import Session, contains_eager

from pool_server.database.engine import change_rows
from pool_server.database.records import InvitationRecord, UserRecord, now_utc
from pool_server.errors import ConflictError, MissingError, NotAllowedError
from pool_server.http.audit import record_act
from pool_server.http.error_responses import request_id_of
from pool_server.http.identity import Caller, SiteAdmin, caller_of, hash_secret, needs, new_secret
from pool_server.http.parameters import describe
from pool_server.http.rate_limits import Limits, client_address, rate_limit_key
from pool_server.http.session import Parts, ReadingSession, WritingSession
from pool_server.people import tokens
from pool_server.people.sites import get_site, has_user, is_disabled
from pool_server.settings import PoolSettings
from pool_server.wire import people

router = APIRouter(prefix="/invitations", tags=["users"])


@router.get("", dependencies=[needs("admin")], summary="List the invitations")
def list_invitations(caller: SiteAdmin, session: ReadingSession) -> people.InvitationList:
    """Return the invitations to your own site, newest first; admins of the pool get all."""
    invitations = session.scalars(_invitations_for(caller))
    return people.InvitationList(
        items=[describe_invitation(session, entry) for entry in invitations]
    )


@router.post("", status_code=201, dependencies=[needs("admin")], summary="Invite somebody")
def invite(
    caller: SiteAdmin,
    session: WritingSession,
    parts: Parts,
    limits: Limits,
    request: people.InvitationRequest,
) -> people.InvitationCreatedResponse:
    """Invite one person to a site. Only this response contains the secret to pass on.

    For admins of the site.
    """
    limits.token_acts.take(caller.token_id, tokens.TOO_MANY)
    caller.require_role("admin", None if request.pool_wide else request.site)
    _require_whole_token(caller)
    site = get_site(session, request.site)
    _require_provider(request.sign_on, parts.settings)
    secret = new_secret(people.INVITATION_PREFIX)
    now = now_utc()
    invitation = InvitationRecord(
        id=secrets.token_hex(8),
        secret_hash=hash_secret(secret),
        site=site,
        **request.model_dump(exclude={"site", "expires_in_days"}),
        created_at=now,
        created_by=caller.name,
        made_by=tokens.user_behind(session, caller),
        expires_at=now + timedelta(days=request.expires_in_days),
        user=None,
    )
    session.add(invitation)
    session.flush()
    record_act(
        session,
        caller,
        "invitation.create",
        site.name,
        invitation_id=invitation.id,
        role=invitation.role,
        pool_wide=invitation.pool_wide,
    )
    described = describe_invitation(session, invitation).model_dump()
    return people.InvitationCreatedResponse(**described, secret=secret)


@router.post("/accept", status_code=201, summary="Accept an invitation")
def accept(
    http_request: Request,
    session: WritingSession,
    limits: Limits,
    request: people.AcceptanceRequest,
) -> people.TokenCreatedResponse:
    """Become a user of the inviting site and get a first token. Needs no token.

    An invitation can be used once.
    """
    address = client_address(http_request)
    limits.acceptances.take(rate_limit_key(address), "invitations from your address")
    invitation = session.scalar(
        whole_invitations().where(InvitationRecord.secret_hash == hash_secret(request.secret))
    )
    problem = _problem(session, invitation)
    if invitation is not None and invitation.sign_on:
        problem = f"this invitation holds for one person who logs in by {invitation.sign_on!r}"
    if invitation is None or problem or not use_up(session, invitation):
        raise NotAllowedError(
            problem or "this invitation was used or revoked just now",
            code="invitation_refused",
            hint="Ask the site for a new one.",
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
    token, secret = tokens.make_token(
        session,
        site,
        request.token_name or request.name,
        user.role,
        pool_wide=user.pool_wide,
        user=user,
    )
    newcomer = caller_of(token, address=address, request_id=request_id_of(http_request))
    record_act(
        session,
        newcomer,
        "invitation.accept",
        f"{site.name}/{user.name}",
        invitation_id=invitation.id,
        **tokens.details_of(token),
    )
    return tokens.with_secret(token, secret)


@router.delete(
    "/{invitation_id}",
    status_code=204,
    dependencies=[needs("admin")],
    summary="Revoke an invitation",
)
def revoke_invitation(
    caller: SiteAdmin,
    session: WritingSession,
    limits: Limits,
    invitation_id: Annotated[
        str, Path(pattern="^[0-9a-f]{16}$", description="Identifier from the list of invitations.")
    ],
) -> None:
    """Revoke an invitation; one that is used or expired stays unchanged."""
    limits.token_acts.take(caller.token_id, tokens.TOO_MANY)
    invitation = get_invitation(session, caller, invitation_id)
    site = invitation.site.name
    caller.require_role("admin", None if invitation.pool_wide else site)
    if _end(session, invitation.id, revoked_at=now_utc()):
        record_act(session, caller, "invitation.revoke", site, invitation_id=invitation.id)


def describe_invitation(
    session: Session, invitation: InvitationRecord
) -> people.InvitationResponse:
    return describe(
        people.InvitationResponse,
        invitation,
        invitation_id=invitation.id,
        site=invitation.site.name,
        used_by=None if invitation.user is None else invitation.user.name,
        refused=_problem(session, invitation),
    )


def open_invitations(session: Session, provider: str) -> Iterator[InvitationRecord]:
    """Yield the invitations that can be accepted by a log-in at a provider."""
    for invitation in session.scalars(
        whole_invitations().where(InvitationRecord.sign_on == provider)
    ):
        if not _problem(session, invitation):
            yield invitation


def use_up(session: Session, invitation: InvitationRecord) -> bool:
    """Mark an invitation as used; return False if somebody was first."""
    return _end(session, invitation.id, used_at=now_utc())


def _require_provider(name: str, settings: PoolSettings) -> None:
    known = [provider.name for provider in settings.sign_on]
    if name and name not in known:
        raise MissingError(
            f"this pool has no log-in by {name!r}",
            code="provider_not_found",
            hint=f"It has {', '.join(known) or 'none'}; the pool's settings name them.",
        )


def _require_whole_token(caller: Caller) -> None:
    """Raise if the caller's token has scopes: an invited user's token would exceed them."""
    if caller.scopes is not None:
        raise NotAllowedError(
            f"your token is limited to {', '.join(sorted(caller.scopes))}, but an invitation "
            "grants all rights of its role",
            hint="Use a token without scopes to invite.",
        )


def _problem(session: Session, invitation: InvitationRecord | None) -> str:
    """Return the reason why an invitation cannot be accepted; empty if it can."""
    if invitation is None:
        return "the pool does not know this invitation"
    if invitation.revoked_at is not None:
        return "this invitation was revoked"
    if invitation.used_at is not None:
        return f"this invitation was used on {invitation.used_at:%Y-%m-%d %H:%M} UTC"
    if invitation.expires_at <= now_utc():
        return f"this invitation expired on {invitation.expires_at:%Y-%m-%d %H:%M} UTC"
    return _check_inviter(session, invitation)


def _check_inviter(session: Session, invitation: InvitationRecord) -> str:
    """Return why the inviting site or user cannot admit anyone; empty if they can."""
    if invitation.site.suspended_at is not None:
        return f"site {invitation.site.name!r} is suspended"
    maker = invitation.made_by
    if maker is not None and is_disabled(session, *maker.split("/")):
        return f"user {maker}, who made this invitation, is disabled"
    return ""


@cache
def whole_invitations() -> Select[InvitationRecord]:
    """Select invitations with their sites and users, newest first."""
    return (
        select(InvitationRecord)
        .join(InvitationRecord.site)
        .outerjoin(InvitationRecord.user)
        .options(contains_eager(InvitationRecord.site), contains_eager(InvitationRecord.user))
        .order_by(InvitationRecord.created_at.desc(), InvitationRecord.id)
    )


def get_invitation(session: Session, caller: Caller, invitation_id: str) -> InvitationRecord:
    """Return an invitation with its site."""
    invitation = session.scalar(
        _invitations_for(caller).where(InvitationRecord.id == invitation_id)
    )
    if invitation is None:
        raise MissingError(
            f"the pool has no invitation {invitation_id!r}",
            code="invitation_not_found",
            hint="`poolctl admin people ls invitations` lists them.",
        )
    return invitation


def _invitations_for(caller: Caller) -> Select[InvitationRecord]:
    """Select invitations to the caller's site, or all for an admin of the pool."""
    query = whole_invitations()
    return query if caller.is_admin else query.where(InvitationRecord.site_id == caller.site_id)


def _end(session: Session, invitation_id: str, **values: datetime) -> bool:
    """Mark an invitation as used or revoked; return False if it is no longer valid."""
    changed = change_rows(
        session,
        update(InvitationRecord)
        .where(
            InvitationRecord.id == invitation_id,
            InvitationRecord.used_at.is_(None),
            InvitationRecord.revoked_at.is_(None),
            InvitationRecord.expires_at > now_utc(),
        )
        .values(**values),
    )
    return changed == 1
