"""A site's own rules in live rounds: which networks it trains, how long, and with how many others.

Possible liar: the server. A base that somebody built for the purpose makes a site's update show its
pictures, so a run of rounds must begin with a network that the site accounts for by itself: it
names its digest, its file, or its address in a pool, where it is made of models of sites that this
one trusts (`site_agent.rounds.provenance`).

The site names the plan, too, by its digest: method, options, seed and number of rounds are in it,
so a server cannot ask for the updates of other networks by another seed.

The networks of later rounds are means over contributions that only the server sees, so a site
cannot make them again. It believes the server there as it believes a pool within a series: as far
as its ledger goes (`site_agent.federated.contribution_ledger`). A network must be as near to the
last one as updates of bounded norm move it, a round has few networks, and every one of them is
audited (`site_agent.federated.leak_checks`). Differential privacy replaces both.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from aggregators.models import StateDict
from site_agent.errors import ContributionWithheldError
from site_agent.federated.contribution_ledger import (
    MOST_NETWORKS,
    ContributionLedger,
    RoundOfSeries,
    most_step,
)
from site_agent.federated.plan import FederationPlan, digest_run
from site_agent.networks.files import read_network


@dataclass(frozen=True)
class SiteRules:
    """The data of a site, and its conditions for live rounds."""

    data: Path
    persons: tuple[str, ...]
    """The persons of the data that take part; empty for all."""
    bases: Mapping[str, Path | None]
    """SHA-256 of each network with which a run may begin, and its file where the site has it."""
    plans: tuple[str, ...]
    """SHA-256 of each plan by which a run may be held."""
    ledger: Path
    """Folder of the site's `ContributionLedger`."""
    federation: str = ""
    """The server's address, which stands for the sites of the federation."""
    least_others: int = 2
    """Smallest number of other sites' contributions to combine with this one's."""
    max_hours: float = math.inf
    """The longest permitted training of a round."""
    most_epsilon: float | None = None
    """Budget of differential privacy for the site's data."""

    def admit(
        self,
        plan: FederationPlan,
        first_base: str,
        number: int,
        network: StateDict,
        digest: str,
        *,
        site: str,
    ) -> int:
        """Record that a network is trained in a round; return how many others must contribute.

        `first_base`: SHA-256 of the network with which the run began, as the server says. `number`:
        Of the round, from 1. `digest`: SHA-256 of the network to train.

        Raises `ContributionWithheldError` if this site did not name the run's plan or first
        network, the round is not in the plan, or the site's ledger speaks against the network.
        """
        name = f"{number} of the run that began with sha256:{first_base[:16]}"
        if first_base not in self.bases:
            raise ContributionWithheldError(
                name,
                [f"the run begins with sha256:{first_base}, which this site did not name"],
                hint="if you know how it was made, start 'poolctl federated site' with "
                f"--base {first_base}",
            )
        if plan.digest not in self.plans:
            raise ContributionWithheldError(
                name,
                [f"the run has the plan sha256:{plan.digest}, which this site did not name"],
                hint="'poolctl federated serve --dry-run' shows a plan with its digest; start "
                "'poolctl federated site' with --accept DIGEST",
            )
        if number == 1 and digest != first_base:
            reason = f"the network is sha256:{digest}, not the one with which the run begins"
            raise ContributionWithheldError(name, [reason])
        if not 1 <= number <= plan.rounds:
            raise ContributionWithheldError(name, [f"its plan has {plan.rounds} rounds"])
        if plan.training.dp_epsilon is not None:
            return self.least_others  # the ledger of privacy counts each release
        first = self.bases[first_base]
        about = RoundOfSeries(
            name,
            digest_run(plan, first_base),
            number,
            site,
            (self.federation,),
            most_step(plan.method, plan.split),
            MOST_NETWORKS,
        )
        read_first = None if first is None else lambda: read_network(first)
        others = ContributionLedger(self.ledger).admit(about, network, digest, read_first)
        return max(self.least_others, others)
