"""Rounds in one process and without files, for studies that hold thousands of them."""

import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from aggregators.methods.registry import find_method
from aggregators.models import NetworkContribution, StateDict
from aggregators.secure_sum import layout as sum_layout
from aggregators.secure_sum import sharing
from site_agent.errors import InvalidInputError, TrainingFailedError
from site_agent.federated.local_training import Privacy, count_honest
from site_agent.federated.personal import MemoryParts, PersonalPart
from site_agent.federated.plan import CombinedRound, FederationPlan, combine, first_model
from site_agent.federated.rounds import Courier, hold_rounds, train_in_round

SUM = "sum of all sites"

Corrupt = Callable[[str, int, NetworkContribution], NetworkContribution]
"""Takes a site, the number of a round and the site's contribution; returns the one to send."""


@dataclass(frozen=True, eq=False)
class HeldRound(CombinedRound):
    """One round that was held."""

    number: int
    """From 1."""
    parts: Mapping[str, PersonalPart] = field(default_factory=dict)
    """The personal part of each site so far; empty for methods without personal parts."""


def honest(
    _site: str, _round_number: int, contribution: NetworkContribution
) -> NetworkContribution:
    """Return a contribution as it is."""
    return contribution


def run_rounds(
    base: StateDict,
    sites: Mapping[str, Any],
    plan: FederationPlan,
    *,
    corrupt: Corrupt = honest,
    secure: bool = False,
    order: Callable[[str, str], int] | None = None,
) -> Iterator[HeldRound]:
    """Hold the rounds of a plan, and yield each one when it has ended.

    All updates and networks have the digests that the engines with files give. Each yielded round
    holds a network and its state in memory: keep only those that you need.

    `sites`: At least 2 samples for each site. `corrupt`: Alters the sites' updates, to study
    hostile ones. `secure`: Combine the secure sum of the contributions, not each of them; the only
    update of a round is then the sum, under the name of `SUM`. `order`: Takes a site and the
    base's SHA-256; returns the seed of the order of samples, which sites of real rounds keep
    secret. By default it follows from the plan.

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
    >>> from site_agent.federated.plan import make_plan
    >>> from site_agent.networks.modules import new_network
    >>> plan = make_plan("fedadam", {"epochs": 2}, rounds=2)
    >>> [held.number for held in run_rounds(new_network("gaze-lenet"), sites, plan)]
    [1, 2]
    """
    if secure and (reason := find_method(plan.method).reason_not_summable):
        raise InvalidInputError(f"{plan.method} {reason}")
    yield from hold_rounds(plan, _MemoryCourier(base, sites, plan, corrupt, order, secure=secure))


class _MemoryCourier(Courier[NetworkContribution, CombinedRound, HeldRound]):
    """Trains the sites one after the other in this process."""

    def __init__(
        self,
        base: StateDict,
        sites: Mapping[str, Any],
        plan: FederationPlan,
        corrupt: Corrupt,
        order: Callable[[str, str], int] | None,
        *,
        secure: bool,
    ) -> None:
        self.sites, self._plan, self._corrupt, self._order = sites, plan, corrupt, order
        self._samples, self._secure = sites, secure
        self._model, self._parts = first_model(base), MemoryParts()
        self._privacy = Privacy(honest_labs=count_honest(sites) if secure else 1)

    def collect(self, number: int, sites: Sequence[str]) -> dict[str, NetworkContribution]:
        model, plan, contributions = self._model, self._plan, {}
        for site in sites:
            try:
                made = train_in_round(
                    model.network,
                    model.digest,
                    self._samples[site],
                    plan.method,
                    plan.split,
                    parts=self._parts,
                    site=site,
                    number=number,
                    privacy=self._privacy,
                    order_seed=None if self._order is None else self._order(site, model.digest),
                )
            except TrainingFailedError as error:
                raise TrainingFailedError(f"site {site}: {error}") from error
            contributions[site] = self._corrupt(site, number, made)
        if self._secure:
            mean = plan.method_options["mean"]
            return {SUM: sum_in_memory(model.network, contributions, mean=mean)}
        return contributions

    def combine(
        self, _number: int, contributions: Mapping[str, NetworkContribution]
    ) -> CombinedRound:
        combined = combine(self._plan, self._model, contributions)
        self._model = combined.model
        return combined

    def deliver(self, site: str, number: int, reply: bytes) -> None:
        self._parts.take_reply(site, number, reply)

    def end(self, number: int, combined: CombinedRound) -> HeldRound:
        return HeldRound(**vars(combined), number=number, parts=dict(self._parts))


# A secure sum in memory is the arithmetic of labs and servers without their messages.
#
# Encoding, shares, tags and the check are those of `site_agent.secure`. All parties are one process
# here, so nothing is hidden from it.
_SERVERS = tuple(f"server-{number}" for number in range(3))
_SESSION = "in memory"
_CHALLENGES = 3


def sum_in_memory(
    base: StateDict, contributions: Mapping[str, NetworkContribution], *, mean: str = "samples"
) -> NetworkContribution:
    """Return the one contribution that three servers make of those of all labs.

    Parameters
    ----------
    contributions : mapping of str to NetworkContribution
        By lab; at least 1, all to the same base.
    mean : str
        ``samples``: weighted by numbers of samples. ``sites``: equal for all labs.
    """
    first, budget = next(iter(contributions.values())), sum_layout.BitBudget()
    layout = sum_layout.network_layout(base, first.base_digest, first.settings)
    totals = [np.zeros(layout.size + _CHALLENGES, dtype=np.uint64) for _ in _SERVERS]
    vectors = {}
    for lab, update in contributions.items():
        weighted = replace(update, samples=1) if mean == "sites" else update
        masks = sharing.random_numbers(os.urandom(sharing.SEED_BYTES), _CHALLENGES)
        encoded = sum_layout.encode_network(layout, weighted, base, budget)
        vectors[lab] = np.concatenate([encoded, masks])
        for total, share in zip(totals, _shares(lab, vectors[lab]), strict=True):
            sharing.add_to(total, share)
    transcript = sharing.digest_of(_SESSION, *(sharing.to_bytes(total) for total in totals))
    drawn = list(sharing.challenges(transcript, _CHALLENGES, layout.size))
    tags = sharing.add_check_values(
        sharing.check_values(vector, drawn) for vector in vectors.values()
    )
    if tags != sharing.add_check_values(sharing.check_values(total, drawn) for total in totals):
        raise InvalidInputError("the labs' check values do not add up to those of the servers")
    for other in totals[1:]:
        sharing.add_to(totals[0], other)
    numbers = totals[0][: layout.size]
    means, weights = sum_layout.decode_sum(numbers, 1, len(contributions), budget)
    return sum_layout.combine_network(layout, means, int(weights[0]), dict(first.settings))


def _shares(lab: str, vector: sharing.UInt64) -> list[sharing.UInt64]:
    """Return the share of each server; they add up to the vector."""
    seeds = {server: os.urandom(sharing.SEED_BYTES) for server in _SERVERS[1:]}
    expanded = [
        sharing.share_from_seed(seed, _SESSION, lab, x, len(vector)) for x, seed in seeds.items()
    ]
    return [sharing.explicit_share(vector, seeds, _SESSION, lab), *expanded]
