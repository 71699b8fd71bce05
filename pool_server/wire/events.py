"""Events that concern a site, and the addresses that the pool calls with them.

A webhook is called with ``POST`` and a body of JSON (`EventResponse`). Its headers::

    X-Pool-Event        what happened, for example version.flagged
    X-Pool-Delivery     the same for every attempt of one event at one webhook
    X-Pool-Timestamp    seconds since 1970 of this attempt
    X-Pool-Signature    sha256=HMAC-SHA256(secret, timestamp + "." + body) in hexadecimal

Whoever receives it computes the signature anew over the bytes of the body as they came, compares
it in constant time, and refuses timestamps that are minutes old. Anything but a status of 200 to
299 counts as a failure and is tried again later; redirects are not followed.
"""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, Field, StringConstraints

from pool_server.wire.names import Name

LONGEST_WAIT_S = 20
"""So long a request for events may wait for one."""

MOST_EVENTS = 200

EventKind = Annotated[str, StringConstraints(pattern=r"^[a-z][a-z-]{0,30}\.[a-z][a-z-]{0,30}$")]
WebhookUrl = Annotated[
    str, StringConstraints(max_length=2000, pattern=r"^https?://[^\x00-\x20\x7f-\x9f]+$")
]
WEBHOOK_ID_PATTERN = r"^[0-9a-f]{16}$"

_EVENT_EXAMPLE: dict[str, Any] = {
    "event_id": 42,
    "at": "2026-03-01T12:00:00Z",
    "site": "site-c",
    "kind": "version.flagged",
    "subject": "pool://site-a/face-68@2",
    "details": {
        "reason": "consent-withdrawn",
        "effect": "refuse",
        "versions": ["pool://site-c/merged@1"],
    },
}
_WEBHOOK_EXAMPLE: dict[str, Any] = {
    "webhook_id": "4f1d2c3b4a596877",
    "site": "site-a",
    "url": "https://lab.example/pool-events",
    "kinds": ["version.flagged", "version.withdrawn"],
    "created_at": "2026-03-01T12:00:00Z",
    "created_by": "site-a/laptop",
    "disabled_at": None,
    "waiting": 0,
    "last_error": "",
}


class EventResponse(BaseModel):
    """Something that a site should hear of."""

    model_config = ConfigDict(json_schema_extra={"examples": [_EVENT_EXAMPLE]})

    event_id: int = Field(description="Grows with time.")
    at: datetime
    site: Name = Field(description="Whom it concerns.")
    kind: str = Field(description="A noun and what happened to it.")
    subject: str = Field(
        description="Address or name of what it happened to; `sha256:DIGEST` of a version that "
        "the site may not see."
    )
    details: dict[str, Any]


class EventPage(BaseModel):
    """Events after a given one, oldest first."""

    model_config = ConfigDict(
        json_schema_extra={"examples": [{"items": [_EVENT_EXAMPLE], "last_id": 42, "more": False}]}
    )

    items: list[EventResponse]
    last_id: int = Field(description="Give it as `after` to go on from here.")
    more: bool = Field(description="There are further events already.")


class WebhookRequest(BaseModel):
    """Have an address called with the events of a site."""

    model_config = ConfigDict(
        extra="forbid",
        json_schema_extra={
            "examples": [{"url": "https://lab.example/pool-events", "kinds": ["version.flagged"]}]
        },
    )

    url: WebhookUrl
    kinds: list[EventKind] = Field(
        default_factory=list, max_length=50, description="Which events; all of them when empty."
    )
    site: Name | None = Field(default=None, description="One's own when left out.")


class WebhookResponse(BaseModel):
    """An address that is called; never its secret."""

    model_config = ConfigDict(json_schema_extra={"examples": [_WEBHOOK_EXAMPLE]})

    webhook_id: str = Field(pattern=WEBHOOK_ID_PATTERN)
    site: Name
    url: str
    kinds: list[str]
    created_at: datetime
    created_by: str
    disabled_at: datetime | None = Field(
        description="Set when too many attempts in a row have failed; it is not called any more."
    )
    waiting: int = Field(description="Events that are still to be delivered.")
    last_error: str = Field(description="Of the newest attempt that failed; empty after none.")


class WebhookCreatedResponse(WebhookResponse):
    """A new webhook with the secret that signs what is sent there."""

    model_config = ConfigDict(
        json_schema_extra={"examples": [{**_WEBHOOK_EXAMPLE, "secret": "hook_..."}]}
    )

    secret: str = Field(description="Shown this once.")


class WebhookList(BaseModel):
    """The webhooks of a site, oldest first."""

    model_config = ConfigDict(json_schema_extra={"examples": [{"items": [_WEBHOOK_EXAMPLE]}]})

    items: list[WebhookResponse]


class WebhookTestResponse(BaseModel):
    """What an address said when it was called just now."""

    model_config = ConfigDict(
        json_schema_extra={"examples": [{"delivered": True, "status": 204, "error": ""}]}
    )

    delivered: bool
    status: int | None = Field(description="HTTP status of its answer; none without an answer.")
    error: str
