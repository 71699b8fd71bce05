"""Checking a sum before anything is opened: masked inner products with a public challenge.

A vector here ends with K masks. Its check values are <chi_k, vector> + mask_k. They are linear, so
those of all labs' vectors add up to those of all servers' sums of shares, unless one of them
is altered: then they agree with probability p^-K. The challenge follows from a hash of all that
was fixed before.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from aggregators.secure_sum.field import P, UInt64, inner_product, random_numbers
from aggregators.secure_sum.sharing import derive_key


def challenges(transcript: bytes, count: int, size: int, p: int = P) -> Iterator[UInt64]:
    """Yield `count` public random vectors that follow from the transcript.

    Parameters
    ----------
    transcript : bytes
        A digest that binds the roster, all shares and all commitments.
    size : int
        Numbers of a vector without its masks.
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
