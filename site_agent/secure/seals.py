"""Sealing shares to the servers: HPKE in base mode (RFC 9180), with the whole context in `info`.

The suite is DHKEM(X25519, HKDF-SHA256), HKDF-SHA256, ChaCha20Poly1305. Servers make a key pair
for each session and delete it afterwards.
"""

from __future__ import annotations

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey, X25519PublicKey
from cryptography.hazmat.primitives.hpke import AEAD, KDF, KEM, Suite

from aggregators.secure_sum.sharing import digest_of

_SUITE = Suite(KEM.X25519, KDF.HKDF_SHA256, AEAD.CHACHA20_POLY1305)


def create_session_key() -> tuple[bytes, bytes]:
    """Return a private and a public key, 32 bytes each."""
    private = X25519PrivateKey.generate()
    return private.private_bytes_raw(), private.public_key().public_bytes_raw()


def seal_share(content: bytes, public: bytes, *context: bytes | str) -> bytes:
    """Return what only the holder of the private key can open, in this context.

    Raises
    ------
    ValueError
        The public key is none.
    """
    key = X25519PublicKey.from_public_bytes(public)
    return _SUITE.encrypt(content, key, info=digest_of(*context))


def open_share(sealed: bytes, private: bytes, *context: bytes | str) -> bytes:
    """Open what `seal_share` returned.

    Raises
    ------
    ValueError
        It was altered, or sealed to another key or in another context.
    """
    key = X25519PrivateKey.from_private_bytes(private)
    try:
        return _SUITE.decrypt(sealed, key, info=digest_of(*context))
    except InvalidTag as error:
        raise ValueError("the seal does not open") from error
