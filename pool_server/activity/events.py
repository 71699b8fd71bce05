"""Events that concern a site: written in the transaction of the act itself, read in two forms.

Other nouns call `write_event` or `write_events` as the last step of an act. Programs read
``/events``, oldest first, and may wait there for the next one. Feed readers poll ``/events/feed``,
newest first: `pool_server.activity.events` makes the document, and a feed token in the address
authenticates the reader (`pool_server.http.identity.feed_reader`).
"""

import hashlib
import re
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Annotated, Any
from urllib.parse import quote
from uuid import UUID, uuid5
from xml.etree.ElementTree import Element, SubElement, tostring

import anyio.to_thread
from fastapi import APIRouter, Query, Request, Response
from sqlalchemy import select
from sqlalchemy.orm import Session, contains_eager

from pool_server.database.engine import wait_for_turn
from pool_server.database.records import EventRecord, SiteRecord
from pool_server.errors import MissingError
from pool_server.http.file_response import names_this
from pool_server.http.identity import Caller, FeedReader, SignedIn, needs
from pool_server.http.parameters import Limit, describe
from pool_server.http.session import Parts, ProcessTraffic, ReadingSession
from pool_server.wire.activity import LONGEST_WAIT_S, EventKind, EventPage, EventResponse
from pool_server.wire.names import Name

MEDIA_TYPE = "application/atom+xml"

_NAMESPACE = UUID("0b9d4f3e-6f0c-4c6e-9a51-7a1d2f8f1c55")
_MOST_LISTED = 20
# XML 1.0 cannot write these characters; names and reasons come from other sites.
_NOT_XML = re.compile("[^\t\n\r\u0020-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")

TITLES = {
    "evaluation.posted": "{site} evaluated {subject}",
    "key.imported": "A key of your site came with a bundle from {origin}",
    "key.registered": "The key {name} of your site was registered",
    "key.revoked": "The key {subject} of your site was revoked: {reason}",
    "model.deleted": "The model {subject} was deleted",
    "model.shared": "{by} shares {subject} with your site",
    "round.asked": "{by} asks your site to join a round on {base}",
    "version.changed": "The description of {subject} changed",
    "version.deleted": "{subject} was deleted",
    "version.downloaded": "{by} downloaded {subject}",
    "version.flagged": "{subject} was withdrawn, and models of your site hold it: {reason}",
    "version.handed-on": "{by} passed {subject} on as {as}",
    "version.merged": "{by} merged {subject} into {into}",
    "version.published": "{subject} was published",
    "version.quarantined": "{subject} was quarantined: {reason}",
    "version.released": "{subject} was released from quarantine",
    "version.replaced": "{subject} was replaced by {successor}",
    "version.successor-offered": "{by} offers {successor} in place of {subject}",
    "version.waiting": "{subject} waits for a curator",
    "version.withdrawn": "{subject} was withdrawn: {reason}",
    "versions.exported": "{subject} exported {count} models of your site",
}
"""A sentence for each kind of event, of its subject and details."""


def write_feed(
    site: SiteRecord, events: Sequence[EventRecord], *, root: str, address: str, older: str | None
) -> bytes:
    """Return the feed of a site's events, newest first, as XML in UTF-8.

    `root` is the address of the pool, with a slash at the end; `address` and `older` are those of
    this page and of the one after it.
    """
    feed = Element("feed", {"xmlns": "http://www.w3.org/2005/Atom", "xml:lang": "en"})
    _add(feed, "id", _identifier(site.name, site.created_at))
    _add(feed, "title", f"{site.display_name or site.name}: events in the pool")
    _add(feed, "updated", (events[0].at if events else site.created_at).isoformat())
    _add(SubElement(feed, "author"), "name", "poolctl pool")
    _link(feed, "self", address, MEDIA_TYPE)
    if older is not None:
        _link(feed, "next", older, MEDIA_TYPE)
    for event in events:
        entry = SubElement(feed, "entry")
        _add(entry, "id", _identifier(site.name, event.at, event.id))
        _add(entry, "title", describe_event(event.kind, event.subject, event.details))
        _add(entry, "updated", event.at.isoformat())
        _link(entry, "alternate", f"{root}api/v1/{_path_of(site, event)}", "application/json")
        SubElement(entry, "category", {"term": event.kind})
        _add(entry, "content", describe_details(event.details))
    document: bytes = tostring(feed, encoding="utf-8", xml_declaration=True)
    return document


def describe_event(kind: str, subject: str, details: Mapping[str, Any]) -> str:
    """Return an event as a sentence; an event of an unknown kind as kind and subject."""
    values = {name: _shorten(str(value)) for name, value in details.items()}
    values["subject"] = _shorten(subject)
    try:
        return TITLES[kind].format_map(values).removesuffix(": ")
    except KeyError:
        return f"{kind}: {values['subject']}"


def describe_details(details: Mapping[str, Any]) -> str:
    """Return the details of an event, one a line."""
    lines = []
    for name, value in details.items():
        text = str(value)
        if isinstance(value, list):
            text = ", ".join(map(str, value[:_MOST_LISTED]))
            text += f" and {len(value) - _MOST_LISTED} more" if len(value) > _MOST_LISTED else ""
        if text:
            lines.append(f"{name.replace('_', ' ')}: {text}")
    return "\n".join(lines)


def _shorten(text: str) -> str:
    """Return an address without its scheme, and a digest by its first digits."""
    return text[:19] if text.startswith("sha256:") else text.removeprefix("pool://")


