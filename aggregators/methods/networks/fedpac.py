"""FedPAC: features in common, and for each site a last layer (head) that is mixed for it.

A site's half (`site_agent.federated.halves.fedpac`) sends, in addition to its differences, the
number of samples of each class and their mean features. From these follows how well the head of
one site would do at another, and so which mixture of heads is best for each.
"""

import math
from collections.abc import Iterator
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from aggregators import errors, models
from aggregators.methods.contract import Combined, Progress
from aggregators.methods.networks import fedavg, masked_mean
from aggregators.methods.networks import updates as network_updates
from aggregators.methods.networks.replies import reply_prefix
from aggregators.methods.sub_models import SubModels

LEAST_WEIGHT = 0.001
"""A head with less weight in a mixture is left out."""

_RIDGE, _TOLERANCE, _DIGITS = 1e-10, 1e-13, 9


class PacOptions(fedavg.MeanOptions):
    """Options of FedPAC."""

    lam: float = Field(
        default=1.0, ge=0, le=1000, description="Pull of features to the prototype of their class."
    )


class FedPac(masked_mean.MaskedMean[PacOptions]):
    """FedAvg's network, byte for byte, and a state with prototypes and a head for each site.

    The head of site i is ``sum_j a_j head_j``, where a minimises ``a' (diag(v) + D_i) a`` on the
    simplex, ``D_i[j, k] = sum_c (h_i[c] - h_j[c]) . (h_i[c] - h_k[c])`` and ``h_j[c]`` is the
    share of class c at site j times its mean features. Prototypes are the means of the classes
    over the sites, weighed by the numbers of samples; no site counts with more samples than in the
    mean of the networks.

    A mixture may be nearly the head of one other site, and a site that lies about its classes has
    a say in the heads of others, as in any mean. The state of an earlier round is not needed.

    Source: Xu et al. 2023, "Personalized Federated Learning with Feature Alignment and Classifier
    Collaboration", and its published program.
    """

    name = "fedpac"
    summary = "mean of networks; each site keeps a last layer mixed for it from those of all"
    options_type = PacOptions
    needs_each: ClassVar[bool] = True
    replies: ClassVar[bool] = True

    def combine(
        self, sub_models: SubModels[models.MergeInput], options: PacOptions, progress: Progress, /
    ) -> Combined:
        inputs, _ = network_updates.split_state(sub_models)
        combined = super().combine(inputs, options, progress)
        updates = network_updates.collect_updates(inputs, self.name)
        if updates.base is None:
            return combined
        statistics = [_statistics_of(site.model, site.name) for site in updates.sites]
        classes = max(len(site.counts) for site in statistics)
        shares: models.Float64 = np.zeros((len(statistics), classes))
        means: models.Float64 = np.zeros((len(statistics), classes, _features(statistics)))
        for number, item in enumerate(statistics):
            shares[number, : len(item.counts)] = item.counts / item.counts.sum()
            means[number, : len(item.counts)] = item.means
        copies = np.array([site.copies for site in updates.sites])
        # Equal contributions share one head, and the variance of their mean is smaller.
        variances = np.array([site.variance for site in statistics]) / copies
        references = (shares[:, :, None] * means).reshape(len(statistics), -1)
        weights = mixing_weights(references, variances)
        tensors = _prototypes(means, shares * fedavg.site_weights(updates, options)[:, None])
        infos = {
            "prototypes": models.TensorInfo("F32", means.shape[1:]),
            "known": models.TensorInfo("U8", (classes,)),
        }
        for name in network_updates.head_entries(updates.infos):
            for site, mixed in zip(updates.sites, _mix(updates, name, weights), strict=True):
                tensors[reply_prefix(site.digest) + name] = mixed
                infos[reply_prefix(site.digest) + name] = updates.infos[name]
        state = models.OptimiserState(models.StateDict(tensors, infos), self.name, "")
        return Combined(combined.model, combined.warnings, state)


def _statistics_of(
    model: models.StateDict | models.NetworkContribution, name: str
) -> models.ClassStatistics:
    statistics = model.statistics if isinstance(model, models.NetworkContribution) else None
    if statistics is None:
        raise errors.IncompatibleModelsError(
            "statistics of classes",
            "those of a site's features",
            "none",
            first_name="fedpac",
            other_name=name,
            hint="sites have to contribute for a round of fedpac",
        )
    return statistics


