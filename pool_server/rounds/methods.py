"""The table of methods that rounds can be held with: a new one is one line."""

from __future__ import annotations

from collections.abc import Mapping

from pool_server.errors import RoundRefusedError
from pool_server.rounds.contract import RoundMethod
from pool_server.rounds.leaf_refit import LeafRefitRounds
from pool_server.rounds.networks import NetworkRounds

ROUND_METHODS: Mapping[str, RoundMethod] = {
    method.name: method
    for method in (
        LeafRefitRounds("leaf-refit"),
        NetworkRounds("fedavg"),
        NetworkRounds("fedavgm"),
        NetworkRounds("fedadam"),
        NetworkRounds("fedyogi"),
        NetworkRounds("fedadagrad"),
        NetworkRounds("trimmed-mean", needs_each=True),
        NetworkRounds("median", needs_each=True),
        NetworkRounds("krum", needs_each=True),
        NetworkRounds("norm-clip", needs_each=True),
    )
}


def find_round_method(name: str) -> RoundMethod:
    """Return the method of this name."""
    if name not in ROUND_METHODS:
        raise RoundRefusedError(
            f"no round can be held with method {name!r}; there is {', '.join(ROUND_METHODS)}"
        )
    return ROUND_METHODS[name]
