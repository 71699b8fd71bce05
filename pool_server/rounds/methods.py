"""Look up the server's side of a method's rounds, by the kind of contribution it declares."""

from __future__ import annotations

from collections.abc import Mapping

from aggregators.methods.contract import ContributionKind
from aggregators.methods.registry import METHODS, list_round_methods
from pool_server.errors import RoundRefusedError
from pool_server.rounds.contract import RoundMethod
from pool_server.rounds.leaf_refit import LeafRefitRounds
from pool_server.rounds.networks import NetworkRounds

_BY_CONTRIBUTION: Mapping[ContributionKind, type[RoundMethod]] = {
    "leaf-changes": LeafRefitRounds,
    "network-update": NetworkRounds,
}


def find_round_method(name: str) -> RoundMethod:
    """Return the rounds of the method of this name."""
    method = METHODS.get(name)
    if method is None or method.contribution is None:
        raise RoundRefusedError(
            f"no round can be held with method {name!r}; expected one of "
            f"{', '.join(list_round_methods())}"
        )
    return _BY_CONTRIBUTION[method.contribution](method)
