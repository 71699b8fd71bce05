"""Robust means of networks: trimmed, median, clipped, and Krum."""

import math

import numpy as np
from pydantic import Field

from aggregators.errors import OptionError
from aggregators.methods.contract import MethodOptions, NoOptions, Progress
from aggregators.methods.networks import updates as network_updates
from aggregators.methods.networks.updates import update_norms
from aggregators.methods.networks.voting import RobustMethod, Votes, mean_within, stream_votes
from aggregators.models import Float64, NetworkContribution, StateDict


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
        """Refuse a trim above 0 that leaves out nobody, which is the mean: one site decides it."""
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
    """Return how many sites a fraction is, rounded down."""
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
