"""Signed messages: one DSSE envelope each, with a payload type for each phase.

The payload is a JSON object: ``session``, ``phase``, ``sender``; ``transcript``, a digest of all
messages of the phases before; ``seen``, the digests of the messages of the phase just before,
by sender; and the ``body`` of the phase.
"""

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from aggregators.secure_sum.sharing import P
from pool_server.wire.signatures.keys import Envelope, PrivateKey
from pool_server.wire.signatures.keys import seal as sign
from site_agent.secure.charter import Charter

DIGEST_PATTERN = r"[0-9a-f]{64}"
Digest = Annotated[str, Field(pattern=f"^{DIGEST_PATTERN}$")]
Base64 = Annotated[str, Field(max_length=400)]
Value = Annotated[int, Field(ge=0, lt=P)]
Values = tuple[Value, ...]
ShortText = Annotated[str, Field(max_length=2000)]


class _Body(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", strict=False)


class KeysBody(_Body):
    """A server's HPKE key of this session, in base64."""

    hpke: Base64


class ShareBody(_Body):
    """A lab's shares: sealed seeds in base64 by server, and the file for the explicit server."""

    seeds: dict[str, Base64]
    server: str
    blob: Digest


class ReceiptBody(_Body):
    """The share messages that a server could open, by lab, and why not the others."""

    received: dict[str, Digest]
    refused: dict[str, ShortText]


class CommitBody(_Body):
    """A server's commitment to its sum of shares."""

    commitment: Digest


class ValuesBody(_Body):
    """Check values: of a lab's vector (``tag``), or of a server's sum of shares (``check``)."""

    values: Values


class PartsBody(_Body):
    """Check values of single shares: by lab from a server, by server from a lab."""

    parts: dict[str, Values]


class OpeningBody(_Body):
    """A server's sum of shares, a file, and the random bytes of its commitment, in hexadecimal."""

    blob: Digest
    opener: Digest


class ResultBody(_Body):
    """The result that a server computed from all openings."""

    sum: Digest
    labs: tuple[str, ...]
    weight: int
    file: Digest


class VoidBody(_Body):
    """A server's statement that it has not opened and has deleted its shares."""

    reason: ShortText


BODIES: Mapping[str, type[_Body]] = {
    "keys": KeysBody,
    "share": ShareBody,
    "receipt": ReceiptBody,
    "commit": CommitBody,
    "tag": ValuesBody,
    "check": ValuesBody,
    "blame": PartsBody,
    "answer": PartsBody,
    "opening": OpeningBody,
    "result": ResultBody,
    "void": VoidBody,
}
"""The phases, in their order, with the bodies of their messages."""

LAB_PHASES = frozenset({"share", "tag", "answer"})


class Message(BaseModel):
    """The payload of an envelope."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    session: Digest
    phase: str
    sender: str
    transcript: Digest
    seen: dict[str, Digest]
    body: dict[str, object]


@dataclass(frozen=True)
class Post:
    """One message on the board.

    `session`: SHA-256 of the session's descriptor, in hexadecimal. `envelope`: JSON of a DSSE
    envelope.
    """

    session: str
    phase: str
    sender: str
    envelope: bytes


@dataclass(frozen=True)
class Signed:
    """A message with a signature verified by a key of the charter.

    `digest`: SHA-256 of the payload. `body`: None where a sender signed something that is not a
    body of the phase.
    """

    message: Message
    digest: str
    body: BaseModel | None


def payload_type(phase: str) -> str:
    """Return the DSSE payload type of a phase."""
    return f"application/vnd.poolctl.secure-sum.{phase}+json"


def sign_message(message: Message, key: PrivateKey) -> bytes:
    """Return the envelope's JSON; the same message always gives the same bytes."""
    content = message.model_dump_json().encode()
    return sign(payload_type(message.phase), content, key).model_dump_json().encode()


@lru_cache(maxsize=1 << 14)
def verify_post(post: Post, charter: Charter) -> Signed | None:
    """Return a post's message, or None where its sender did not sign it for this place.

    Such a post says nothing about any member: the board, or a writer to it, made it. Boards are
    read again and again, so verified posts are cached.
    """
    # A lab that posts in a phase of the servers is ignored, whatever it signed.
    keys = charter.labs if post.phase in LAB_PHASES else charter.servers
    if post.sender not in keys or post.phase not in BODIES:
        return None
    try:
        envelope = Envelope.model_validate_json(post.envelope)
        if envelope.payloadType != payload_type(post.phase):
            return None
        if envelope.signed_by([keys[post.sender]]) is None:
            return None
        content = envelope.body()
        message = Message.model_validate_json(content)
    except ValueError:
        return None
    if (message.session, message.phase, message.sender) != (post.session, post.phase, post.sender):
        return None
    try:
        body = BODIES[post.phase].model_validate(message.body)
    except ValidationError:
        body = None
    return Signed(message, hashlib.sha256(content).hexdigest(), body)
