"""One secure sum in memory, for studies: the arithmetic of labs and servers without their messages.

Encoding, shares, tags and the check are those of `site_agent.secure`. All parties are one process
here, so nothing is hidden from it.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import replace

import numpy as np

from aggregators.models import NetworkContribution, StateDict
from aggregators.secure_sum.layout import (
    BitBudget,
    combine_network,
    decode_sum,
    encode_network,
    network_layout,
)
from aggregators.secure_sum.sharing import (
    SEED_BYTES,
    UInt64,
    add_check_values,
    add_to,
    challenges,
    check_values,
    digest_of,
    explicit_share,
    random_numbers,
    share_from_seed,
    to_bytes,
)
from site_agent.errors import InvalidInputError

_SERVERS = tuple(f"server-{number}" for number in range(3))
_SESSION = "in memory"
_CHALLENGES = 3


def sum_in_memory(
    base: StateDict,
    contributions: Mapping[str, NetworkContribution],
    *,
    mean: str = "samples",
) -> NetworkContribution:
    """Return the one contribution that three servers make of those of all labs.

    Parameters
    ----------
    contributions : mapping of str to NetworkContribution
        By lab; at least 1, all to the same base.
    mean : str
        ``samples``: weighted by numbers of samples. ``sites``: equal for all labs.

    Raises
    ------
    ConversionError
        A number is out of range; names the entry.
    InvalidInputError
        The labs' check values do not add up to those of the servers.
    """
    first, budget = next(iter(contributions.values())), BitBudget()
    layout = network_layout(base, first.base_digest, first.settings)
    totals = [np.zeros(layout.size + _CHALLENGES, dtype=np.uint64) for _ in _SERVERS]
    vectors = {}
    for lab, given in contributions.items():
        weighted = replace(given, samples=1) if mean == "sites" else given
        masks = random_numbers(os.urandom(SEED_BYTES), _CHALLENGES)
        encoded = encode_network(layout, weighted, base, budget)
        vectors[lab] = np.concatenate([encoded, masks])
        for total, share in zip(totals, _shares(lab, vectors[lab]), strict=True):
            add_to(total, share)
    transcript = digest_of(_SESSION, *(to_bytes(total) for total in totals))
    drawn = list(challenges(transcript, _CHALLENGES, layout.size))
    tags = add_check_values(check_values(vector, drawn) for vector in vectors.values())
    if tags != add_check_values(check_values(total, drawn) for total in totals):
        raise InvalidInputError("the labs' check values do not add up to those of the servers")
    for other in totals[1:]:
        add_to(totals[0], other)
    numbers = totals[0][: layout.size]
    means, weights = decode_sum(numbers, 1, len(contributions), budget)
    return combine_network(layout, means, int(weights[0]), dict(first.settings))


def _shares(lab: str, vector: UInt64) -> list[UInt64]:
    """Return the share of each server; they add up to the vector."""
    seeds = {server: os.urandom(SEED_BYTES) for server in _SERVERS[1:]}
    expanded = [share_from_seed(seed, _SESSION, lab, x, len(vector)) for x, seed in seeds.items()]
    return [explicit_share(vector, seeds, _SESSION, lab), *expanded]
