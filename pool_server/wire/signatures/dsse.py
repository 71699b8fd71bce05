"""Signed envelopes: DSSE, the Dead Simple Signing Envelope, protocol version 1.

What is signed is not the payload alone but the *pre-authentication encoding* of its type and its
bytes::

    PAE(type, body) = "DSSEv1" SP LEN(type) SP type SP LEN(body) SP body

with lengths of bytes in decimal. So a signature of one sort of document is worth nothing on
another, and no canonical form of JSON is needed: the signed bytes travel as they are.

Source: the DSSE protocol and envelope (secure-systems-lab/dsse, `protocol.md`, `envelope.md`).
"""

from __future__ import annotations

import base64
import binascii
from collections.abc import Iterable

from pydantic import BaseModel, ConfigDict, Field

from pool_server.wire.signatures.keys import PrivateKey, PublicKey

MOST_PAYLOAD_BYTES = 768 * 1024
_MOST_PAYLOAD_CHARACTERS = MOST_PAYLOAD_BYTES * 4 // 3 + 4
_MOST_SIGNATURES = 8


class EnvelopeSignature(BaseModel):
    """One signature; `keyid` helps to find the key and proves nothing."""

    model_config = ConfigDict(frozen=True)

    keyid: str = Field(default="", max_length=200)
    sig: str = Field(max_length=200, description="In base64.")


class Envelope(BaseModel):
    """A payload with signatures, in the standard JSON form."""

    model_config = ConfigDict(frozen=True)

    payloadType: str = Field(max_length=200)  # noqa: N815 - the standard's own word
    payload: str = Field(max_length=_MOST_PAYLOAD_CHARACTERS, description="In base64.")
    signatures: tuple[EnvelopeSignature, ...] = Field(min_length=1, max_length=_MOST_SIGNATURES)

    def body(self) -> bytes:
        """Return the payload's bytes.

        Raises
        ------
        ValueError
            They are not written in base64, of either alphabet.
        """
        return _decode(self.payload)

    def key_ids(self) -> tuple[str, ...]:
        """Return the keys that the envelope says it was signed with; nothing is verified."""
        return tuple(each.keyid for each in self.signatures if each.keyid)

    def signed_by(self, keys: Iterable[PublicKey]) -> PublicKey | None:
        """Return the first of `keys` that truly signed the payload; None if none did.

        Raises
        ------
        ValueError
            The payload cannot be decoded.
        """
        message = pae(self.payloadType, self.body())
        signatures = [_decode(each.sig) for each in self.signatures]
        for key in keys:
            if any(key.verifies(signature, message) for signature in signatures):
                return key
        return None


def pae(payload_type: str, body: bytes) -> bytes:
    """Return the bytes that are signed."""
    kind = payload_type.encode("utf-8")
    return b"DSSEv1 %d %s %d %s" % (len(kind), kind, len(body), body)


def seal(payload_type: str, body: bytes, key: PrivateKey) -> Envelope:
    """Sign a payload.

    Raises
    ------
    ValueError
        It is larger than envelopes here may be.
    """
    if len(body) > MOST_PAYLOAD_BYTES:
        raise ValueError(
            f"{len(body):,} bytes are too many to be signed in one envelope; "
            f"at most {MOST_PAYLOAD_BYTES:,}"
        )
    signature = key.sign(pae(payload_type, body))
    return Envelope(
        payloadType=payload_type,
        payload=base64.b64encode(body).decode(),
        signatures=(
            EnvelopeSignature(keyid=key.public.key_id, sig=base64.b64encode(signature).decode()),
        ),
    )


def _decode(text: str) -> bytes:
    """Read base64 in the standard or the URL-safe alphabet; verifiers must take both."""
    standard = text.replace("-", "+").replace("_", "/")
    try:
        return base64.b64decode(standard, validate=True)
    except (binascii.Error, ValueError):
        raise ValueError("what should be base64 is not") from None
