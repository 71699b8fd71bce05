"""Real vectors and weights as numbers of the field, and sums of such numbers as means.

A vector has groups of values, and each group has an integer weight w. A value x is encoded as
round(2^f w x) and a weight as itself, so a sum over labs gives the weighted mean of each group.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from aggregators.errors import ConversionError, OptionError
from aggregators.models import Float64, Int64
from aggregators.secure_sum.field import UInt64, from_signed, to_signed

MOST_BITS = 59
"""A sum of at most 2^59, and the roundings of all labs, stay below half of the field."""


@dataclass(frozen=True)
class BitBudget:
    """How the bits of the field are used.

    Attributes
    ----------
    fraction : int
        f; a value is rounded to multiples of 2^-f / w.
    magnitude : int
        b; values are at most 2^b in magnitude.
    weight : int
        Weights are at most 2^weight.
    labs : int
        At most 2^labs labs take part.
    """

    fraction: int = 24
    magnitude: int = 8
    weight: int = 16
    labs: int = 10

    def __post_init__(self) -> None:
        bits = (self.fraction, self.magnitude, self.weight, self.labs)
        if min(bits) < 0 or sum(bits) > MOST_BITS:
            raise OptionError(
                f"bits of fraction, magnitude, weight and labs: found {bits}, "
                f"expected none below 0 and a sum of at most {MOST_BITS}"
            )


def encode(
    values: Float64,
    weights: Int64,
    budget: BitBudget,
    name_of: Callable[[int], str] = "number {}".format,
) -> UInt64:
    """Encode the vector of one lab.

    Parameters
    ----------
    values : float64, shape (groups, size)
        Finite and at most 2^b in magnitude; zero in groups of weight 0.
    weights : int64, shape (groups,)
        At least 0.
    name_of : callable
        Returns what the error calls a value, from its position.

    Returns
    -------
    uint64, shape (groups * size + groups,)
        The values row by row, then the weights.

    Raises
    ------
    ConversionError
        A value or weight is out of range; nothing is clipped.
    """
    most = 2.0**budget.magnitude
    good = np.abs(values.reshape(-1)) <= most  # false for NaN
    if not good.all():
        index = int(np.argmin(good))
        raise ConversionError(
            f"{name_of(index)}: found {values.reshape(-1)[index]}, "
            f"expected a number of magnitude at most {most:g}"
        )
    if len(weights) and not 0 <= weights.min() <= weights.max() <= 2**budget.weight:
        wrong = int(np.argmax((weights < 0) | (weights > 2**budget.weight)))
        raise ConversionError(
            f"weight {wrong}: found {weights[wrong]}, expected 0 to {2**budget.weight}"
        )
    scaled = np.rint(values * weights[:, np.newaxis] * 2.0**budget.fraction).astype(np.int64)
    return from_signed(np.concatenate([scaled.reshape(-1), weights]))


def decode_sum(total: UInt64, groups: int, labs: int, budget: BitBudget) -> tuple[Float64, Int64]:
    """Return the weighted mean of each group, and the sums of the weights.

    Parameters
    ----------
    total : uint64, shape (groups * size + groups,)
        The sum of what `encode` returned for each of `labs` labs.

    Returns
    -------
    mean : float64, shape (groups, size)
        Zero in groups of weight 0.
    weights : int64, shape (groups,)

    Raises
    ------
    ValueError
        No labs with inputs in range have this sum.
    """
    signed = to_signed(total)
    sums, weights = signed[:-groups].reshape(groups, -1), signed[len(signed) - groups :]
    if not (0 <= weights.min() <= weights.max() <= labs * 2**budget.weight and weights.any()):
        raise ValueError(
            f"sums of weights from {weights.min()} to {weights.max()}, expected 0 to "
            f"{labs * 2**budget.weight}, and one above 0"
        )
    most = weights * 2 ** (budget.fraction + budget.magnitude) + labs
    wrong = np.abs(sums) > most[:, np.newaxis]
    if wrong.any():
        index = int(np.argmax(wrong))
        raise ValueError(f"sum {index} is {sums.reshape(-1)[index]}: out of range for its weight")
    divisor = np.maximum(weights, 1).astype(np.float64) * 2.0**budget.fraction
    return sums / divisor[:, np.newaxis], weights
