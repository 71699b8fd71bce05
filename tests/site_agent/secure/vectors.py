"""Vectors of float32 for secure sums of any size, drawn for each lab."""

import numpy as np

from aggregators.models import Float32
from aggregators.secure_sum.layout import BitBudget, SumEntry, SumLayout, encode
from aggregators.secure_sum.sharing import UInt64


def trial_layout(parameters: int) -> SumLayout:
    """Return the layout of one vector of float32."""
    entry = SumEntry(name="vector", dtype="F32", shape=(parameters,))
    return SumLayout(kind="network", base_digest="0" * 64, entries=(entry,))


def trial_vector(number: int, parameters: int) -> tuple[Float32, int]:
    """Return the vector of a lab, shape (parameters,), and its weight."""
    drawn = np.random.default_rng([2026, number])
    values = drawn.normal(0.0, 0.01, parameters).astype(np.float32)
    return values, int(drawn.integers(1, 1000))


def encoded_vector(number: int, parameters: int, budget: BitBudget) -> UInt64:
    """Return the vector of a lab as it is summed."""
    values, weight = trial_vector(number, parameters)
    return encode(values[np.newaxis].astype(np.float64), np.array([weight]), budget)
