"""Krum: the one network that is closest to most of the others."""

import numpy as np
from pydantic import Field

from aggregators.errors import OptionError
from aggregators.methods.contract import MethodOptions, Progress
from aggregators.methods.networks import updates as network_updates
from aggregators.methods.networks.voting import RobustMethod, Votes
from aggregators.models import Float64, NetworkContribution, StateDict


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
