"""The compiled inner loop of Krum; imported when the first distances are computed."""

import numpy as np

from aggregators.compiled import compiled
from aggregators.models import Float64

_LANES = 64


@compiled
def add_squared_distances(rows: Float64, distances: Float64) -> None:
    """Add the squared distance of each pair of rows above the diagonal.

    Each lane has a sum of its own, so the loop over lanes is vectorised and its order, and with it
    every bit of the result, is the same on all processors.

    Parameters
    ----------
    rows : float64, shape (sites, numbers)
    distances : float64, shape (sites, sites)
    """
    count, width = rows.shape
    whole = width - width % _LANES
    sums = np.empty(_LANES)
    for one in range(count):
        for other in range(one + 1, count):
            sums[:] = 0.0
            for start in range(0, whole, _LANES):
                for lane in range(_LANES):
                    difference = rows[one, start + lane] - rows[other, start + lane]
                    sums[lane] += difference * difference
            total = 0.0
            for lane in range(_LANES):
                total += sums[lane]
            for column in range(whole, width):
                difference = rows[one, column] - rows[other, column]
                total += difference * difference
            distances[one, other] += total
