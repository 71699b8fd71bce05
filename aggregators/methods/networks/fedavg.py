"""FedAvg: the weighted mean of networks' parameters."""

import math
from collections.abc import Callable
from typing import Literal

import numpy as np
from pydantic import Field

from aggregators.errors import IncompatibleModelsError
from aggregators.methods.contract import CappedOptions, Combined, OptionsT, Progress
from aggregators.methods.networks import updates as network_updates
from aggregators.methods.sub_models import SubModels, cap_samples
from aggregators.models import Float64, MergeInput, NetworkContribution


class MeanOptions(CappedOptions):
    """The options of averaging contributions; networks without a base have their weights only."""

    mean: Literal["samples", "sites"] = Field(
        default="samples", description="By numbers of samples, or equal for all sites."
    )


Average = Callable[[str, slice, Float64], Float64]
"""Takes an entry's name, a block and the updates (sites, numbers); returns (numbers,)."""


class MeanMethod(network_updates.NetworkMethod[OptionsT]):
    """Base of the methods that average contributions, or networks, by the weights of sites."""

    def averaging(self, updates: network_updates.Updates, weights: Float64) -> Average:  # noqa: ARG002
        """Return the function that averages a block."""
        return lambda _name, _block, rows: weighted_mean(rows, weights)

    def combine(
        self, sub_models: SubModels[MergeInput], options: OptionsT, _progress: Progress, /
    ) -> Combined:
        updates = network_updates.collect_updates(sub_models, self.name)
        if len(updates.sites) == 1 and updates.base is None:
            return Combined(network_updates.network_of(updates.sites[0]))
        weights = site_weights(updates, options)  # type: ignore[arg-type]
        average = self.averaging(updates, weights)

        def combine(name: str, block: slice, rows: Float64) -> Float64:
            require_numbers(updates, name, rows)
            return average(name, block, rows)

        network = network_updates.stream_network(
            updates, combine, network_updates.pick_first(updates)
        )
        warnings = network_updates.warn_of_differing_entries(
            updates
        ) + network_updates.warn_of_lone_mover(updates, weights)
        return Combined(network, warnings)


class FedAvg(MeanMethod[MeanOptions]):
    """``w = sum(n_k w_k) / sum(n_k)`` for every floating-point entry, in float64.

    The inputs are networks, with weights that are usually numbers of training samples; or a
    base and contributions, which state their samples. BatchNorm statistics are averaged like
    other entries. No site counts with more than `weight_cap` times the median number of samples,
    since nobody can check a site's statement. Entries that are not floating-point (counters,
    masks) come from the input with the lowest digest, with a warning if the inputs differ in
    them. The result is rounded once, to the stored type.

    Source: McMahan et al. 2017, "Communication-Efficient Learning of Deep Networks from
    Decentralized Data".
    """

    name = "fedavg"
    version = 2
    summary = "weighted mean of networks' parameters"
    options_type = MeanOptions


def site_weights(updates: network_updates.Updates, options: MeanOptions) -> Float64:
    """Return the weight of each site: the given one, for contributions times their samples.

    Samples are capped; the median counts equal files of two sites twice.
    """
    weights = np.array([site.weight for site in updates.sites])
    if options.mean != "samples" or updates.base is None:
        return weights
    stated = [
        site.model.samples if isinstance(site.model, NetworkContribution) else 1
        for site in updates.sites
    ]
    copies = [site.copies for site in updates.sites]
    samples = np.repeat(stated, copies).tolist()
    return weights * np.minimum(stated, cap_samples(samples, options.weight_cap))


def weighted_mean(rows: Float64, weights: Float64) -> Float64:
    """Return the weighted mean of the rows, summed in their order.

    Parameters
    ----------
    rows : float64, shape (sites, numbers)
    weights : float64, shape (sites,)
    """
    total: Float64 = rows[0] * weights[0]
    for row, weight in zip(rows[1:], weights[1:], strict=True):
        # Masks hold infinities: equal ones stay, opposite ones give NaN.
        with np.errstate(invalid="ignore"):
            total += row * weight
    total /= math.fsum(weights)
    return total


def require_numbers(updates: network_updates.Updates, name: str, rows: Float64) -> None:
    """Raise `IncompatibleModelsError` for a network with NaN, since the mean would keep it."""
    if not np.isnan(rows).any():
        return
    site = updates.sites[int(np.argmax(np.isnan(rows).any(axis=1)))]
    raise IncompatibleModelsError(
        f"entry {name!r}",
        "numbers",
        "NaN",
        first_name="a valid network",
        other_name=site.name,
        hint="its training may have diverged",
    )
