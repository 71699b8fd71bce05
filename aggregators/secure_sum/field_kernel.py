"""Compiled arithmetic of vectors in a prime field; imported when the first vector is added."""

from typing import Any

import numpy as np

from aggregators.compiled import compiled

_P = np.uint64(2**61 - 1)
_LOW_32 = np.uint64(2**32 - 1)
_LOW_29 = np.uint64(2**29 - 1)
_3, _29, _32, _61 = (np.uint64(bits) for bits in (3, 29, 32, 61))


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
def inner_product(first: Any, second: Any, p: Any) -> Any:
    """Return the sum of the products of two vectors of equal length."""
    total = np.uint64(0)
    for index in range(len(first)):
        total += _product(first[index], second[index], p)
        if total >= p:
            total -= p
    return total


@compiled
def add_to(total: Any, numbers: Any, p: Any) -> None:
    """Add a vector to another in place."""
    for index in range(len(total)):
        value = total[index] + numbers[index]
        total[index] = value - p if value >= p else value


@compiled
def subtract_from(total: Any, numbers: Any, p: Any) -> None:
    """Subtract a vector from another in place."""
    for index in range(len(total)):
        value = total[index] + (p - numbers[index])
        total[index] = value - p if value >= p else value
