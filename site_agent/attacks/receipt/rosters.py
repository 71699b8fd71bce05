"""Attacks on a secure sum by its roster: how far the sum mixes the contributions of its sites."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from aggregators.methods.networks import read_network_contribution
from aggregators.models import NetworkContribution, StateDict
from pool_server.wire.cards import AttackFinding
from site_agent.attacks.receipt.networks import change_of
from site_agent.attacks.table import Attack, Scores, Share, Trial


@dataclass(frozen=True, eq=False)
class Roster:
    """The contributions of all sites of a sum, known in a trial only."""

    sent: Sequence[NetworkContribution]
    base: StateDict
    samples: int
    """Stated by the sum."""

    def fill(self) -> Scores:
        """Return the share of coordinates that one site alone fills."""
        alone = filled = 0
        for name, info in self.base.infos.items():
            if info.dtype.startswith("F"):
                sites = np.count_nonzero([change_of(x, self.base, name) != 0 for x in self.sent], 0)
                alone += int(np.count_nonzero(sites == 1))
                filled += int(np.count_nonzero(sites))
        return {"coordinates that one site alone fills": Share(alone, filled)}


ROSTER_ATTACKS: tuple[Attack[Roster], ...] = (
    Attack(
        name="coordinates that one site alone fills", needs="all contributions", score=Roster.fill,
        measure="share of all that are filled", chance=0.0, reveals="",
        control=lambda roster: replace(roster, sent=roster.sent[:1]),
        note="the control is a sum of one site",
    ),
    Attack(
        name="size of the roster", needs="", measure="sites", chance=None, reveals="",
        score=lambda roster: {"size of the roster": float(len(roster.sent))},
        note=lambda roster, _: f"{sum(x.samples for x in roster.sent)} samples in the "
        f"contributions, {roster.samples} in the sum",
    ),
)  # fmt: skip


def attack_roster(
    contributions: Sequence[Path], base: StateDict, artifact_samples: int
) -> Iterator[AttackFinding]:
    """Measure how far a sum mixes the contributions that it is made of."""
    sent = [read_network_contribution(path) for path in contributions]
    yield from Trial(Roster(sent, base, artifact_samples), 0).judge(ROSTER_ATTACKS)
