"""A pool never loses its last admin: without one nobody could look after it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from sqlalchemy import or_, select
from sqlalchemy.orm import Session

from pool_server.database.records import SiteRecord, TokenRecord, UserRecord, now_utc
from pool_server.errors import ConflictError


@contextmanager
def keeping_an_admin(session: Session) -> Iterator[None]:
    """Let a block take rights away, unless nobody could look after the pool then.

    Those who take rights away at the same time do it one after another.

    Raises
    ------
    ConflictError
        At the end of the block; the transaction must not be committed.
    """
    session.execute(
        select(TokenRecord.id)
        .where(TokenRecord.role == "admin", TokenRecord.pool_wide)
        .order_by(TokenRecord.id)
        .with_for_update(key_share=True)
    )
    had_one = has_admin(session)
    yield
    session.flush()
    if had_one and not has_admin(session):
        raise ConflictError(
            "this would leave the pool without a valid admin token; nobody could look after it",
            code="last_admin",
            hint="Create another admin token first.",
        )


def has_admin(session: Session) -> bool:
    """Tell whether somebody may look after the whole pool now."""
    tokens = session.execute(
        select(TokenRecord.scopes, UserRecord)
        .join(TokenRecord.site)
        .outerjoin(TokenRecord.user)
        .where(
            TokenRecord.role == "admin",
            TokenRecord.pool_wide,
            TokenRecord.revoked_at.is_(None),
            or_(TokenRecord.expires_at.is_(None), TokenRecord.expires_at > now_utc()),
            SiteRecord.suspended_at.is_(None),
        )
    ).all()
    return any(
        (scopes is None or "admin" in scopes)
        and (user is None or (user.disabled_at is None and user.role == "admin" and user.pool_wide))
        for scopes, user in tokens
    )
