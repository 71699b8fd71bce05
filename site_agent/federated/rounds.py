"""The rounds of a plan: one loop for all ways of networks and contributions.

Each round is trained at its sites, combined, answered where the method replies to each site, and
scored. A `Courier` carries all of it: within this process (`site_agent.federated.in_process`),
through a folder to worker processes (`site_agent.federated.engines.simulator`), or over the network
(`site_agent.federated.live.server`). In rounds through a pool (`site_agent.rounds`) the pool
combines, and finishing a round opens the next.

At a site all of these train by `train_in_round`.
"""

import math
from abc import ABC, abstractmethod
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Generic, Protocol, TypeVar

from aggregators.methods.networks.replies import encode_reply
from aggregators.methods.registry import find_method
from aggregators.methods.round_options import RoundOptions
from aggregators.models import NetworkContribution, OptimiserState, StateDict
from site_agent.federated.leak_checks import require_safe
from site_agent.federated.local_training import Privacy, train_at_site
from site_agent.federated.personal import PartStore, assemble
from site_agent.federated.plan import FederationPlan


class Combination(Protocol):
    """The combined contributions of a round."""

    @property
    def state(self) -> OptimiserState | None: ...

    @property
    def update_digests(self) -> Mapping[str, str]:
        """SHA-256 of each contribution's file, by site."""


ContributionT = TypeVar("ContributionT")
CombinedT = TypeVar("CombinedT", bound=Combination)
HeldT = TypeVar("HeldT")


class Courier(ABC, Generic[ContributionT, CombinedT, HeldT]):
    """Carries the networks of rounds to the sites, and their contributions back."""

    sites: Collection[str]

    @abstractmethod
    def collect(self, number: int, sites: Sequence[str]) -> Mapping[str, ContributionT]:
        """Have sites train in a round, and return their contributions."""

    @abstractmethod
    def combine(self, number: int, contributions: Mapping[str, ContributionT]) -> CombinedT:
        """Make the network of a round from the contributions."""

    @abstractmethod
    def deliver(self, site: str, number: int, reply: bytes) -> None:
        """Bring a site the reply to its contribution."""

    @abstractmethod
    def end(self, number: int, combined: CombinedT) -> HeldT:
        """Score a round and record it."""


def hold_rounds(
    plan: FederationPlan, courier: Courier[Any, Any, HeldT], *, first: int = 1
) -> Iterator[HeldT]:
    """Hold the rounds of a plan from number `first` on, and yield each one when it has ended."""
    has_replies = find_method(plan.method).replies
    for number in range(first, plan.rounds + 1):
        sites = plan.sites_in(number, courier.sites)
        combined = courier.combine(number, courier.collect(number, sites))
        if has_replies and combined.state is not None:
            for site, digest in combined.update_digests.items():
                if (reply := encode_reply(combined.state, digest)) is not None:
                    courier.deliver(site, number, reply)
        yield courier.end(number, combined)


@dataclass(frozen=True)
class SiteGuards:
    """The protection of a real site's data in a round; simulations release nothing."""

    round_name: str
    """For messages."""
    privacy: Privacy
    order_seed: int
    """Seed of the order of samples, which nobody else can compute."""
    max_hours: float


def train_in_round(
    base: StateDict,
    digest: str,
    samples: Any,
    method: str,
    options: RoundOptions,
    *,
    parts: PartStore,
    site: str,
    number: int,
    guards: SiteGuards | None = None,
    privacy: Privacy | None = None,
    order_seed: int | None = None,
) -> NetworkContribution:
    """Train the network of a round at a site, and keep the site's personal part.

    `digest`: SHA-256 of the network's file. `parts`: The personal parts of the series. `guards`:
    None in simulations, which give `privacy` and `order_seed` where they need them.

    Raises as `train_at_site`, and `ContributionWithheldError` if a guarded site may not train this
    network.
    """
    before = parts.before(site, number)
    if guards is not None:
        # Check the network that is trained: its personal head may come from elsewhere.
        require_safe(guards.round_name, assemble(base, before), samples, options.training)
    update = train_at_site(
        base,
        digest,
        samples,
        options.training,
        site=site,
        round_number=number,
        method=method,
        options=options.merging,
        before=before,
        max_hours=math.inf if guards is None else guards.max_hours,
        privacy=privacy if guards is None else guards.privacy,
        order_seed=order_seed if guards is None else guards.order_seed,
    )
    if update.part is not None:
        # Before the contribution: where that is, nothing is computed again.
        parts.keep(update.part)
    return update.contribution
