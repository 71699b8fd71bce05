"""Rounds in one process and without files, for studies that hold thousands of them."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass

from aggregators.methods.registry import find_method
from aggregators.models import NetworkContribution, StateDict
from site_agent.datasets.gaze import GazeSamples
from site_agent.errors import InvalidInputError, TrainingFailedError
from site_agent.federated.combining import CombinedRound, combine, first_model
from site_agent.federated.local_training import train_contribution
from site_agent.federated.plan import FederationPlan
from site_agent.federated.summing import sum_in_memory

SUM = "sum of all sites"

Corrupt = Callable[[str, int, NetworkContribution], NetworkContribution]
"""Takes a site, the number of a round and the site's contribution; returns what it sends."""


@dataclass(frozen=True, eq=False)
class HeldRound(CombinedRound):
    """One round that was held.

    Attributes
    ----------
    number : int
        From 1.
    """

    number: int


def honest(
    _site: str, _round_number: int, contribution: NetworkContribution
) -> NetworkContribution:
    """Return a contribution as it is."""
    return contribution


def run_rounds(
    base: StateDict,
    sites: Mapping[str, GazeSamples],
    plan: FederationPlan,
    *,
    corrupt: Corrupt = honest,
    secure: bool = False,
) -> Iterator[HeldRound]:
    """Hold the rounds of a plan, and yield each one when it has ended.

    All updates and networks have the digests that the engines with files give. Each yielded round
    holds a network and its state in memory: keep no more of them than needed.

    Parameters
    ----------
    sites : mapping of str to GazeSamples
        At least 2 samples for each site.
    corrupt : callable, optional
        Alters what sites send, to study hostile updates.
    secure : bool
        Combine the secure sum of the contributions, not each of them; the only update of a round
        is then the sum, under the name of `SUM`.

    Raises
    ------
    TrainingDataError, TrainingFailedError
        A site cannot train; the message of the latter names the site.
    InvalidInputError
        `secure` with a method that needs each contribution.
    AggregatorError
        The method refuses the contributions.

    Examples
    --------
    >>> plan = make_plan("fedadam", {"eta": 0.001, "epochs": 2}, rounds=30)  # doctest: +SKIP
    >>> for held in run_rounds(new_network("gaze-lenet"), sites, plan):  # doctest: +SKIP
    ...     print(held.number, held.model.digest)
    """
    if secure and find_method(plan.method).needs_each:
        raise InvalidInputError(
            f"{plan.method} compares the contributions with one another, and a secure sum shows "
            "none of them"
        )
    model = first_model(base)
    for number in range(1, plan.rounds + 1):
        contributions = {}
        for site in plan.sites_in(number, sites):
            try:
                made = train_contribution(
                    model.network,
                    model.digest,
                    sites[site],
                    plan.training,
                    site=site,
                    round_number=number,
                )
            except TrainingFailedError as error:
                raise TrainingFailedError(f"site {site}: {error}") from error
            contributions[site] = corrupt(site, number, made)
        if secure:
            mean = plan.method_options["mean"]
            contributions = {SUM: sum_in_memory(model.network, contributions, mean=mean)}
        held = combine(plan, model, contributions)
        model = held.model
        yield HeldRound(held.model, held.update_digests, held.warnings, number)
