"""A site's own rules in live rounds: which networks it trains, how long, and with how many others.

Possible liars: the submitter and the server. A base that somebody built for the purpose makes a
site's update show its pictures, so a run of rounds has to begin with a network that the site
accounts for by itself: it names its digest, its file, or its address in a pool, where it is made
of models of sites that this one trusts (`site_agent.rounds.provenance`).

The networks of later rounds are means over contributions that only the server sees, so a site
cannot make them again. It believes the server there as it believes a pool within a series, and
keeps a ledger, so that a run keeps one first base, one plan, and few networks a round.
Otherwise the server could ask for the updates of any number of bases. Every base is audited
(`site_agent.federated.leak_checks`), in every round.
"""

import json
import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path

from pydantic import TypeAdapter

from site_agent.errors import ContributionWithheldError
from site_agent.federated.plan import FederationPlan, digest_run
from site_agent.plain_json import write_json

_VARIABLE = "POOLCTL_FEDERATED_SITE"
"""Environment variable of a site's processes; it never leaves the machine."""

MOST_NETWORKS = 5
"""In one round: it is held again, with another network, where the server lost a block of rounds."""

LEDGER_NAME = "trained.json"
"""Within the kit of a site: run, number of the round, digests of the networks."""


@dataclass(frozen=True)
class SiteRules:
    """The data of a site, and its conditions for live rounds."""

    data: Path
    persons: tuple[str, ...]
    """The persons of the data that take part; empty for all."""
    bases: tuple[str, ...]
    """SHA-256 of each network with which a run may begin."""
    ledger: Path
    """See `LEDGER_NAME`."""
    least_others: int = 2
    """Smallest number of other sites' contributions to combine with this one's."""
    max_hours: float = math.inf
    """The longest permitted training of a round."""

    def environment(self) -> dict[str, str]:
        """Return the variable by which a site's processes learn of the rules."""
        return {_VARIABLE: json.dumps(asdict(self), default=str)}

    @classmethod
    def from_environment(cls, environment: Mapping[str, str]) -> "SiteRules":
        """Return the rules that `environment` wrote."""
        return TypeAdapter(cls).validate_json(environment[_VARIABLE])

    def admit(self, plan: FederationPlan, first_base: str, number: int, digest: str) -> None:
        """Record that a network is trained in a round, or refuse it.

        `first_base`: SHA-256 of the network with which the run began, as the server says. `number`:
        Of the round, from 1. `digest`: SHA-256 of the network to train.

        Raises `ContributionWithheldError` if the run begins with a network that this site did not
        name, the round is not in the plan, or too many other networks were trained in it.
        """
        name = f"{number} of the run that began with sha256:{first_base[:16]}"
        if first_base not in self.bases:
            raise ContributionWithheldError(
                name,
                [f"the run begins with sha256:{first_base}, which this site did not name"],
                hint="if you know how it was made, start 'poolctl federated site' with "
                f"--base {first_base}",
            )
        if number == 1 and digest != first_base:
            reason = f"the network is sha256:{digest}, not the one with which the run begins"
            raise ContributionWithheldError(name, [reason])
        if not 1 <= number <= plan.rounds:
            raise ContributionWithheldError(name, [f"its plan has {plan.rounds} rounds"])
        ledger = json.loads(self.ledger.read_bytes()) if self.ledger.is_file() else {}
        trained = ledger.setdefault(digest_run(plan, first_base), {})
        known = trained.setdefault(str(number), [])
        if digest not in known and len(known) == MOST_NETWORKS:
            reason = (
                f"this site has trained {len(known)} other networks in this round, the last one "
                f"sha256:{known[-1]}, and is asked to train sha256:{digest} now"
            )
            raise ContributionWithheldError(name, [reason])
        trained[str(number)] = [*known, *([] if digest in known else [digest])]
        write_json(self.ledger, ledger)
