"""The votes of the robust methods: one for each site, none for an update that is not finite."""

from abc import abstractmethod
from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from aggregators.errors import IncompatibleModelsError
from aggregators.methods.contract import Combined, OptionsT, Progress
from aggregators.methods.networks import updates as network_updates
from aggregators.methods.sub_models import SubModels
from aggregators.models import Float64, MergeInput, StateDict


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
