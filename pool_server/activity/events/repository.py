"""Events and the addresses that are called with them, in the database."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from datetime import datetime
from typing import Any, cast

from sqlalchemy import CursorResult, Row, delete, func, select, update
from sqlalchemy.orm import Session, contains_eager, joinedload

from pool_server.database.records import (
    EventRecord,
    SiteRecord,
    WebhookDeliveryRecord,
    WebhookRecord,
)


def live_webhooks(session: Session, site_ids: Collection[int]) -> Sequence[WebhookRecord]:
    """Return the webhooks of these sites that are not disabled."""
    return session.scalars(
        select(WebhookRecord).where(
            WebhookRecord.site_id.in_(site_ids), WebhookRecord.disabled_at.is_(None)
        )
    ).all()


def events_after(
    session: Session, site: str, after: int, *, kind: str | None, limit: int
) -> Sequence[EventRecord]:
    """Return a site's events with a higher id, oldest first, one more than `limit`."""
    query = (
        select(EventRecord)
        .join(EventRecord.site)
        .options(contains_eager(EventRecord.site))
        .where(SiteRecord.name == site, EventRecord.id > after)
    )
    if kind is not None:
        query = query.where(EventRecord.kind == kind)
    return session.scalars(query.order_by(EventRecord.id).limit(limit + 1)).all()


def find_site(session: Session, name: str) -> SiteRecord | None:
    return session.scalar(select(SiteRecord).where(SiteRecord.name == name))


def find_webhook(session: Session, webhook_id: str) -> WebhookRecord | None:
    """Return a webhook with its site."""
    return session.scalar(
        select(WebhookRecord)
        .options(joinedload(WebhookRecord.site))
        .where(WebhookRecord.id == webhook_id)
    )


def list_webhooks(session: Session, site: str) -> Sequence[WebhookRecord]:
    """Return the webhooks of a site, oldest first."""
    return session.scalars(
        select(WebhookRecord)
        .join(WebhookRecord.site)
        .options(contains_eager(WebhookRecord.site))
        .where(SiteRecord.name == site)
        .order_by(WebhookRecord.created_at, WebhookRecord.id)
    ).all()


def count_webhooks(session: Session, site_id: int) -> int:
    query = select(func.count()).select_from(WebhookRecord).where(WebhookRecord.site_id == site_id)
    return session.scalar(query) or 0


def waiting_counts(session: Session, webhook_ids: Collection[str]) -> dict[str, int]:
    """Return how many deliveries each webhook still waits for."""
    rows = session.execute(
        select(WebhookDeliveryRecord.webhook_id, func.count())
        .where(
            WebhookDeliveryRecord.webhook_id.in_(webhook_ids),
            WebhookDeliveryRecord.next_attempt_at.is_not(None),
        )
        .group_by(WebhookDeliveryRecord.webhook_id)
    )
    return {row[0]: row[1] for row in rows}


def last_errors(session: Session, webhook_ids: Collection[str]) -> dict[str, str]:
    """Return what went wrong last, for each webhook with which anything went wrong."""
    newest = (
        select(
            WebhookDeliveryRecord.webhook_id,
            func.max(WebhookDeliveryRecord.event_id).label("event_id"),
        )
        .where(
            WebhookDeliveryRecord.webhook_id.in_(webhook_ids),
            WebhookDeliveryRecord.last_error != "",
        )
        .group_by(WebhookDeliveryRecord.webhook_id)
        .subquery()
    )
    rows = session.execute(
        select(WebhookDeliveryRecord.webhook_id, WebhookDeliveryRecord.last_error).join(
            newest,
            (WebhookDeliveryRecord.webhook_id == newest.c.webhook_id)
            & (WebhookDeliveryRecord.event_id == newest.c.event_id),
        )
    )
    return {row[0]: row[1] for row in rows}


def delete_webhook(session: Session, webhook_id: str) -> None:
    session.execute(
        delete(WebhookDeliveryRecord).where(WebhookDeliveryRecord.webhook_id == webhook_id)
    )
    session.execute(delete(WebhookRecord).where(WebhookRecord.id == webhook_id))


def due_deliveries(session: Session, now: datetime, limit: int) -> Sequence[Row[str, int, int]]:
    """Return (webhook id, event id, attempts) of what is to be sent now, the longest due first.

    What is for a suspended site waits until it is no more.
    """
    return session.execute(
        select(
            WebhookDeliveryRecord.webhook_id,
            WebhookDeliveryRecord.event_id,
            WebhookDeliveryRecord.attempts,
        )
        .join(WebhookDeliveryRecord.webhook)
        .join(WebhookRecord.site)
        .where(WebhookDeliveryRecord.next_attempt_at <= now, SiteRecord.suspended_at.is_(None))
        .order_by(WebhookDeliveryRecord.next_attempt_at)
        .limit(limit)
    ).all()


def claim_delivery(
    session: Session, webhook_id: str, event_id: int, attempts: int, until: datetime
) -> bool:
    """Take a delivery for this process until a moment; False when another was first."""
    result = cast(
        "CursorResult[Any]",
        session.execute(
            update(WebhookDeliveryRecord)
            .where(
                WebhookDeliveryRecord.webhook_id == webhook_id,
                WebhookDeliveryRecord.event_id == event_id,
                WebhookDeliveryRecord.attempts == attempts,
                WebhookDeliveryRecord.next_attempt_at.is_not(None),
            )
            .values(attempts=attempts + 1, next_attempt_at=until)
        ),
    )
    return result.rowcount == 1


def get_delivery(session: Session, webhook_id: str, event_id: int) -> WebhookDeliveryRecord | None:
    """Return a delivery with its webhook, event and site; None when it was deleted meanwhile."""
    return session.scalar(
        select(WebhookDeliveryRecord)
        .options(
            joinedload(WebhookDeliveryRecord.webhook),
            joinedload(WebhookDeliveryRecord.event).joinedload(EventRecord.site),
        )
        .where(
            WebhookDeliveryRecord.webhook_id == webhook_id,
            WebhookDeliveryRecord.event_id == event_id,
        )
    )


def disable_webhook(session: Session, webhook_id: str, now: datetime) -> bool:
    """Call an address no more; False when another process was first."""
    result = cast(
        "CursorResult[Any]",
        session.execute(
            update(WebhookRecord)
            .where(WebhookRecord.id == webhook_id, WebhookRecord.disabled_at.is_(None))
            .values(disabled_at=now)
        ),
    )
    return result.rowcount == 1


def give_up_waiting(session: Session, webhook_id: str, now: datetime) -> None:
    """End all deliveries that a webhook still waits for."""
    session.execute(
        update(WebhookDeliveryRecord)
        .where(
            WebhookDeliveryRecord.webhook_id == webhook_id,
            WebhookDeliveryRecord.next_attempt_at.is_not(None),
        )
        .values(next_attempt_at=None, given_up_at=now)
    )


def forget_delivered(session: Session, before: datetime) -> None:
    """Remove what was delivered long ago; the events themselves stay."""
    session.execute(
        delete(WebhookDeliveryRecord).where(WebhookDeliveryRecord.delivered_at < before)
    )
