"""Leaks: the networks of a federation that an attacker has seen.

All attacks work on the same form: in each round, a network before training and one or several
after it. ``plain`` has one network after for each site, ``secure`` only the combined one, and
``floor`` the final network against the first, as if all rounds were one. The first network is
public in all of them.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from aggregators.models import NetworkContribution, StateDict
from site_agent.attacks.separation import Float64
from site_agent.datasets.gaze.records import GazeSamples
from site_agent.errors import InvalidInputError
from site_agent.federated.in_process import run_rounds
from site_agent.federated.plan import FederationPlan
from site_agent.networks.modules import predict_gaze, to_module

LeakName = Literal["plain", "secure", "floor", "none"]
LEAKS: tuple[LeakName, ...] = ("plain", "secure", "floor", "none")
ALL_SITES = "all sites"
"""The name of the combined network among the networks after a round."""


@dataclass(frozen=True, eq=False)
class LeakedRound:
    """Networks before and after training."""

    before: StateDict
    after: Mapping[str, StateDict]
    """By site, or one under `ALL_SITES`."""


@dataclass(frozen=True, eq=False)
class Leak:
    """All that an attacker has seen; `rounds` is empty if that is nothing."""

    name: str
    rounds: tuple[LeakedRound, ...]


@dataclass(frozen=True, eq=False)
class RecordedRound:
    """One round of a federation: its base, the update of each site, and the result."""

    base: StateDict
    updates: Mapping[str, NetworkContribution]
    result: StateDict


@dataclass(frozen=True, eq=False)
class LeakLosses:
    """Losses of leaked networks on some samples: mean absolute error of both angles, in radians.

    `sites`: As in `LeakedRound.after`. `before` (float64, shape (rounds, n)). `after` (float64,
    shape (sites, rounds, n)).
    """

    sites: tuple[str, ...]
    before: Float64
    after: Float64

    @property
    def gains(self) -> Float64:
        """Return the decrease of the losses by training, summed over rounds: shape (sites, n)."""
        gains: Float64 = (self.before[None] - self.after).sum(axis=1)
        return gains

    def of(self, index: NDArray[np.generic] | slice) -> "LeakLosses":
        """Return the losses on some of the samples."""
        return LeakLosses(self.sites, self.before[:, index], self.after[:, :, index])


class Losses:
    """Losses of networks on fixed samples; each network is run once."""

    def __init__(self, samples: GazeSamples) -> None:
        self.samples = samples
        self._known: dict[int, tuple[StateDict, Float64]] = {}

    def of(self, network: StateDict) -> Float64:
        """Return the loss on each sample, shape (n,)."""
        if id(network) not in self._known:
            self._known[id(network)] = (network, sample_losses(network, self.samples))
        return self._known[id(network)][1]

    def of_leak(self, leak: Leak) -> LeakLosses:
        """Return the losses of all networks of a leak with at least one round."""
        if not leak.rounds:
            raise InvalidInputError(f"the leak {leak.name!r} holds no network")
        sites = tuple(leak.rounds[0].after)
        before = np.array([self.of(round_.before) for round_ in leak.rounds])
        after = np.array(
            [[self.of(round_.after[site]) for round_ in leak.rounds] for site in sites]
        )
        return LeakLosses(sites, before, after)


def record_rounds(
    base: StateDict, sites: Mapping[str, GazeSamples], plan: FederationPlan
) -> list[RecordedRound]:
    """Hold the rounds of a plan in memory, and keep each site's update; raises as `run_rounds`."""
    sent: dict[int, dict[str, NetworkContribution]] = {}

    def keep(site: str, number: int, contribution: NetworkContribution) -> NetworkContribution:
        sent.setdefault(number, {})[site] = contribution
        return contribution

    recorded = []
    for held in run_rounds(base, sites, plan, corrupt=keep):
        # Attacks run networks under the architecture's name, which results of merges carry too.
        result = StateDict(held.model.network.tensors, held.model.network.infos, base.metadata)
        recorded.append(RecordedRound(base, sent.pop(held.number), result))
        base = result
    return recorded


def leak_of(name: LeakName, recorded: Sequence[RecordedRound]) -> Leak:
    """Return an attacker's view of a federation; every site took part in each round."""
    if name == "none":
        return Leak(name, ())
    if name == "floor":
        last = {ALL_SITES: recorded[-1].result}
        return Leak(name, (LeakedRound(recorded[0].base, last),))
    if name == "secure":
        return Leak(
            name, tuple(LeakedRound(round_.base, {ALL_SITES: round_.result}) for round_ in recorded)
        )
    rounds = tuple(
        LeakedRound(
            round_.base,
            {site: apply_update(round_.base, sent) for site, sent in round_.updates.items()},
        )
        for round_ in recorded
    )
    return Leak(name, rounds)


def leak_of_network(base: StateDict, network: StateDict) -> Leak:
    """Return the leak of one network and the base that it was trained from."""
    return Leak("network", (LeakedRound(base, {ALL_SITES: network}),))


def sum_over_rounds(
    leak: Leak, score: Callable[[StateDict, StateDict], Mapping[str, Float64]]
) -> dict[str, Float64]:
    """Return scores of samples by name, summed over rounds; the highest of all sites.

    `score`: Of a network before training and one after it; a round may lack a name.
    """
    best: dict[str, Float64] = {}
    for site in leak.rounds[0].after:
        totals: dict[str, Float64] = {}
        for round_ in leak.rounds:
            for name, values in score(round_.before, round_.after[site]).items():
                totals[name] = totals.get(name, 0.0) + values
        for name, values in totals.items():
            best[name] = np.maximum(best.get(name, -np.inf), values)
    return best


def apply_update(base: StateDict, *updates: NetworkContribution) -> StateDict:
    """Return the network that one site has trained, or the mean of those of several sites.

    `updates`: At least one; of differences from `base`.
    """
    tensors: dict[str, NDArray[np.generic]] = {}
    for name, info in base.infos.items():
        values = [update.network.tensors[name] for update in updates]
        if not info.dtype.startswith("F"):
            tensors[name] = values[0]
            continue
        mean = np.mean(np.array(values), axis=0, dtype=base.tensors[name].dtype)
        tensors[name] = np.add(base.tensors[name], mean)
    return StateDict(tensors, dict(base.infos), base.metadata)


def sample_losses(network: StateDict, samples: GazeSamples) -> Float64:
    """Return the mean absolute error of yaw and pitch on each sample, in radians: shape (n,)."""
    predicted = predict_gaze(to_module(network), samples.patches, samples.head)
    losses: Float64 = np.abs(predicted - samples.gaze).mean(axis=1)
    return losses
