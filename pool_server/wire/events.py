"""Events that concern a site."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, Field, StringConstraints

from pool_server.wire.names import Name

LONGEST_WAIT_S = 20
"""So long a request for events may wait for one."""

EventKind = Annotated[str, StringConstraints(pattern=r"^[a-z][a-z-]{0,30}\.[a-z][a-z-]{0,30}$")]

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
