"""Keys and statements in the database."""

from __future__ import annotations

from collections.abc import Sequence

from sqlalchemy import func, select
from sqlalchemy.orm import Session, contains_eager, joinedload

from pool_server.database.records import SiteKeyRecord, SiteRecord, StatementRecord


def list_keys(session: Session, site_id: int) -> Sequence[SiteKeyRecord]:
    """Return all keys of a site as they are now, its own and imported ones, oldest first."""
    return session.scalars(
        select(SiteKeyRecord)
        .join(SiteKeyRecord.site)
        .options(contains_eager(SiteKeyRecord.site))
        .where(SiteKeyRecord.site_id == site_id)
        .order_by(SiteKeyRecord.created_at, SiteKeyRecord.id)
        .execution_options(populate_existing=True)
    ).all()


def find_key(session: Session, site_id: int, key_id: str) -> SiteKeyRecord | None:
    return session.scalar(
        select(SiteKeyRecord)
        .join(SiteKeyRecord.site)
        .options(contains_eager(SiteKeyRecord.site))
        .where(SiteKeyRecord.site_id == site_id, SiteKeyRecord.id == key_id)
    )


def lock_keys(session: Session, site_id: int) -> None:
    """Let the keys of a site be changed, and relied on, by one transaction at a time."""
    session.execute(
        select(SiteRecord.id).where(SiteRecord.id == site_id).with_for_update(key_share=True)
    )


def count_keys(session: Session, site_id: int) -> int:
    return (
        session.scalar(
            select(func.count()).select_from(SiteKeyRecord).where(SiteKeyRecord.site_id == site_id)
        )
        or 0
    )


def find_statement(session: Session, version_id: int) -> StatementRecord | None:
    """Return the statement of a version with its key and the key's site."""
    return session.scalar(
        select(StatementRecord)
        .options(joinedload(StatementRecord.key).joinedload(SiteKeyRecord.site))
        .where(StatementRecord.version_id == version_id)
    )
