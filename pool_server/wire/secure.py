"""The board of the secure sum: sessions, signed messages, and files that the pool cannot read."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Any

from pydantic import AwareDatetime, BaseModel, Field, StringConstraints

from pool_server.wire.names import Digest, Name, NextCursor, request_config, response_config
from pool_server.wire.rounds import ROUND_KEY_PATTERN

MOST_DESCRIPTOR_CHARACTERS = 1 << 20
MOST_ENVELOPE_CHARACTERS = 3 << 19
MOST_SITES = 1100

Text = Annotated[str, StringConstraints(min_length=1, pattern=r"^[^\x00]*$")]
RoundKey = Annotated[str, StringConstraints(pattern=ROUND_KEY_PATTERN)]

_DIGEST_EXAMPLE = "9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08"
_SESSION_EXAMPLE: dict[str, Any] = {
    "session_id": _DIGEST_EXAMPLE,
    "descriptor": '{"attempt": 1}',
    "sites": ["server-1", "server-2", "site-a", "site-b", "site-c"],
    "ends_at": "2026-03-08T12:00:00Z",
    "round_id": "4f1d2c3b4a596877",
    "created_at": "2026-03-01T12:00:00Z",
    "created_by": "site-a/laptop",
}
_SUMMARY_EXAMPLE = {key: _SESSION_EXAMPLE[key] for key in _SESSION_EXAMPLE if key != "descriptor"}
_POST_EXAMPLE: dict[str, Any] = {
    "number": 7,
    "phase": "share",
    "sender": "site-a",
    "envelope": '{"payloadType": "...", "payload": "...", "signatures": []}',
    "posted_at": "2026-03-01T12:00:00Z",
}


class SecureSessionRequest(BaseModel):
    """Open a session of the secure sum; its identifier is the SHA-256 of the descriptor."""

    model_config = request_config(
        {key: _SESSION_EXAMPLE[key] for key in ("descriptor", "sites", "ends_at", "round_id")}
    )

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

    model_config = response_config(_SESSION_EXAMPLE)

    descriptor: str


class SecureSessionPage(BaseModel):
    """One page of sessions, newest first."""

    model_config = response_config({"items": [_SUMMARY_EXAMPLE], "next_cursor": "djE6YmVmb3JlPTQy"})

    items: list[SecureSessionSummary]
    next_cursor: NextCursor = None


class SecurePostRequest(BaseModel):
    """Post a signed message: one for each sender and phase, which nobody can change."""

    model_config = request_config(
        {key: _POST_EXAMPLE[key] for key in ("sender", "phase", "envelope")}
    )

    sender: Name = Field(description="Site that the message is from.")
    phase: Name
    envelope: Text = Field(
        max_length=MOST_ENVELOPE_CHARACTERS,
        description="JSON of a DSSE envelope. The pool does not verify it: its readers do.",
    )


class SecurePostResponse(BaseModel):
    """A message as it was posted."""

    model_config = response_config(_POST_EXAMPLE)

    number: int = Field(ge=1, description="Grows with every message of a session.")
    phase: Name
    sender: Name
    envelope: str
    posted_at: datetime


class SecurePostList(BaseModel):
    """Messages of a session in the order of their arrival; ask again `after` the last of them."""

    model_config = response_config({"items": [_POST_EXAMPLE], "more": False})

    items: list[SecurePostResponse]
    more: bool = Field(description="There are further messages now.")


class SecureFileRequest(BaseModel):
    """Announce a file of a session; it is sent in parts as a model is."""

    model_config = request_config(
        {"site": "site-a", "size_bytes": 12_345_678, "digest": _DIGEST_EXAMPLE}
    )

    site: Name = Field(description="Whose file it is.")
    size_bytes: int = Field(ge=1)
    digest: Digest
