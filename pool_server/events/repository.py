"""Events and the addresses that are called with them, in the database."""

from __future__ import annotations

from collections.abc import Collection, Sequence

from sqlalchemy import func, select
from sqlalchemy.orm import Session

from pool_server.records import WebhookRecord

# An arbitrary number that nothing else in the pool's database locks.
EVENT_LOCK = 7_301_001


def wait_for_turn(session: Session) -> None:
    """Let one transaction at a time number its events.

    Readers go on after the highest id that they have seen, so no lower one may appear later.
    PostgreSQL numbers rows before they are committed; SQLite has one writer at a time anyway.
    """
    if session.get_bind().dialect.name == "postgresql":
        session.execute(select(func.pg_advisory_xact_lock(EVENT_LOCK)))


def live_webhooks(session: Session, site_ids: Collection[int]) -> Sequence[WebhookRecord]:
    """Return the webhooks of these sites that are not disabled."""
    return session.scalars(
        select(WebhookRecord).where(
            WebhookRecord.site_id.in_(site_ids), WebhookRecord.disabled_at.is_(None)
        )
    ).all()