def _path_of(site: SiteRecord, event: EventRecord) -> str:
    """Return the API path of an event's subject, or of the event if the subject has none."""
    subject, noun = event.subject, event.kind.partition(".")[0]
    if subject.startswith("pool://"):
        model, at, reference = subject.removeprefix("pool://").partition("@")
        return f"models/{quote(model)}" + (f"/versions/{quote(reference)}" if at else "")
    if subject.startswith("sha256:"):
        return f"lineage/{quote(subject.removeprefix('sha256:'))}"
    if noun == "round":
        return f"rounds/{quote(subject)}"
    if noun == "key":
        return f"sites/{quote(site.name)}/keys"
    return f"events?site={quote(site.name)}&after={event.id - 1}&limit=1"


def _identifier(site: str, at: datetime, event_id: int | None = None) -> str:
    """Return an identifier that stays, also when the pool moves to another address.

    The moment, in microseconds, keeps the sites of the same name in two pools apart.
    """
    return uuid5(_NAMESPACE, f"{site} {at.isoformat()} {event_id}").urn


def _add(parent: Element, name: str, text: str) -> None:
    SubElement(parent, name).text = _NOT_XML.sub("\ufffd", text)


def _link(parent: Element, relation: str, address: str, media_type: str) -> None:
    attributes = {"rel": relation, "href": _NOT_XML.sub("", address), "type": media_type}
    SubElement(parent, "link", attributes)


router = APIRouter(tags=["events"], dependencies=[needs("events")])

LOOK_INTERVAL_S = 0.5

OfSite = Annotated[
    Name | None,
    Query(
        description="Default: your site. Only admins of the pool may name another.",
        examples=["site-a"],
    ),
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
    lock_events(session)
    session.add_all(events)
    session.flush()


def lock_events(session: Session) -> None:
    """Lock out other transactions that write events until this one ends.

    Readers continue after the highest id they have seen, so no lower one may appear later;
    PostgreSQL numbers rows before they are committed.
    """
    wait_for_turn(session, "events")


def list_newest(
    session: Session, site_id: int, before: int | None, limit: int
) -> Sequence[EventRecord]:
    """Return a site's events with a lower id, newest first, one more than `limit`."""
    query = select(EventRecord).where(EventRecord.site_id == site_id)
    if before is not None:
        query = query.where(EventRecord.id < before)
    return session.scalars(query.order_by(EventRecord.id.desc()).limit(limit + 1)).all()


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
async def list_events(  # noqa: PLR0917 - FastAPI gives them by name
    request: Request,
    caller: SignedIn,
    parts: Parts,
    traffic: ProcessTraffic,
    after: Annotated[
        int, Query(ge=0, le=2**62, description="`last_id` of the page before.", examples=[42])
    ] = 0,
    kind: Annotated[
        EventKind | None,
        Query(description="Only events of this kind.", examples=["version.flagged"]),
    ] = None,
    site: OfSite = None,
    limit: Limit = 50,
    newest: Annotated[
        bool, Query(description="The last `limit` events instead, newest first.", examples=[True])
    ] = False,
    wait_s: Annotated[
        float,
        Query(
            ge=0,
            le=LONGEST_WAIT_S,
            description="If there is no event yet, wait up to this many seconds for one.",
            examples=[15],
        ),
    ] = 0,
) -> EventPage:
    """Return the events of your site after an id, oldest first.

    Repeat with `after` set to `last_id`: no event is missed or repeated.
    """
    of_site = choose_site(caller, site)

    def look() -> EventPage:
        with parts.database.read() as session:
            return read_events(session, of_site, after, kind=kind, limit=limit, newest=newest)

    deadline = time.monotonic() + wait_s
    while True:
        page = await anyio.to_thread.run_sync(look)
        if newest or page.items or time.monotonic() >= deadline or traffic.is_stopping:
            return page
        if await request.is_disconnected():
            return page
        await traffic.pause(LOOK_INTERVAL_S)


@router.get(
    "/events/feed",
    summary="Follow the events in a feed reader",
    response_class=Response,
    responses={
        200: {
            "description": "An Atom feed (RFC 4287), newest first.",
            "content": {MEDIA_TYPE: {"schema": {"type": "string"}}},
        },
        304: {"description": "Nothing has changed since the answer with this ETag."},
    },
)
def read_feed(  # noqa: PLR0917 - FastAPI gives them by name
    request: Request,
    caller: FeedReader,
    session: ReadingSession,
    before: Annotated[
        int | None,
        Query(ge=1, le=2**62, description="Only older events; `rel=next` has it.", examples=[42]),
    ] = None,
    site: OfSite = None,
    limit: Limit = 50,
) -> Response:
    """Return the events of your site as an Atom feed.

    Feed readers cannot send headers: a token of the kind `feed` may stand in the address instead,
    as `?token=`. It reads this feed and nothing else. Repeat the answer's ETag as `If-None-Match`.
    """
    name = choose_site(caller, site)
    found_site = session.scalar(select(SiteRecord).where(SiteRecord.name == name))
    if found_site is None:
        raise MissingError(f"the pool has no site {name!r}", code="site_not_found")
    events = list_newest(session, found_site.id, before, limit)
    page = events[:limit]
    older = page[-1].id if len(events) > len(page) else None
    body = write_feed(
        found_site,
        page,
        root=str(request.base_url),
        address=str(request.url),
        older=None if older is None else str(request.url.include_query_params(before=older)),
    )
    # The document contains no creation time, so its digest changes only with the events.
    headers = {
        "etag": f'"{hashlib.sha256(body).hexdigest()}"',
        "cache-control": "private, no-cache",
    }
    if names_this(request.headers, headers["etag"]):
        return Response(status_code=304, headers=headers)
    return Response(body, headers=headers, media_type=MEDIA_TYPE)
