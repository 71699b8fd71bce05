"""The secure sum's field, shares of vectors, and checks of sums that are not opened yet.

The field is that of the prime 2^61 - 1. Functions take the modulus as an argument, so that tests
can count every case of a small field: it is 2^61 - 1, or a prime below 2^32.

A vector is split into one share for each server; together they add up to it. All shares but one
are expanded from seeds of 32 bytes, so a lab sends one vector for any number of servers. Any
shares but all of them are uniform and reveal nothing of the vector.

To be checked, a vector ends with K masks. Its check values are <chi_k, vector> + mask_k, with a
public challenge chi_k. They are linear, so those of all labs' vectors add up to those of all
servers' sums of shares, unless one of them is altered: then they agree with probability p^-K. The
challenge follows from a hash of all that was fixed before.
"""

import hashlib
from collections.abc import Iterable, Iterator, Mapping, Sequence

import numpy as np
from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.kdf.hkdf import HKDF
from numpy.typing import NDArray

UInt64 = NDArray[np.uint64]

P = 2**61 - 1
NUMBER_BYTES = 8
_BLOCK_NUMBERS = 1 << 17


def inner_product(first: UInt64, second: UInt64, p: int = P) -> int:
    """Return the sum of the products of two vectors of equal length, in [0, p)."""
    from aggregators.secure_sum import field_kernel

    if first.shape != second.shape:
        raise ValueError(f"{first.shape} numbers against {second.shape}")
    return int(field_kernel.inner_product(first, second, np.uint64(p)))


def add_to(total: UInt64, numbers: UInt64, p: int = P) -> None:
    """Add a vector to another in place; all numbers are in [0, p)."""
    from aggregators.secure_sum import field_kernel

    if total.shape != numbers.shape:
        raise ValueError(f"{total.shape} numbers against {numbers.shape}")
    field_kernel.add_to(total, numbers, np.uint64(p))


def subtract_from(total: UInt64, numbers: UInt64, p: int = P) -> None:
    """Subtract a vector from another in place; all numbers are in [0, p)."""
    from aggregators.secure_sum import field_kernel

    if total.shape != numbers.shape:
        raise ValueError(f"{total.shape} numbers against {numbers.shape}")
    field_kernel.subtract_from(total, numbers, np.uint64(p))


def from_signed(values: NDArray[np.int64], p: int = P) -> UInt64:
    """Return integers of magnitude below p / 2 as numbers of the field."""
    return np.where(values < 0, values + p, values).astype(np.uint64)


def to_signed(numbers: UInt64, p: int = P) -> NDArray[np.int64]:
    """Return the integers of magnitude below p / 2 that numbers of the field stand for."""
    values = numbers.astype(np.int64)
    return np.where(values > p // 2, values - p, values)


def random_numbers(key: bytes, count: int, p: int = P) -> UInt64:
    """Return numbers, uniform in [0, p), that look random without the key.

    They are words of AES-256 in counter mode, started at zero, cut to the bits of the modulus;
    words that are not below the modulus are left out. So a key must be used for one vector only.

    `key`: 32 bytes.
    """
    stream = Cipher(algorithms.AES256(key), modes.CTR(bytes(16))).encryptor()
    mask = np.uint64((1 << p.bit_length()) - 1)
    numbers = np.empty(count, dtype=np.uint64)
    filled = 0
    while filled < count:
        missing = min(count - filled, _BLOCK_NUMBERS)
        drawn = np.frombuffer(stream.update(bytes(NUMBER_BYTES * missing)), dtype="<u8") & mask
        # Rejected, not reduced: a remainder would favour small numbers.
        kept = drawn[drawn < np.uint64(p)]
        numbers[filled : filled + len(kept)] = kept
        filled += len(kept)
    return numbers


def to_bytes(numbers: UInt64) -> bytes:
    """Return numbers as little-endian words of 8 bytes."""
    return np.ascontiguousarray(numbers, dtype="<u8").tobytes()


def from_bytes(content: bytes, count: int, p: int = P) -> UInt64:
    """Read the result of `to_bytes`.

    Raises `ValueError` if there are not `count` numbers, or one of them is not in [0, p).
    """
    if len(content) != NUMBER_BYTES * count:
        raise ValueError(f"found {len(content):,} bytes, expected {NUMBER_BYTES * count:,}")
    numbers = np.frombuffer(content, dtype="<u8").astype(np.uint64)
    if count and int(numbers.max()) >= p:
        index = int(numbers.argmax())
        raise ValueError(f"number {index}: found {numbers[index]}, expected less than {p}")
    return numbers


SEED_BYTES = 32


def digest_of(*parts: bytes | str | int) -> bytes:
    """Return the SHA-256 of several parts, each preceded by its length in 8 bytes."""
    digest = hashlib.sha256()
    for part in parts:
        content = part if isinstance(part, bytes) else str(part).encode()
        # Without lengths, ("ab", "c") and ("a", "bc") would have the same digest.
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
    # So no server gets all explicit shares, which are as large as the vector.
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
        The labs behind the added shares.
    opener : bytes
        32 random bytes, kept until the sum is opened.
    total : uint64, shape (count,)
    """
    labs = digest_of(*sorted(roster))
    return digest_of("commitment", session, labs, server, opener, to_bytes(total)).hex()


def challenges(transcript: bytes, count: int, size: int, p: int = P) -> Iterator[UInt64]:
    """Yield `count` public random vectors that follow from the transcript.

    `transcript`: A digest that binds the roster, all shares and all commitments. `size`: Numbers of
    a vector without its masks.
    """
    for number in range(count):
        yield random_numbers(derive_key(transcript, "challenge", number), size, p)


def check_values(numbers: UInt64, drawn: Iterable[UInt64], p: int = P) -> tuple[int, ...]:
    """Return the masked inner products of a vector with the challenges.

    Parameters
    ----------
    numbers : uint64, shape (size + count,)
        A vector and its masks.
    drawn : iterable of uint64, shape (size,)
        The challenges, as many as there are masks.
    """
    values = []
    for number, challenge in enumerate(drawn):
        size = len(challenge)
        mask = int(numbers[size + number])
        values.append((inner_product(numbers[:size], challenge, p) + mask) % p)
    return tuple(values)


def add_check_values(items: Iterable[tuple[int, ...]], p: int = P) -> tuple[int, ...]:
    """Return the sum of check values in each of the challenges."""
    return tuple(sum(column) % p for column in zip(*items, strict=True))
