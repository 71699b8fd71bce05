"""Keys of sites, and signed statements, as they travel."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, Field, StringConstraints

from pool_server.wire.names import Digest, Name
from pool_server.wire.signatures.keys import ENVELOPE_EXAMPLE, KEY_ID_EXAMPLE, Envelope
from pool_server.wire.signatures.statements import Revocation

CHALLENGE_TYPE = "application/vnd.poolctl.key-challenge"
"""Payload type of signed challenges: such a signature is worth nothing on a statement."""
CHALLENGE_START = "poolctl-key-challenge/1"

ORIGIN_PATTERN = r"^[a-z0-9][a-z0-9._-]{0,63}@[A-Za-z0-9._:\[\]-]{1,255}$"

Origin = Annotated[str, StringConstraints(pattern=ORIGIN_PATTERN)]
KeyText = Annotated[str, StringConstraints(pattern=r"^[A-Za-z0-9+/]{43}=$")]

_KEY_TEXT = "11qYAYKxCrfVS/7TyWQHOg7hcvPapiMlrwIaaPcHURo="
_DIGEST = "9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08"
_CHALLENGE = f"{CHALLENGE_START} site-a {KEY_ID_EXAMPLE} 1772366400 {_DIGEST}"
_SIGNATURE = (
    "2WAfaHm5jluo0w+0rk8uVkluELJYWjSmU9x7EUzx+AyteDGJ4/nqyJXfmAUVFIAoQafWm7AxBZNw5M9ixNHiCA=="
)

_KEY_EXAMPLE: dict[str, Any] = {
    "site": "site-a",
    "key_id": KEY_ID_EXAMPLE,
    "name": "laptop",
    "public_key": _KEY_TEXT,
    "origin": None,
    "created_at": "2026-03-01T12:00:00Z",
    "created_by": "site-a/laptop",
    "revoked_at": None,
    "revoked_as": None,
}


class ChallengeRequest(BaseModel):
    """Ask for something to sign, to prove that one holds a key."""

    model_config = ConfigDict(
        extra="forbid", json_schema_extra={"examples": [{"public_key": _KEY_TEXT}]}
    )

    public_key: KeyText = Field(description="The 32 bytes of an Ed25519 public key, in base64.")


class ChallengeResponse(BaseModel):
    """The challenge to sign, and its end."""

    model_config = ConfigDict(
        json_schema_extra={
            "examples": [{"challenge": _CHALLENGE, "expires_at": "2026-03-01T12:00:00Z"}]
        }
    )

    challenge: str = Field(
        description="Sign it as the body of a DSSE envelope of type "
        f"`{CHALLENGE_TYPE}`; it names the site and the key."
    )
    expires_at: datetime


class KeyRequest(BaseModel):
    """Register a key, with the proof that one holds it."""

    model_config = ConfigDict(
        extra="forbid",
        json_schema_extra={
            "examples": [
                {
                    "name": "laptop",
                    "public_key": _KEY_TEXT,
                    "challenge": _CHALLENGE,
                    "signature": _SIGNATURE,
                }
            ]
        },
    )

    name: Name
    public_key: KeyText
    challenge: str = Field(max_length=400, description="As the pool gave it.")
    signature: str = Field(max_length=100, description="Of the challenge, in base64.")


class KeyRevocationRequest(BaseModel):
    """End a key."""

    model_config = ConfigDict(
        extra="forbid", json_schema_extra={"examples": [{"reason": "superseded"}]}
    )

    reason: Revocation = Field(
        description="`superseded`: what was signed before stays good. `compromised`: somebody else "
        "may have signed with it, so that no signature of it counts any more."
    )


class KeyResponse(BaseModel):
    """A site's public key as the pool knows it."""

    model_config = ConfigDict(json_schema_extra={"examples": [_KEY_EXAMPLE]})

    site: Name
    key_id: Digest = Field(description="SHA-256 of the raw public key: the fingerprint.")
    name: str
    public_key: KeyText
    origin: str | None = Field(
        default=None,
        description="`SITE@POOL` for a key that came with models imported from another pool; "
        "absent for one that the site proved to hold.",
    )
    created_at: datetime
    created_by: str
    revoked_at: datetime | None = None
    revoked_as: Revocation | None = None


class KeyList(BaseModel):
    """All keys of a site, oldest first."""

    model_config = ConfigDict(json_schema_extra={"examples": [{"items": [_KEY_EXAMPLE]}]})

    items: list[KeyResponse]


class ForeignKey(BaseModel):
    """The key of an imported statement: that of a site as another pool knew it."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    origin: Origin = Field(description="`SITE@POOL`: the site that signed, and where.")
    name: Name
    public_key: KeyText


class SignedStatement(BaseModel):
    """A statement that comes with a file, or is added to a version later."""

    model_config = ConfigDict(
        extra="forbid",
        frozen=True,
        json_schema_extra={"examples": [{"envelope": ENVELOPE_EXAMPLE}]},
    )

    envelope: Envelope
    foreign_key: ForeignKey | None = Field(
        default=None,
        description="For a version imported from another pool, with the statement that was signed "
        "there; absent when signed with a registered key of the site.",
    )

    @property
    def origin(self) -> str | None:
        """``SITE@POOL`` where an imported version was signed."""
        return None if self.foreign_key is None else self.foreign_key.origin


class StatementResponse(BaseModel):
    """The statement that a site signed of a version, with the key to verify it."""

    model_config = ConfigDict(
        json_schema_extra={
            "examples": [
                {
                    "address": "pool://site-a/face-68@2",
                    "digest": _DIGEST,
                    "envelope": ENVELOPE_EXAMPLE,
                    "key": _KEY_EXAMPLE,
                    "origin": None,
                    "accepted_at": "2026-03-01T12:00:00Z",
                }
            ]
        }
    )

    address: str
    digest: Digest
    envelope: Envelope
    key: KeyResponse
    origin: str | None = Field(
        default=None, description="`SITE@POOL` where it was signed, of an imported version."
    )
    accepted_at: datetime
