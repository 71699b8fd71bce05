"""Keys with which sites sign: Ed25519 (RFC 8032). The only module that knows `cryptography`.

Sites sign with the private half and pools check with the public one; both halves stand here so
that what one side writes the other reads.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
from dataclasses import dataclass, field

PUBLIC_KEY_BYTES = 32
_PEM_LIMIT_BYTES = 10_000


@dataclass(frozen=True)
class PublicKey:
    """What a site publishes, and others check its signatures with.

    Attributes
    ----------
    raw : bytes
        The 32 bytes of RFC 8032.
    """

    raw: bytes

    @classmethod
    def from_text(cls, text: str) -> PublicKey:
        """Read what `text` gives.

        Raises
        ------
        ValueError
            It is no key, or no point of the curve.
        """
        try:
            raw = base64.b64decode(text, validate=True)
        except (binascii.Error, ValueError):
            raw = b""
        if len(raw) != PUBLIC_KEY_BYTES:
            raise ValueError("no Ed25519 public key: expected 32 bytes in base64")
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
        """Tell whether this key's private half signed `message`."""
        from cryptography.exceptions import InvalidSignature
        from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey

        try:
            Ed25519PublicKey.from_public_bytes(self.raw).verify(signature, message)
        except (InvalidSignature, ValueError):
            return False
        return True

    def to_pem(self) -> str:
        """Return the key as other programs take it (SubjectPublicKeyInfo, RFC 8410)."""
        from cryptography.hazmat.primitives import serialization
        from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey

        pem = Ed25519PublicKey.from_public_bytes(self.raw).public_bytes(
            serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo
        )
        return pem.decode("ascii")


@dataclass(frozen=True)
class PrivateKey:
    """What a site signs with, and shows to nobody.

    Attributes
    ----------
    seed : bytes
        The 32 secret bytes of RFC 8032.
    public : PublicKey
    """

    seed: bytes = field(repr=False)
    public: PublicKey

    @classmethod
    def generate(cls) -> PrivateKey:
        """Make a new key from the system's randomness."""
        from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

        return cls.from_seed(Ed25519PrivateKey.generate().private_bytes_raw())

    @classmethod
    def from_seed(cls, seed: bytes) -> PrivateKey:
        """Return the key of 32 secret bytes."""
        from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

        private = Ed25519PrivateKey.from_private_bytes(seed)
        return cls(seed, PublicKey(private.public_key().public_bytes_raw()))

    @classmethod
    def from_pem(cls, pem: bytes) -> PrivateKey:
        """Read what `to_pem` gives.

        Raises
        ------
        ValueError
            It is no unencrypted Ed25519 key.
        """
        from cryptography.exceptions import UnsupportedAlgorithm
        from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
        from cryptography.hazmat.primitives.serialization import load_pem_private_key

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
        """Return the key in the form that OpenSSL writes (PKCS #8, unencrypted)."""
        from cryptography.hazmat.primitives import serialization
        from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

        return Ed25519PrivateKey.from_private_bytes(self.seed).private_bytes(
            serialization.Encoding.PEM,
            serialization.PrivateFormat.PKCS8,
            serialization.NoEncryption(),
        )

    def sign(self, message: bytes) -> bytes:
        """Return the signature of `message`, 64 bytes; the same message gives the same one."""
        from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

        return Ed25519PrivateKey.from_private_bytes(self.seed).sign(message)


def readable_fingerprint(key_id: str) -> str:
    """Return a key's identifier in groups that people can compare by eye or over the phone."""
    return " ".join(key_id[start : start + 8] for start in range(0, len(key_id), 8))
