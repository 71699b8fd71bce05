"""Keys with which sites sign: Ed25519 (RFC 8032). Only this module imports `cryptography`.

Sites sign with the private half and pools check with the public one; both halves stand here so that
each side can read the other's output.
"""

import base64
import binascii
import hashlib
from collections.abc import Iterable
from dataclasses import dataclass, field

from cryptography.exceptions import InvalidSignature, UnsupportedAlgorithm
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey
from cryptography.hazmat.primitives.serialization import load_pem_private_key
from pydantic import BaseModel, ConfigDict, Field

PUBLIC_KEY_BYTES = 32
_PEM_LIMIT_BYTES = 10_000
_SMALL_ORDER = frozenset(
    {
        "00" * 32,
        "01" + "00" * 31,
        "26e8958fc2b227b045c3f489f2ef98f0d5dfac05d3c63339b13802886d53fc05",
        "c7176a703d4dd84fba3c0b760d10670f2a2053fa2c39ccc64ec7fd7792ac037a",
        *(first + "ff" * 30 + "7f" for first in ("ec", "ed", "ee")),
    }
)
"""Points of an order that divides 8, without the sign bit. Verification would accept them."""


@dataclass(frozen=True)
class PublicKey:
    """The half of a key that a site publishes, to verify signatures with: 32 bytes (RFC 8032)."""

    raw: bytes

    @classmethod
    def from_text(cls, text: str) -> "PublicKey":
        """Read the output of `text`.

        Raises `ValueError` if it is no key, or one of the few keys for which anybody can make valid
        signatures.
        """
        try:
            raw = base64.b64decode(text, validate=True)
        except (binascii.Error, ValueError):
            raw = b""
        if len(raw) != PUBLIC_KEY_BYTES:
            raise ValueError("no Ed25519 public key: expected 32 bytes in base64")
        if (raw[:-1] + bytes([raw[-1] & 0x7F])).hex() in _SMALL_ORDER:
            raise ValueError("no Ed25519 public key: a point of small order, which signs nothing")
        return cls(raw)

    @property
    def text(self) -> str:
        """The key in base64."""
        return base64.b64encode(self.raw).decode()

    @property
    def key_id(self) -> str:
        """The SHA-256 of the key, in hexadecimal: its name everywhere, and its fingerprint."""
        return hashlib.sha256(self.raw).hexdigest()

    def verifies(self, signature: bytes, message: bytes) -> bool:
        """Return whether this key's private half signed `message`."""
        try:
            Ed25519PublicKey.from_public_bytes(self.raw).verify(signature, message)
        except (InvalidSignature, ValueError):
            return False
        return True

    def to_pem(self) -> str:
        """Return the key in the common PEM form (SubjectPublicKeyInfo, RFC 8410)."""
        pem = Ed25519PublicKey.from_public_bytes(self.raw).public_bytes(
            serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo
        )
        return pem.decode("ascii")


@dataclass(frozen=True)
class PrivateKey:
    """The half of a key that signs (32 secret bytes of RFC 8032); it never leaves the site."""

    seed: bytes = field(repr=False)
    public: PublicKey

    @classmethod
    def generate(cls) -> "PrivateKey":
        """Generate a new key from the system's randomness."""
        return cls.from_seed(Ed25519PrivateKey.generate().private_bytes_raw())

    @classmethod
    def from_seed(cls, seed: bytes) -> "PrivateKey":
        """Return the key of 32 secret bytes."""
        private = Ed25519PrivateKey.from_private_bytes(seed)
        return cls(seed, PublicKey(private.public_key().public_bytes_raw()))

    @classmethod
    def from_pem(cls, pem: bytes) -> "PrivateKey":
        """Read the output of `to_pem`; raise `ValueError` if it is no unencrypted Ed25519 key."""
        if len(pem) > _PEM_LIMIT_BYTES:
            raise ValueError(f"{len(pem)} bytes are too many for a key")
        try:
            private = load_pem_private_key(pem, password=None)
        except TypeError:
            raise ValueError("the key is encrypted; expected one without a passphrase") from None
        except (ValueError, UnsupportedAlgorithm) as error:
            raise ValueError("no private key in PEM form") from error
        if not isinstance(private, Ed25519PrivateKey):
            raise ValueError("a key of another kind than Ed25519")
        return cls.from_seed(private.private_bytes_raw())

    def to_pem(self) -> bytes:
        """Return the key in OpenSSL's form (PKCS #8, unencrypted)."""
        return Ed25519PrivateKey.from_private_bytes(self.seed).private_bytes(
            serialization.Encoding.PEM,
            serialization.PrivateFormat.PKCS8,
            serialization.NoEncryption(),
        )

    def sign(self, message: bytes) -> bytes:
        """Return the signature of `message`, 64 bytes; the same message gives the same one."""
        return Ed25519PrivateKey.from_private_bytes(self.seed).sign(message)


def readable_fingerprint(key_id: str) -> str:
    """Return a key's identifier in groups that people can compare by eye or over the phone."""
    return " ".join(key_id[start : start + 8] for start in range(0, len(key_id), 8))


# Signed envelopes: DSSE, the Dead Simple Signing Envelope, protocol version 1.
#
# The signed bytes are not the payload alone but the *pre-authentication encoding* of its type and
# its
# bytes::
#
# PAE(type, body) = "DSSEv1" SP LEN(type) SP type SP LEN(body) SP body
#
# with lengths of bytes in decimal. So a signature of one sort of document is worth nothing on
# another, and no canonical form of JSON is needed: the signed bytes travel as they are.
#
# Source: the DSSE protocol and envelope (secure-systems-lab/dsse, `protocol.md`, `envelope.md`).
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
        """The payload's bytes; `ValueError` if they are not in base64, of either alphabet."""
        return _decode(self.payload)

    def key_ids(self) -> tuple[str, ...]:
        """Return the identifiers of the keys named in the envelope; nothing is verified."""
        return tuple(signature.keyid for signature in self.signatures if signature.keyid)

    def signed_by(self, keys: Iterable[PublicKey]) -> PublicKey | None:
        """Return the first of `keys` that truly signed the payload; None if none did."""
        message = pae(self.payloadType, self.body())
        signatures = [_decode(entry.sig) for entry in self.signatures]
        for key in keys:
            if any(key.verifies(signature, message) for signature in signatures):
                return key
        return None


def pae(payload_type: str, body: bytes) -> bytes:
    """Return the bytes that are signed."""
    kind = payload_type.encode("utf-8")
    return b"DSSEv1 %d %s %d %s" % (len(kind), kind, len(body), body)


def seal(payload_type: str, body: bytes, *keys: PrivateKey) -> Envelope:
    """Sign a payload with one key or several; `ValueError` if it is too large for an envelope."""
    if len(body) > MOST_PAYLOAD_BYTES:
        raise ValueError(
            f"{len(body):,} bytes are too many to be signed in one envelope; "
            f"at most {MOST_PAYLOAD_BYTES:,}"
        )
    message = pae(payload_type, body)
    return Envelope(
        payloadType=payload_type,
        payload=base64.b64encode(body).decode(),
        signatures=tuple(
            EnvelopeSignature(
                keyid=key.public.key_id, sig=base64.b64encode(key.sign(message)).decode()
            )
            for key in keys
        ),
    )


def _decode(text: str) -> bytes:
    """Read base64 in the standard or the URL-safe alphabet; verifiers must take both."""
    standard = text.replace("-", "+").replace("_", "/")
    try:
        return base64.b64decode(standard, validate=True)
    except (binascii.Error, ValueError):
        raise ValueError("the text is not base64") from None
