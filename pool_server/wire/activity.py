"""Events that concern a site, and entries of the audit."""

from datetime import UTC, datetime
from typing import Annotated, Any

from pydantic import AfterValidator, AwareDatetime, BaseModel, Field, StringConstraints

from pool_server.wire.names import Name, Page

EventKind = Annotated[str, StringConstraints(pattern=r"^[a-z][a-z-]{0,30}\.[a-z][a-z-]{0,30}$")]


class EventResponse(BaseModel):
    """Something to tell a site."""

    event_id: int = Field(description="Grows with time.")
    at: datetime
    site: Name = Field(description="The site concerned.")
    kind: str = Field(description="A noun and its event.")
    subject: str = Field(
        description="Address or name of the thing concerned; `sha256:DIGEST` of a version that "
        "the site may not see."
    )
    details: dict[str, Any]


class EventPage(BaseModel):
    """Events after an id, oldest first."""

    items: list[EventResponse]
    last_id: int = Field(description="Send it as `after` to continue from here.")
    more: bool = Field(description="Further events exist already.")


def _in_utc(moment: datetime) -> datetime:
    try:
        return moment.astimezone(UTC)
    except OverflowError as error:
        raise ValueError("expected a moment of the years 1 to 9999 in UTC") from error


Moment = Annotated[AwareDatetime, AfterValidator(_in_utc)]


class AuditEntry(BaseModel):
    """One act, with the names of its time."""

    entry_id: int
    at: datetime
    actor: str = Field(description="Site and name of the token.")
    user: str = Field(
        default="",
        description="Owner of the token; empty for one of the site itself, and as `token_id`.",
    )
    action: str = Field(description="A noun and the act on it.")
    subject: str
    outcome: str = Field(description="`done`, `refused`, or another end.")
    details: dict[str, Any]
    token_id: str = Field(description="Empty for acts by others on your own site's things.")
    address: str = Field(description="Origin of the request; empty as `token_id`.")
    request_id: str


AuditPage = Page[AuditEntry]
