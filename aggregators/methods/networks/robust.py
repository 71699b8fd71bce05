"""Robust means of networks: trimmed, median, clipped, the geometric median, and Krum.

Each site has one vote, and none for an update that is not finite.
"""

import math
from abc import abstractmethod
from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from aggregators.errors import IncompatibleModelsError, OptionError
from aggregators.methods.contract import Combined, MethodOptions, NoOptions, OptionsT, Progress
from aggregators.methods.networks import updates as network_updates
from aggregators.methods.networks.fedavg import weighted_mean
from aggregators.methods.networks.updates import Updates, update_norms
from aggregators.methods.sub_models import SubModels
from aggregators.models import Float64, MergeInput, NetworkContribution, StateDict


@dataclass(frozen=True, eq=False)
class Votes:
    """The updates that count, one for each site."""

    updates: network_updates.Updates
    """Equal files of two sites are two entries of `updates.sites`."""
    dropped: int
    """Number of sites with updates that are not finite; they count as hostile."""
    warnings: tuple[str, ...]

    @property
    def count(self) -> int:
        return len(self.updates.sites)


class RobustMethod(network_updates.NetworkMethod[OptionsT]):
    """Base of the methods that give each site one vote and withstand a few hostile ones."""

    needs_each = True

    @abstractmethod
    def combine_votes(self, votes: Votes, options: OptionsT, progress: Progress, /) -> StateDict:
        """Return the network that the votes make."""

    def combine(
        self, sub_models: SubModels[MergeInput], options: OptionsT, progress: Progress, /
    ) -> Combined:
        votes = collect_votes(sub_models, self.name)
        return Combined(self.combine_votes(votes, options, progress), votes.warnings)


def collect_votes(sub_models: SubModels[MergeInput], method: str) -> Votes:
    """Return the finite updates, one for each site; weights and samples do not matter."""
    updates = network_updates.collect_updates(sub_models, method)
    # A copy is a vote of its own: two sites may honestly send the same file.
    sites = tuple(
        replace(site, weight=1.0, copies=1) for site in updates.sites for _ in range(site.copies)
    )
    updates = replace(updates, sites=sites)
    warnings = []
    if len({site.weight / site.copies for site in sub_models.in_given_order}) > 1:
        warnings.append(f"{method} counts sites: the weights change nothing")
    finite = {
        site.digest for site in sites if _is_finite(updates, network_updates.network_of(site))
    }
    kept = tuple(site for site in sites if site.digest in finite)
    if not kept:
        raise IncompatibleModelsError(
            "updates", "finite numbers", "infinities or NaN", other_name="every input"
        )
    dropped = sorted({site.name for site in sites if site.digest not in finite})
    warnings += [f"{name} holds infinities or NaN and was left out" for name in dropped]
    return Votes(replace(updates, sites=kept), len(sites) - len(kept), tuple(warnings))


def _is_finite(updates: network_updates.Updates, network: StateDict) -> bool:
    alone = replace(updates, sites=updates.sites[:1])
    return all(
        bool(np.isfinite(network.tensors[name].reshape(-1)[block]).all())
        for name in updates.float_names
        for block in alone.blocks(name)
    )