def _features(statistics: list[models.ClassStatistics]) -> int:
    sizes = sorted({int(site.means.shape[1]) for site in statistics})
    if len(sizes) > 1:
        raise errors.IncompatibleModelsError(
            "number of features",
            str(sizes[0]),
            str(sizes[1]),
            first_name="one contribution",
            other_name="another",
        )
    return sizes[0]


def _prototypes(means: models.Float64, weights: models.Float64) -> dict[str, NDArray[Any]]:
    """Return the weighted mean of each class over the sites, and the mask of known classes."""
    total, counted = np.zeros(means.shape[1:]), np.zeros(means.shape[1])
    for mean, weight in zip(means, weights, strict=True):
        total += mean * weight[:, None]
        counted += weight
    known = counted > 0
    total[known] /= counted[known, None]
    return {"prototypes": total.astype(np.float32), "known": known.astype(np.uint8)}


def _mix(
    updates: network_updates.Updates, name: str, weights: models.Float64
) -> Iterator[NDArray[Any]]:
    """Yield an entry of the last layer as it is mixed for each site."""
    info = updates.infos[name]
    whole = slice(0, math.prod(info.shape))
    rows, origin = updates.rows(name, whole), updates.origin(name, whole)
    fedavg.require_numbers(updates, name, rows)
    assert origin is not None, "only contributions to a base are mixed"
    for site_weights in weights:
        mixed = origin + fedavg.weighted_mean(rows, site_weights)
        yield mixed.reshape(info.shape).astype(network_updates.numpy_type(info.dtype))


def mixing_weights(references: models.Float64, variances: models.Float64) -> models.Float64:
    """Return how much of each site's head every site takes.

    Parameters
    ----------
    references : float64, shape (sites, numbers)
        ``h_j``, flattened.
    variances : float64, shape (sites,)
        ``v``, at least 0.

    Returns
    -------
    float64, shape (sites, sites)
        Row i is for site i: at least 0.001 or 0, with the sum 1.
    """
    # D follows from distances alone, and these are exact for sites that are near to one another,
    # however far away a site that lies may be.
    distances = np.array(
        [np.square(reference - references).sum(axis=1) for reference in references]
    )
    weights: models.Float64 = np.empty_like(distances)
    for site, to in enumerate(distances):
        mix = minimise_on_simplex(np.diag(variances) + (to[:, None] + to - distances) / 2)
        # Rounded, so that it does not matter in which order a library adds up.
        mix = np.round(mix, _DIGITS)
        mix[mix < LEAST_WEIGHT] = 0.0
        weights[site] = mix / math.fsum(mix)
    return weights


def minimise_on_simplex(matrix: models.Float64) -> models.Float64:
    """Return the a with ``a >= 0`` and ``sum(a) = 1`` for which ``a' M a`` is smallest.

    The minimum over some entries with weights of any sign is a linear system. Entries that would
    become negative are dropped, and the entry with the steepest descent is added, until none
    helps. Of equal minima, the most even one is returned.

    Parameters
    ----------
    matrix : float64, shape (sites, sites)
        Symmetric and positive semidefinite.

    Source: Wolfe 1976, "Finding the Nearest Point in a Polytope".
    """
    size, diagonal = len(matrix), np.diag(matrix)
    # The minimum is not above the smallest number of the diagonal.
    scaled = matrix / diagonal.min(where=diagonal > 0, initial=math.inf) + _RIDGE * np.eye(size)
    chosen = [int(np.argmin(np.diag(scaled)))]
    point: models.Float64 = np.zeros(size)
    point[chosen] = 1.0
    for _ in range(10 * size):
        gradient = (scaled * point).sum(axis=1)
        best = int(np.argmin(gradient))
        if best in chosen or gradient[best] >= (point * gradient).sum() - _TOLERANCE:
            break
        chosen = sorted([*chosen, best])
        while True:
            free = np.linalg.solve(scaled[np.ix_(chosen, chosen)], np.ones(len(chosen)))
            free /= free.sum()
            now, falls = point[chosen], free <= 0
            if not falls.any():
                point[chosen] = free
                break
            step = (now[falls] / (now[falls] - free[falls])).min()
            moved = now + step * (free - now)
            moved[falls & (moved <= _TOLERANCE)] = 0.0
            point[chosen] = moved
            chosen = [index for index in chosen if point[index] > 0]
    return point
