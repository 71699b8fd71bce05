"""The board of the secure sum: sessions, signed messages, and files that the pool cannot read."""

from datetime import datetime
from typing import Annotated

from pydantic import AwareDatetime, BaseModel, Field, StringConstraints

from pool_server.wire.names import Digest, Name, Page, RequestModel
from pool_server.wire.rounds import ROUND_KEY_PATTERN

MOST_DESCRIPTOR_CHARACTERS = 1 << 20
MOST_ENVELOPE_CHARACTERS = 3 << 19
MOST_SITES = 1100

Text = Annotated[str, StringConstraints(min_length=1, pattern=r"^[^\x00]*$")]
RoundKey = Annotated[str, StringConstraints(pattern=ROUND_KEY_PATTERN)]


class SecureSessionRequest(RequestModel):
    """Open a session of the secure sum; its identifier is the SHA-256 of the descriptor."""

    descriptor: Text = Field(
        max_length=MOST_DESCRIPTOR_CHARACTERS,
        description="What the sites agreed on; the pool does not read it.",
    )
    sites: list[Name] = Field(
        min_length=2,
        max_length=MOST_SITES,
        description="Sites of labs and of aggregation servers: only they see the session.",
    )
    ends_at: AwareDatetime = Field(
        description="When the session should be over; the pool deletes it some time after that."
    )
    round_id: RoundKey | None = Field(
        default=None, description="The round whose contributions are summed."
    )


class SecureSessionSummary(BaseModel):
    """A session of the secure sum, as listings have it."""

    session_id: Digest
    sites: list[Name]
    ends_at: datetime
    round_id: str | None
    created_at: datetime
    created_by: str


class SecureSessionResponse(SecureSessionSummary):
    """A session of the secure sum."""

    descriptor: str


SecureSessionPage = Page[SecureSessionSummary]


class SecurePostRequest(RequestModel):
    """Post a signed message: one for each sender and phase, which nobody can change."""

    sender: Name = Field(description="Site that the message is from.")
    phase: Name
    envelope: Text = Field(
        max_length=MOST_ENVELOPE_CHARACTERS,
        description="JSON of a DSSE envelope. The pool does not verify it: its readers do.",
    )


class SecurePostResponse(BaseModel):
    """A message as it was posted."""

    number: int = Field(ge=1, description="Grows with every message of a session.")
    phase: Name
    sender: Name
    envelope: str
    posted_at: datetime


class SecurePostList(BaseModel):
    """Messages of a session in the order of their arrival; ask again `after` the last of them."""

    items: list[SecurePostResponse]
    more: bool = Field(description="There are further messages now.")


class SecureFileRequest(RequestModel):
    """Announce a file of a session; it is sent in parts as a model is."""

    site: Name = Field(description="Whose file it is.")
    size_bytes: int = Field(ge=1)
    digest: Digest
