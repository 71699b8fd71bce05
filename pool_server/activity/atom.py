"""The Atom feed (RFC 4287) of a site's events."""

import re
from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any
from urllib.parse import quote
from uuid import UUID, uuid5
from xml.etree.ElementTree import Element, SubElement, tostring

from pool_server.database.records import EventRecord, SiteRecord

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
    """Return an event as a sentence; one of an unknown kind as kind and subject."""
    words = {name: _shorten(str(value)) for name, value in details.items()}
    words["subject"] = _shorten(subject)
    try:
        return TITLES[kind].format_map(words).removesuffix(": ")
    except KeyError:
        return f"{kind}: {words['subject']}"


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
    """Return where the API has what an event concerns; for what it does not have, the event."""
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
