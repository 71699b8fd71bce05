"""Encoding: exact sums, means near those of float64, and refusal of what does not fit."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from aggregators.errors import ConversionError, OptionError
from aggregators.secure_sum.layout import BitBudget, decode_sum, encode
from aggregators.secure_sum.sharing import add_to

_BUDGET = BitBudget()


@given(st.integers(1, 12), st.integers(0, 2**32 - 1))
def test_sums_decode_to_the_weighted_mean(labs: int, seed: int) -> None:
    generator = np.random.default_rng(seed)
    values = generator.uniform(-256, 256, (labs, 2, 5))
    weights = generator.integers(1, 2**16, (labs, 2), endpoint=True)
    values[0, 0, 0], weights[0, 0] = -256, 2**16
    total = encode(values[0], weights[0], _BUDGET)
    for lab in range(1, labs):
        add_to(total, encode(values[lab], weights[lab], _BUDGET))
    mean, sums = decode_sum(total, 2, labs, _BUDGET)
    assert sums.tolist() == weights.sum(axis=0).tolist()
    expected = (values * weights[:, :, np.newaxis]).sum(axis=0) / sums[:, np.newaxis]
    assert np.abs(mean - expected).max() <= 1e-7


@pytest.mark.parametrize("wrong", [np.nan, np.inf, -np.inf, 256.001, -1e30])
def test_values_out_of_range_are_refused_by_name(wrong: float) -> None:
    values = np.zeros((1, 5))
    values[0, 3] = wrong
    with pytest.raises(ConversionError, match=r"^entry d: found .*expected .* at most 256$"):
        encode(values, np.array([1]), _BUDGET, lambda index: f"entry {'abcde'[index]}")


@pytest.mark.parametrize("weight", [-1, 2**16 + 1])
def test_weights_out_of_range_are_refused(weight: int) -> None:
    with pytest.raises(ConversionError, match=f"found {weight}, expected 0 to 65536"):
        encode(np.zeros((1, 2)), np.array([weight]), _BUDGET)


def test_impossible_sums_are_refused() -> None:
    good = encode(np.full((1, 2), 256.0), np.array([3]), _BUDGET)
    assert decode_sum(good, 1, 1, _BUDGET)[0].tolist() == [[256.0, 256.0]]
    for place, value in ((0, int(good[0]) + 2), (2, 0), (2, 2**16 + 1), (2, 2**61 - 2)):
        wrong = good.copy()
        wrong[place] = value
        with pytest.raises(ValueError, match="sum"):
            decode_sum(wrong, 1, 1, _BUDGET)


def test_a_budget_beyond_the_field_is_refused() -> None:
    with pytest.raises(OptionError, match="at most 59"):
        BitBudget(fraction=26)
