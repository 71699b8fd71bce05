"""Keys of sites, and signed statements, on the wire."""

from datetime import datetime
from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field, StringConstraints

from pool_server.wire.names import Digest, ItemList, Name, RequestModel
from pool_server.wire.signatures.keys import Envelope
from pool_server.wire.signatures.statements import Revocation

CHALLENGE_TYPE = "application/vnd.poolctl.key-challenge"
"""Payload type of signed challenges: such a signature is worth nothing on a statement."""
CHALLENGE_START = "poolctl-key-challenge/1"

ORIGIN_PATTERN = r"^[a-z0-9][a-z0-9._-]{0,63}@[A-Za-z0-9._:\[\]-]{1,255}$"

Origin = Annotated[str, StringConstraints(pattern=ORIGIN_PATTERN)]
KeyText = Annotated[str, StringConstraints(pattern=r"^[A-Za-z0-9+/]{43}=$")]


class ChallengeRequest(RequestModel):
    """Request a challenge, to prove possession of a key."""

    public_key: KeyText = Field(description="The 32 bytes of an Ed25519 public key, in base64.")


class ChallengeResponse(BaseModel):
    """The challenge to sign, and its end."""

    challenge: str = Field(
        description=f"Sign it as the body of a DSSE envelope of type `{CHALLENGE_TYPE}`; it names "
        "the site and the key."
    )
    expires_at: datetime


class KeyRequest(RequestModel):
    """Register a key, with proof of possession."""

    name: Name
    public_key: KeyText
    challenge: str = Field(max_length=400, description="The pool's challenge, unchanged.")
    signature: str = Field(max_length=100, description="Of the challenge, in base64.")


class KeyRevocationRequest(RequestModel):
    """Revoke a key."""

    reason: Revocation = Field(
        description="`superseded`: earlier signatures stay valid. `compromised`: somebody else "
        "may have signed with it, so none of its signatures is valid."
    )


class KeyResponse(BaseModel):
    """A site's public key as the pool knows it."""

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


KeyList = ItemList[KeyResponse]


class ForeignKey(BaseModel):
    """The key of an imported statement, from the site's pool."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    origin: Origin = Field(description="`SITE@POOL`: the signing site and its pool.")
    name: Name
    public_key: KeyText


class SignedStatement(RequestModel):
    """A statement that comes with a file, or is added to a version later."""

    model_config = ConfigDict(frozen=True)

    envelope: Envelope
    foreign_key: ForeignKey | None = Field(
        default=None,
        description="For a version imported from another pool, with the statement that was signed "
        "there; absent when signed with a registered key of the site.",
    )

    @property
    def origin(self) -> str | None:
        """``SITE@POOL``, the place where an imported version was signed."""
        return None if self.foreign_key is None else self.foreign_key.origin


class StatementResponse(BaseModel):
    """A site's signed statement about a version, with the key to verify it."""

    address: str
    digest: Digest
    envelope: Envelope
    key: KeyResponse
    origin: str | None = Field(
        default=None, description="`SITE@POOL`, the place where an imported version was signed."
    )
    accepted_at: datetime
