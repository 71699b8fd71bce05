"""Events for sites, written in the transaction of the act itself."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from sqlalchemy.orm import Session

from pool_server.activity.events import repository
from pool_server.database.engine import wait_for_turn
from pool_server.database.records import EventRecord, WebhookDeliveryRecord, now_utc


@dataclass(frozen=True)
class NewEvent:
    """An event for one site.

    Attributes
    ----------
    site_id : int
        Who receives it.
    kind : str
        A noun and what happened to it: ``"version.withdrawn"``.
    subject : str
        The address or name of what it happened to.
    details : dict
        Values for programs; JSON can hold them.
    """

    site_id: int
    kind: str
    subject: str
    details: dict[str, Any]


def write_event(session: Session, site_id: int, kind: str, subject: str, **details: Any) -> None:
    """Write one event for a site, and schedule the calls of its webhooks.

    Part of the caller's transaction: nobody hears of an act that did not happen. Best done
    after the other writes of the act, for events are written one transaction at a time.

    Examples
    --------
    >>> write_event(session, site.id, "version.quarantined", address, reason=why)  # doctest: +SKIP
    """
    write_events(session, [NewEvent(site_id, kind, subject, details)])


def write_events(session: Session, news: Iterable[NewEvent]) -> None:
    """Write several events, in the same few statements whatever their number."""
    events = [
        EventRecord(
            site_id=each.site_id, kind=each.kind, subject=each.subject[:256], details=each.details
        )
        for each in news
    ]
    if not events:
        return
    hold_events(session)
    session.add_all(events)
    session.flush()
    now = now_utc()
    webhooks = repository.live_webhooks(session, {event.site_id for event in events})
    session.add_all(
        WebhookDeliveryRecord(
            webhook_id=webhook.id, event_id=event.id, attempts=0, next_attempt_at=now, last_error=""
        )
        for event in events
        for webhook in webhooks
        if webhook.site_id == event.site_id and (not webhook.kinds or event.kind in webhook.kinds)
    )


def hold_events(session: Session) -> None:
    """Keep all other transactions from writing events until this one ends.

    Readers go on after the highest id that they have seen, so no lower one may appear later;
    PostgreSQL numbers rows before they are committed.
    """
    wait_for_turn(session, "events")
