"""Look up the site's side of a method's rounds, by the kind of contribution it declares."""

from __future__ import annotations

from collections.abc import Mapping

from aggregators.methods.contract import ContributionKind
from aggregators.methods.registry import METHODS, list_round_methods
from site_agent.errors import InvalidInputError
from site_agent.rounds.contract import SitePart
from site_agent.rounds.leaf_refit import LeafRefitPart
from site_agent.rounds.networks import NetworkPart

_BY_CONTRIBUTION: Mapping[ContributionKind, type[SitePart]] = {
    "leaf-changes": LeafRefitPart,
    "network-update": NetworkPart,
}


def find_site_part(name: str) -> type[SitePart]:
    """Return a site's part in rounds of a method, or raise `InvalidInputError`."""
    method = METHODS.get(name)
    if method is None or method.contribution is None:
        raise InvalidInputError(
            f"the round is held by {name}; this program knows {', '.join(list_round_methods())}"
        )
    return _BY_CONTRIBUTION[method.contribution]
