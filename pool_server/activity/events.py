"""Events that concern a site, written in the transaction of the act itself.

Other nouns call `write_event` or `write_events` as the last step of an act. Programs read
``/events``, oldest first.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Annotated, Any

from fastapi import APIRouter, Query
from sqlalchemy import select
from sqlalchemy.orm import Session, contains_eager

from pool_server.database.engine import wait_for_turn
from pool_server.database.records import EventRecord, SiteRecord
from pool_server.http.identity import Caller, SignedIn, needs
from pool_server.http.parameters import Limit, describe
from pool_server.http.session import ReadingSession
from pool_server.wire.activity import EventKind, EventPage, EventResponse
from pool_server.wire.names import Name

TITLES = {
    "evaluation.posted": "{site} evaluated {subject}",
    "key.imported": "A key of your site came with an export from {origin}",
    "key.registered": "The key {name} of your site was registered",
    "key.revoked": "The key {subject} of your site was revoked: {reason}",
    "model.shared": "{by} shares {subject} with your site",
    "round.asked": "{by} asks your site to join a round on {base}",
    "version.changed": "The description of {subject} changed",
    "version.deleted": "{subject} was deleted",
    "version.downloaded": "{by} downloaded {subject}",
    "version.exported": "{by} exported {subject}",
    "version.flagged": "{subject} was withdrawn, and models of your site hold it: {reason}",
    "version.handed-on": "{by} passed {subject} on as {as}",
    "version.merged": "{by} merged {subject} into {into}",
    "version.published": "{subject} was published",
    "version.quarantined": "{subject} was quarantined: {reason}",
    "version.released": "{subject} was released from quarantine",
    "version.replaced": "{subject} was replaced by {successor}",
    "version.waiting": "{subject} waits for a curator",
    "version.withdrawn": "{subject} was withdrawn: {reason}",
}
"""A sentence for each kind of event, of its subject and details."""


def describe_event(kind: str, subject: str, details: Mapping[str, Any]) -> str:
    """Return an event as a sentence; an event of an unknown kind as kind and subject."""
    values = {name: _shorten(str(value)) for name, value in details.items()}
    values["subject"] = _shorten(subject)
    try:
        return TITLES[kind].format_map(values).removesuffix(": ")
    except KeyError:
        return f"{kind}: {values['subject']}"


def _shorten(text: str) -> str:
    """Return an address without its scheme, and a digest by its first digits."""
    return text[:19] if text.startswith("sha256:") else text.removeprefix("pool://")


router = APIRouter(tags=["events"], dependencies=[needs("events")])


OfSite = Annotated[
    Name | None, Query(description="Default: your site. Only admins of the pool may name another.")
]


@dataclass(frozen=True)
class NewEvent:
    """An event for one site: a kind, as ``"version.withdrawn"``, and the address of a thing."""

    site_id: int
    kind: str
    subject: str
    details: dict[str, Any]


def write_event(session: Session, site_id: int, kind: str, subject: str, **details: Any) -> None:
    """Write one event (``"version.quarantined"``) for a site.

    Part of the caller's transaction: nobody hears of an act that did not happen. Call it after
    the other writes of the act, because only one transaction at a time can write events.
    """
    write_events(session, [NewEvent(site_id, kind, subject, details)])


def write_events(session: Session, news: Iterable[NewEvent]) -> None:
    """Write several events, in a constant number of statements."""
    events = [
        EventRecord(
            site_id=event.site_id,
            kind=event.kind,
            subject=event.subject[:256],
            details=event.details,
        )
        for event in news
    ]
    if not events:
        return
    # Readers continue after the highest id they have seen, so no lower one may appear later;
    # PostgreSQL numbers rows before they are committed.
    wait_for_turn(session, "events")
    session.add_all(events)
    session.flush()


def choose_site(caller: Caller, site: str | None) -> str:
    """Return the site to read events of; only pool admins may choose another than their own."""
    if site is None or site == caller.site:
        return caller.site
    caller.require_role("admin")
    return site


def read_events(
    session: Session,
    site: str,
    after: int,
    *,
    kind: str | None = None,
    limit: int = 50,
    newest: bool = False,
) -> EventPage:
    """Return the events of a site after an id, oldest first, or only the newest of them."""
    query = (
        select(EventRecord)
        .join(EventRecord.site)
        .options(contains_eager(EventRecord.site))
        .where(SiteRecord.name == site, EventRecord.id > after)
    )
    if kind is not None:
        query = query.where(EventRecord.kind == kind)
    order = EventRecord.id.desc() if newest else EventRecord.id.asc()
    events = session.scalars(query.order_by(order).limit(limit + 1)).all()
    page = events[:limit]
    last = (page[0] if newest else page[-1]) if page else None
    return EventPage(
        items=[
            describe(EventResponse, event, event_id=event.id, site=event.site.name)
            for event in page
        ],
        last_id=after if last is None else last.id,
        more=len(events) > len(page),
    )


@router.get("/events", summary="Read events")
def list_events(  # noqa: PLR0917 - FastAPI gives them by name
    caller: SignedIn,
    session: ReadingSession,
    after: Annotated[int, Query(ge=0, le=2**62, description="`last_id` of the page before.")] = 0,
    kind: Annotated[EventKind | None, Query(description="Only events of this kind.")] = None,
    site: OfSite = None,
    limit: Limit = 50,
    newest: Annotated[
        bool, Query(description="The last `limit` events instead, newest first.")
    ] = False,
) -> EventPage:
    """Return the events of your site after an id, oldest first.

    Repeat with `after` set to `last_id`: no event is missed or repeated.
    """
    of_site = choose_site(caller, site)
    return read_events(session, of_site, after, kind=kind, limit=limit, newest=newest)
