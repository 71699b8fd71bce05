"""The field against Python's integers, and its random numbers."""

from __future__ import annotations

import time

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from aggregators.secure_sum.sharing import (
    P,
    add_to,
    from_bytes,
    from_signed,
    inner_product,
    random_numbers,
    subtract_from,
    to_bytes,
    to_signed,
)

_EDGES = st.sampled_from([0, 1, P - 1, P // 2, 2**32 - 1, 2**32, 2**29, 2**60])
_NUMBERS = st.lists(
    st.tuples(_EDGES | st.integers(0, P - 1), _EDGES | st.integers(0, P - 1)),
    min_size=1,
    max_size=20,
)


@pytest.mark.parametrize("p", [P, 2**32 - 5, 8191, 5])
@given(pairs=_NUMBERS)
def test_arithmetic_is_that_of_integers(pairs: list[tuple[int, int]], p: int) -> None:
    pairs = [(a % p, b % p) for a, b in pairs]
    first, second = np.array(pairs, dtype=np.uint64).T.copy()
    assert inner_product(first, second, p) == sum(a * b for a, b in pairs) % p
    total = first.copy()
    add_to(total, second, p)
    assert total.tolist() == [(a + b) % p for a, b in pairs]
    subtract_from(total, second, p)
    assert total.tolist() == first.tolist()


@given(st.lists(st.integers(-(2**60) + 1, 2**60 - 1), max_size=9))
def test_signed_integers_return(values: list[int]) -> None:
    numbers = from_signed(np.array(values, dtype=np.int64))
    assert [int(number) for number in numbers] == [value % P for value in values]
    assert to_signed(numbers).tolist() == values
    assert to_signed(from_bytes(to_bytes(numbers), len(values))).tolist() == values


def test_bytes_outside_the_field_are_refused() -> None:
    with pytest.raises(ValueError, match="number 1: found 2305843009213693951, expected less"):
        from_bytes(np.array([5, P], dtype="<u8").tobytes(), 2)
    with pytest.raises(ValueError, match="found 15 bytes, expected 16"):
        from_bytes(bytes(15), 2)


def test_random_numbers_are_the_counter_mode_stream_without_large_words() -> None:
    key = bytes(range(32))
    # The first words of AES-256-CTR from a zero block, by OpenSSL 3: openssl enc -aes-256-ctr.
    stream = bytes.fromhex("f29000b62a499fd0a9f39a6add2e7780")
    words = np.frombuffer(stream, dtype="<u8") & np.uint64(P)
    assert random_numbers(key, 2).tolist() == words.tolist()
    longer = random_numbers(key, 1000, 5)
    assert set(longer.tolist()) == {0, 1, 2, 3, 4}
    counts = np.bincount(random_numbers(key, 100_000, 5).astype(int))
    assert ((counts - 20_000) ** 2 / 20_000).sum() < 18.5  # chi-squared, 4 degrees, p = .001
    assert random_numbers(key, 1000, 5).tolist() == longer.tolist()


def test_two_million_numbers_take_well_under_a_second() -> None:
    first, second = (random_numbers(bytes([n] * 32), 2_000_000) for n in (1, 2))
    inner_product(first[:1], second[:1])
    start = time.process_time()
    inner_product(first, second)
    assert time.process_time() - start < 0.5
