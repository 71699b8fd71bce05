"""The prime field of the secure sum: vectors of numbers modulo 2^61 - 1.

Functions take the modulus as an argument, so that tests can count every case of a small field. It
is 2^61 - 1, or a prime below 2^32.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes
from numpy.typing import NDArray

from aggregators.compiled import compiled

UInt64 = NDArray[np.uint64]

P = 2**61 - 1
NUMBER_BYTES = 8
_P = np.uint64(P)
_LOW_32 = np.uint64(2**32 - 1)
_LOW_29 = np.uint64(2**29 - 1)
_3, _29, _32, _61 = (np.uint64(bits) for bits in (3, 29, 32, 61))
_BLOCK_NUMBERS = 1 << 17


@compiled
def _product(a: Any, b: Any, p: Any) -> Any:
    """Multiply two numbers; by halves of 32 bits, as the product has up to 122 bits."""
    if p <= _LOW_32:
        return (a * b) % p
    a_high, a_low, b_high, b_low = a >> _32, a & _LOW_32, b >> _32, b & _LOW_32
    low = a_low * b_low
    middle = a_high * b_low + a_low * b_high + (low >> _32)
    # The product is 2^64 high + 2^32 middle + (low mod 2^32), and 2^61 is 1 in this field.
    total = ((a_high * b_high) << _3) + (middle >> _29)
    total += ((middle & _LOW_29) << _32) + (low & _LOW_32)
    total = (total & _P) + (total >> _61)
    return total - p if total >= p else total


@compiled
def _inner_product(first: Any, second: Any, p: Any) -> Any:
    total = np.uint64(0)
    for index in range(len(first)):
        total += _product(first[index], second[index], p)
        if total >= p:
            total -= p
    return total


@compiled
def _add_to(total: Any, numbers: Any, p: Any) -> None:
    for index in range(len(total)):
        value = total[index] + numbers[index]
        total[index] = value - p if value >= p else value


@compiled
def _subtract_from(total: Any, numbers: Any, p: Any) -> None:
    for index in range(len(total)):
        value = total[index] + (p - numbers[index])
        total[index] = value - p if value >= p else value


def inner_product(first: UInt64, second: UInt64, p: int = P) -> int:
    """Return the sum of the products of two vectors of equal length, in [0, p)."""
    if first.shape != second.shape:
        raise ValueError(f"{first.shape} numbers against {second.shape}")
    return int(_inner_product(first, second, np.uint64(p)))


def add_to(total: UInt64, numbers: UInt64, p: int = P) -> None:
    """Add a vector to another in place; all numbers are in [0, p)."""
    if total.shape != numbers.shape:
        raise ValueError(f"{total.shape} numbers against {numbers.shape}")
    _add_to(total, numbers, np.uint64(p))


def subtract_from(total: UInt64, numbers: UInt64, p: int = P) -> None:
    """Subtract a vector from another in place; all numbers are in [0, p)."""
    if total.shape != numbers.shape:
        raise ValueError(f"{total.shape} numbers against {numbers.shape}")
    _subtract_from(total, numbers, np.uint64(p))


def from_signed(values: NDArray[np.int64], p: int = P) -> UInt64:
    """Return integers of magnitude below p / 2 as numbers of the field."""
    return np.where(values < 0, values + p, values).astype(np.uint64)


def to_signed(numbers: UInt64, p: int = P) -> NDArray[np.int64]:
    """Return the integers of magnitude below p / 2 that numbers of the field stand for."""
    values = numbers.astype(np.int64)
    return np.where(values > p // 2, values - p, values)


def random_numbers(key: bytes, count: int, p: int = P) -> UInt64:
    """Return numbers, uniform in [0, p), that only who knows the key can tell from random ones.

    They are words of AES-256 in counter mode, started at zero, cut to the bits of the modulus;
    words that are not below the modulus are left out. So a key must be used for one vector only.

    Parameters
    ----------
    key : bytes
        32 bytes.
    """
    stream = Cipher(algorithms.AES256(key), modes.CTR(bytes(16))).encryptor()
    mask = np.uint64((1 << p.bit_length()) - 1)
    numbers = np.empty(count, dtype=np.uint64)
    filled = 0
    while filled < count:
        wanted = min(count - filled, _BLOCK_NUMBERS)
        words = np.frombuffer(stream.update(bytes(NUMBER_BYTES * wanted)), dtype="<u8") & mask
        kept = words[words < np.uint64(p)]
        numbers[filled : filled + len(kept)] = kept
        filled += len(kept)
    return numbers


def to_bytes(numbers: UInt64) -> bytes:
    """Return numbers as little-endian words of 8 bytes."""
    return np.ascontiguousarray(numbers, dtype="<u8").tobytes()


def from_bytes(content: bytes, count: int, p: int = P) -> UInt64:
    """Read what `to_bytes` returned.

    Raises
    ------
    ValueError
        There are not `count` numbers, or one of them is not in [0, p).
    """
    if len(content) != NUMBER_BYTES * count:
        raise ValueError(f"found {len(content):,} bytes, expected {NUMBER_BYTES * count:,}")
    numbers = np.frombuffer(content, dtype="<u8").astype(np.uint64)
    if count and int(numbers.max()) >= p:
        index = int(numbers.argmax())
        raise ValueError(f"number {index}: found {numbers[index]}, expected less than {p}")
    return numbers
