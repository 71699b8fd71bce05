"""Events and the addresses that are called with them, in the database."""

from __future__ import annotations

from collections.abc import Collection, Sequence

from sqlalchemy import select
from sqlalchemy.orm import Session

from pool_server.records import WebhookRecord


def live_webhooks(session: Session, site_ids: Collection[int]) -> Sequence[WebhookRecord]:
    """Return the webhooks of these sites that are not disabled."""
    return session.scalars(
        select(WebhookRecord).where(
            WebhookRecord.site_id.in_(site_ids), WebhookRecord.disabled_at.is_(None)
        )
    ).all()
