"""Reading the events of a site, one after another."""

from __future__ import annotations

from sqlalchemy.orm import Session

from pool_server.activity.events import repository
from pool_server.database.records import EventRecord
from pool_server.http.identity import Caller
from pool_server.wire.events import EventPage, EventResponse


def describe_event(event: EventRecord) -> EventResponse:
    """Return an event, loaded with its site, as clients see it."""
    return EventResponse(
        event_id=event.id,
        at=event.at,
        site=event.site.name,
        kind=event.kind,
        subject=event.subject,
        details=event.details,
    )


def choose_site(caller: Caller, site: str | None) -> str:
    """Return whose events are meant: one's own site's, unless one looks after the whole pool."""
    if site is None or site == caller.site:
        return caller.site
    caller.require_role("admin")
    return site


def read_events(
    session: Session, site: str, after: int, *, kind: str | None = None, limit: int = 50
) -> EventPage:
    """Return the events of a site after a given one, oldest first."""
    found = repository.events_after(session, site, after, kind=kind, limit=limit)
    page = found[:limit]
    return EventPage(
        items=[describe_event(event) for event in page],
        last_id=page[-1].id if page else after,
        more=len(found) > len(page),
    )
