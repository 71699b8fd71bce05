"""The table of methods in whose rounds a site can take part: a new one is one line."""

from __future__ import annotations

from collections.abc import Mapping

from site_agent.errors import InvalidInputError
from site_agent.rounds.contract import SitePart
from site_agent.rounds.leaf_refit import LeafRefitPart
from site_agent.rounds.networks import NetworkPart

SITE_PARTS: Mapping[str, type[SitePart]] = {
    "leaf-refit": LeafRefitPart,
    "fedavg": NetworkPart,
    "fedavgm": NetworkPart,
    "fedadam": NetworkPart,
    "fedyogi": NetworkPart,
    "fedadagrad": NetworkPart,
    "trimmed-mean": NetworkPart,
    "median": NetworkPart,
    "krum": NetworkPart,
    "norm-clip": NetworkPart,
}
"""By the name of the method."""


def find_site_part(method: str) -> type[SitePart]:
    """Return a site's part in rounds of a method, or raise `InvalidInputError`."""
    if method not in SITE_PARTS:
        raise InvalidInputError(
            f"the round is held by {method}; this program knows {', '.join(SITE_PARTS)}"
        )
    return SITE_PARTS[method]
