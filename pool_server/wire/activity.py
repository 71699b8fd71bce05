"""Events that concern a site, and entries of the audit."""

from datetime import UTC, datetime
from typing import Annotated, Any

from pydantic import AfterValidator, AwareDatetime, BaseModel, Field, StringConstraints

from pool_server.wire.names import Name, Page

LONGEST_WAIT_S = 20
"""So long a request for events may wait for one."""

EventKind = Annotated[str, StringConstraints(pattern=r"^[a-z][a-z-]{0,30}\.[a-z][a-z-]{0,30}$")]


class EventResponse(BaseModel):
    """Something that a site should hear of."""

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

    items: list[EventResponse]
    last_id: int = Field(description="Give it as `after` to go on from here.")
    more: bool = Field(description="There are further events already.")


def _in_utc(moment: datetime) -> datetime:
    try:
        return moment.astimezone(UTC)
    except OverflowError as error:
        raise ValueError("expected a moment of the years 1 to 9999 in UTC") from error


Moment = Annotated[AwareDatetime, AfterValidator(_in_utc)]


class AuditEntry(BaseModel):
    """One act. Names are those that were true at the time."""

    entry_id: int
    at: datetime
    actor: str = Field(description="Site and name of the token.")
    user: str = Field(
        default="",
        description="Whose token it was; empty for one of the site itself, and as `token_id`.",
    )
    action: str = Field(description="A noun and what was done to it.")
    subject: str
    outcome: str = Field(description="`done`, `refused`, or how else it ended.")
    details: dict[str, Any]
    token_id: str = Field(description="Empty in what others did to things of one's own site.")
    address: str = Field(description="Where the request came from; empty as `token_id`.")
    request_id: str


AuditPage = Page[AuditEntry]
