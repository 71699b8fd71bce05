"""Invitations in the database."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime

from sqlalchemy import CursorResult, Select, select, update
from sqlalchemy.orm import Session, contains_eager

from pool_server.database.records import InvitationRecord
from pool_server.errors import MissingError
from pool_server.http.identity import Caller


def whole_invitations() -> Select[InvitationRecord]:
    return (
        select(InvitationRecord)
        .join(InvitationRecord.site)
        .outerjoin(InvitationRecord.user)
        .options(contains_eager(InvitationRecord.site), contains_eager(InvitationRecord.user))
        .order_by(InvitationRecord.created_at.desc(), InvitationRecord.id)
    )


def list_invitations(session: Session, caller: Caller) -> Sequence[InvitationRecord]:
    """Return invitations to the caller's site, to all for an admin of the pool, newest first."""
    return session.scalars(_looked_after(whole_invitations(), caller)).all()


def get_invitation(session: Session, caller: Caller, invitation_id: str) -> InvitationRecord:
    """Return an invitation with its site.

    Raises
    ------
    MissingError
        There is none; one to a site that the caller does not look after looks the same.
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


def revoke_invitation(session: Session, invitation_id: str, now: datetime) -> bool:
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
