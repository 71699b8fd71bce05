"""Shares of a vector: one for each server, which together add up to it.

All shares but one are expanded from seeds of 32 bytes, so a lab sends one vector whatever the
number of servers. Any shares but all of them are uniform and tell nothing of the vector.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping, Sequence

from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.kdf.hkdf import HKDF

from aggregators.secure_sum.field import P, UInt64, random_numbers, subtract_from, to_bytes

SEED_BYTES = 32


def digest_of(*parts: bytes | str | int) -> bytes:
    """Return the SHA-256 of several parts, each preceded by its length in 8 bytes."""
    digest = hashlib.sha256()
    for part in parts:
        content = part if isinstance(part, bytes) else str(part).encode()
        digest.update(len(content).to_bytes(8, "big"))
        digest.update(content)
    return digest.digest()


def derive_key(secret: bytes, *context: bytes | str | int) -> bytes:
    """Return a key of 32 bytes for one purpose (HKDF-SHA256, RFC 5869)."""
    return HKDF(SHA256(), 32, salt=None, info=digest_of(*context)).derive(secret)


def share_from_seed(
    seed: bytes, session: str, lab: str, server: str, count: int, *, p: int = P
) -> UInt64:
    """Expand a seed into the share that a server has of a lab's vector."""
    return random_numbers(derive_key(seed, "share", session, lab, server), count, p)


def explicit_server(session: str, lab: str, servers: Sequence[str]) -> str:
    """Return the server to which the lab sends its explicit share, drawn by a hash."""
    number = int.from_bytes(digest_of("explicit share", session, lab), "big")
    return servers[number % len(servers)]


def explicit_share(
    numbers: UInt64, seeds: Mapping[str, bytes], session: str, lab: str, p: int = P
) -> UInt64:
    """Return the vector less the shares of all other servers.

    Parameters
    ----------
    numbers : uint64, shape (count,)
    seeds : mapping of str to bytes
        The seed of each other server.
    """
    left = numbers.copy()
    for server, seed in seeds.items():
        subtract_from(left, share_from_seed(seed, session, lab, server, len(numbers), p=p), p)
    return left


def commitment(
    session: str, roster: Iterable[str], server: str, opener: bytes, total: UInt64
) -> str:
    """Return the SHA-256, in hexadecimal, that binds a server to its sum of shares.

    Parameters
    ----------
    roster : iterable of str
        The labs whose shares were added.
    opener : bytes
        32 random bytes, kept until the sum is opened.
    total : uint64, shape (count,)
    """
    labs = digest_of(*sorted(roster))
    return digest_of("commitment", session, labs, server, opener, to_bytes(total)).hex()
