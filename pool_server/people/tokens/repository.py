"""Tokens in the database."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime

from sqlalchemy import CursorResult, Select, select, update
from sqlalchemy.orm import Session, contains_eager

from pool_server.database.records import TokenRecord
from pool_server.errors import MissingError
from pool_server.http.identity import Caller


def whole_tokens(caller: Caller) -> Select[TokenRecord]:
    """Select tokens of the caller's site, or of all for an admin of the pool, newest first."""
    tokens = (
        select(TokenRecord)
        .join(TokenRecord.site)
        .outerjoin(TokenRecord.user)
        .options(contains_eager(TokenRecord.site), contains_eager(TokenRecord.user))
        .order_by(TokenRecord.created_at.desc(), TokenRecord.id)
    )
    return tokens if caller.is_admin else tokens.where(TokenRecord.site_id == caller.site_id)


def list_tokens(session: Session, caller: Caller) -> Sequence[TokenRecord]:
    return session.scalars(whole_tokens(caller)).all()


def get_token(session: Session, caller: Caller, token_id: str) -> TokenRecord:
    """Return the token of that identifier, with its site and user.

    Raises
    ------
    MissingError
        There is none; one of a site that the caller does not look after looks the same.
    """
    token = session.scalar(
        whole_tokens(caller)
        .where(TokenRecord.id == token_id)
        .execution_options(populate_existing=True)
    )
    if token is None:
        raise MissingError(
            f"the pool has no token {token_id!r}",
            code="token_not_found",
            hint="`poolctl admin tokens ls` lists them.",
        )
    return token


def revoke_token(session: Session, token_id: str, now: datetime) -> bool:
    """End a token's validity; False when that was done before."""
    result = session.execute(
        update(TokenRecord)
        .where(TokenRecord.id == token_id, TokenRecord.revoked_at.is_(None))
        .values(revoked_at=now)
    )
    assert isinstance(result, CursorResult)
    return bool(result.rowcount == 1)


def has_valid_token(session: Session, site_id: int, name: str) -> bool:
    return (
        session.scalar(
            select(TokenRecord.id).where(
                TokenRecord.site_id == site_id,
                TokenRecord.name == name,
                TokenRecord.revoked_at.is_(None),
            )
        )
        is not None
    )
