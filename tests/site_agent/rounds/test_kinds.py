"""Every method of rounds has a server's side and a site's side, by its kind of contribution."""

import pytest

from aggregators.methods.registry import METHODS, list_round_methods
from pool_server.rounds.methods import find_round_method
from site_agent.errors import InvalidInputError
from site_agent.rounds.kinds import LeafRefitPart, NetworkPart, find_site_part


@pytest.mark.parametrize("name", list_round_methods())
def test_pool_and_sites_know_every_method_of_rounds(name: str) -> None:
    assert find_round_method(name).aggregation is METHODS[name]
    kind = METHODS[name].kind
    assert find_site_part(name) is {"ert": LeafRefitPart, "network": NetworkPart}[kind]


def test_a_method_that_only_merges_holds_no_rounds() -> None:
    with pytest.raises(InvalidInputError, match="this program knows leaf-refit, fedavg"):
        find_site_part("wba-cascade")