def stream_votes(votes: Votes, combine: Callable[[Float64], Float64]) -> StateDict:
    """Return the network of a function of the updates; counters are the lower median."""
    sites = votes.updates.sites

    def pick(name: str) -> NDArray[np.generic]:
        values = np.stack([network_updates.network_of(site).tensors[name] for site in sites])
        # An honest value as long as fewer than half of the sites lie, which a mean is not.
        middle: NDArray[np.generic] = np.sort(values, axis=0)[(len(sites) - 1) // 2]
        return middle

    return network_updates.stream_network(
        votes.updates, lambda _name, _block, rows: combine(rows), pick
    )


def mean_within(rows: Float64) -> Float64:
    """Return the mean of the rows, never rounded out of their range.

    Parameters
    ----------
    rows : float64, shape (sites, numbers)
    """
    total = rows[0].copy()
    for row in rows[1:]:
        total += row
    total /= len(rows)
    # Rounding may leave the range of equal rows, and law 2 asks for their exact value.
    within: Float64 = np.clip(total, rows.min(axis=0), rows.max(axis=0))
    return within


class TrimOptions(MethodOptions):
    """Options of the trimmed mean."""

    trim: float = Field(
        default=0.2, ge=0, le=0.5, description="Fraction of the sites left out at either end."
    )


class TrimmedMean(RobustMethod[TrimOptions]):
    """The mean of a parameter's values without the `trim` largest and smallest ones.

    With at most that fraction of hostile sites, every parameter stays within the range of the
    honest ones. A trim of 0 is the mean, one of 0.5 the median. Updates that are not finite are
    left out and reduce the number trimmed at each end.

    Source: Yin et al. 2018, "Byzantine-Robust Distributed Learning: Towards Optimal Statistical
    Rates".
    """

    name = "trimmed-mean"
    summary = "mean of networks' parameters without the extremes of each"
    options_type = TrimOptions

    def require_sites(self, sites: int, options: TrimOptions) -> None:
        """Refuse a trim above 0 that leaves out no site: one site could steer such a plain mean."""
        trimmed = min(count_tolerated(options.trim, sites), _most(sites))
        if options.trim > 0 and trimmed == 0:
            needed = max(3, math.ceil(1 / options.trim - 1e-9))
            raise OptionError(
                f"trim {options.trim:g} leaves out none of {sites} sites, which is the plain mean: "
                f"it needs at least {needed} sites"
            )

    def combine_votes(
        self, votes: Votes, options: TrimOptions, _progress: Progress, /
    ) -> StateDict:
        if votes.updates.base is not None:
            self.require_sites(votes.count + votes.dropped, options)
        # Updates that were dropped already are no longer among the extremes.
        tolerated = count_tolerated(options.trim, votes.count + votes.dropped)
        count = max(0, min(tolerated - votes.dropped, _most(votes.count)))
        return stream_votes(votes, lambda rows: trimmed_mean(rows, count))


class Median(RobustMethod[NoOptions]):
    """The median of each parameter; of an even number of sites, the mean of the middle two."""

    name = "median"
    summary = "median of networks' parameters"
    options_type = NoOptions

    def combine_votes(self, votes: Votes, _options: NoOptions, _progress: Progress, /) -> StateDict:
        return stream_votes(votes, lambda rows: trimmed_mean(rows, _most(len(rows))))


def trimmed_mean(rows: Float64, count: int) -> Float64:
    """Return the mean of each column without its `count` largest and smallest numbers.

    Parameters
    ----------
    rows : float64, shape (sites, numbers)
    """
    if count:
        rows = np.sort(rows, axis=0)[count : len(rows) - count]
    return mean_within(rows)


def count_tolerated(trim: float, sites: int) -> int:
    """Return the number of sites in a fraction of them, rounded down."""
    # 0.29 * 100 is a little less than 29.
    return math.floor(trim * sites + 1e-9)


def _most(sites: int) -> int:
    return (sites - 1) // 2


class ClipOptions(MethodOptions):
    """Options of the clipped mean."""

    limit: float = Field(
        default=1.0, ge=1, description="Largest norm of an update, in medians of all norms."
    )


class NormClip(RobustMethod[ClipOptions]):
    """The mean of the updates, each scaled down to at most `limit` times the median norm.

    An update is the difference from the base. Networks without a base are clipped as they are,
    which only stops those with inflated parameters: give contributions.

    Source: Sun et al. 2019, "Can You Really Backdoor Federated Learning?"; the bound here is
    relative, so that it follows the size of the updates.
    """

    name = "norm-clip"
    summary = "mean of networks' updates, none larger than most"
    options_type = ClipOptions

    def combine_votes(
        self, votes: Votes, options: ClipOptions, _progress: Progress, /
    ) -> StateDict:
        factors = clip_factors(update_norms(votes.updates), options.limit)
        return stream_votes(votes, lambda rows: mean_within(rows * factors[:, np.newaxis]))


def clip_factors(norms: Float64, limit: float) -> Float64:
    """Return the number by which each update is multiplied, at most 1."""
    # The median cannot be moved beyond the honest norms by fewer than half of the sites.
    bound = limit * np.median(norms)
    return np.divide(bound, norms, out=np.ones_like(norms), where=norms > bound)


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


class KrumOptions(MethodOptions):
    """Options of Krum."""

    hostile: int | None = Field(
        default=None,
        ge=0,
        description="Number f of hostile sites to withstand; by default the most that n allows.",
    )


class Krum(RobustMethod[KrumOptions]):
    """The input with the smallest sum of squared distances to its ``n - f - 2`` nearest ones.

    With f hostile sites, the number of sites must be at least ``2 f + 3``. The result is one
    input, exactly; of equally good ones, that with the lowest digest. Updates that are not finite
    are left out and count as hostile.

    Source: Blanchard et al. 2017, "Machine Learning with Adversaries: Byzantine Tolerant Gradient
    Descent".
    """

    name = "krum"
    summary = "the one network that is closest to most others"
    options_type = KrumOptions

    def require_sites(self, sites: int, options: KrumOptions) -> None:
        _require_enough(sites, options.hostile or 0)

    def combine_votes(self, votes: Votes, options: KrumOptions, progress: Progress, /) -> StateDict:
        # An update that is not finite counts as hostile: it is one of the f.
        sites = votes.count + votes.dropped
        hostile = (sites - 3) // 2 if options.hostile is None else options.hostile
        _require_enough(sites, max(0, hostile))
        hostile = max(0, hostile - votes.dropped)
        _require_enough(votes.count, hostile)
        chosen = find_closest(squared_distances(votes.updates, progress), hostile)
        return _network_of_site(votes.updates, chosen)


def squared_distances(updates: network_updates.Updates, progress: Progress) -> Float64:
    """Return the squared distances between all updates, shape (sites, sites)."""
    from aggregators.methods.networks.distance_kernel import add_squared_distances

    count = len(updates.sites)
    distances: Float64 = np.zeros((count, count))
    for position, name in enumerate(updates.float_names):
        progress(position / len(updates.float_names), f"distances in {name}")
        for block in updates.blocks(name):
            # Beyond the range of float64 a distance is infinite, so that site is far from all.
            add_squared_distances(updates.rows(name, block), distances)
    return distances + distances.T


def find_closest(distances: Float64, hostile: int) -> int:
    """Return the row with the smallest sum of its ``n - hostile - 2`` smallest distances.

    Parameters
    ----------
    distances : float64, shape (sites, sites)
        Squared, symmetric, zero on the diagonal.
    """
    count = len(distances)
    # The first column is each site's distance to itself.
    nearest = np.sort(distances, axis=1)[:, 1 : count - hostile - 1]
    return int(np.argmin(nearest.sum(axis=1)))


def _require_enough(sites: int, hostile: int) -> None:
    if sites < 2 * hostile + 3:
        raise OptionError(
            f"krum: found {sites} updates, expected at least {2 * hostile + 3} to withstand "
            f"{hostile} hostile ones (2 f + 3)"
        )


def _network_of_site(updates: network_updates.Updates, number: int) -> StateDict:
    site = updates.sites[number]
    if not isinstance(site.model, NetworkContribution):
        return network_updates.network_of(site)
    alone = network_updates.Updates(updates.base, (site,))
    if not network_updates.holds_differences(site):
        return StateDict(site.model.network.tensors, alone.infos, alone.metadata)
    return network_updates.stream_network(
        alone, lambda _name, _block, rows: rows[0], network_updates.pick_first(alone)
    )
