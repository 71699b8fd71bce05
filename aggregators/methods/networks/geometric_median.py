"""The geometric median of networks: the point with the smallest sum of distances to all."""

import numpy as np
from pydantic import Field

from aggregators.methods.contract import MethodOptions, Progress
from aggregators.methods.networks.fedavg import weighted_mean
from aggregators.methods.networks.updates import Updates
from aggregators.methods.networks.voting import RobustMethod, Votes, stream_votes
from aggregators.models import Float64, StateDict

_MOST_STEPS = 1000
_KEPT_BITS = 32


class GeometricMedianOptions(MethodOptions):
    """Options of the geometric median."""

    smoothing: float = Field(
        default=1e-6,
        ge=1e-7,
        le=1,
        description="Smallest distance that counts, in typical distances between the updates.",
    )


class GeometricMedian(RobustMethod[GeometricMedianOptions]):
    """The point with the smallest sum of Euclidean distances to the updates, as whole vectors.

    As long as fewer than half of the sites are hostile, the distance of the result from the honest
    updates stays bounded for any other updates. Of two sites it is the mean; if more than half
    of the updates are equal, it is that update.

    It is found by smoothed Weiszfeld steps: each update is weighted by ``1 / max(nu, distance from
    the last point)``. The paper weights the sites by their samples, too; here each has one vote, so
    that no site gains influence by claiming many. Its nu is absolute; here it follows the size of
    the updates (`smoothing`).

    Source: Pillutla et al. 2019, "Robust Aggregation for Federated Learning", algorithm 2.
    """

    name = "geometric-median"
    summary = "geometric median of networks as whole vectors"
    options_type = GeometricMedianOptions

    def combine_votes(
        self, votes: Votes, options: GeometricMedianOptions, progress: Progress, /
    ) -> StateDict:
        weights = weiszfeld_weights(inner_products(votes.updates, progress), options.smoothing)

        counts = weights > 0

        def combine(rows: Float64) -> Float64:
            used = rows[counts]
            mean = weighted_mean(used, weights[counts])
            # Rounded out of the range of equal updates, the mean would not be that update.
            return np.clip(mean, used.min(axis=0), used.max(axis=0))

        return stream_votes(votes, combine)


def inner_products(updates: Updates, progress: Progress) -> Float64:
    """Return the inner products of the updates, shape (sites, sites), about their median.

    Every point that a step can reach is a weighted mean of the updates, so these products hold all
    distances that the steps need, and the files are read once for any number of steps. Taken about
    the median of each number (not the mean, which one site can move), distances between honest
    updates keep their digits next to a hostile one of any size.
    """
    products: Float64 = np.zeros((len(updates.sites), len(updates.sites)))
    for position, name in enumerate(updates.float_names):
        progress(position / len(updates.float_names), f"distances in {name}")
        for block in updates.blocks(name):
            rows = updates.rows(name, block)
            rows -= np.median(rows, axis=0)
            with np.errstate(over="ignore", invalid="ignore"):
                products += rows @ rows.T
    return products


def weiszfeld_weights(products: Float64, smoothing: float) -> Float64:
    """Return the weight of each update in the geometric median.

    Parameters
    ----------
    products : float64, shape (sites, sites)
        Inner products about a point near most of the updates.
    smoothing : float
        In units of the smallest median distance of an update from all: at least half of the
        updates lie about so close together, which hostile ones cannot change.

    Returns
    -------
    float64, shape (sites,)
    """
    weights = np.zeros(len(products))
    # An update whose square exceeds float64 is far from the median of all, and is left out.
    near = np.isfinite(np.diag(products))
    if not near.any():
        return np.ones(len(products))
    inner = products[np.ix_(near, near)]
    squares = np.diag(inner)
    apart = _roots(squares[:, np.newaxis] + squares - 2 * inner)
    typical = np.median(apart, axis=1)
    closest = int(np.argmin(typical))
    if typical[closest] == 0:
        weights[near] = apart[closest] == 0
        return weights
    distances = _roots(squares)
    near_weights = np.zeros(len(inner))
    for _ in range(_MOST_STEPS):
        last = near_weights
        near_weights = 1 / np.maximum(distances, smoothing * typical[closest])
        near_weights /= near_weights.sum()
        if np.abs(near_weights - last).max() < 2.0**-50:
            break
        pulls = (inner * near_weights).sum(axis=1)
        distances = _roots(squares - 2 * pulls + (pulls * near_weights).sum())
    # The last bits may differ between processors, and a recipe must give the same bytes on all.
    mantissas, exponents = np.frexp(near_weights)
    weights[near] = np.ldexp(np.round(np.ldexp(mantissas, _KEPT_BITS)), exponents - _KEPT_BITS)
    return weights


def _roots(squares: Float64) -> Float64:
    return np.sqrt(np.maximum(squares, 0))
