"""A site's conditions for live rounds hold with any server."""

from pathlib import Path

import pytest

from aggregators.models import StateDict
from site_agent.errors import ContributionWithheldError
from site_agent.federated.contribution_ledger import MOST_NETWORKS
from site_agent.federated.live.server import describe_shortage
from site_agent.federated.live.site_rules import SiteRules
from site_agent.federated.plan import FederationPlan, first_model, make_plan
from site_agent.networks.modules import new_network
from tests.site_agent.federated.small_sites import moved

PLAN = make_plan("fedavg", {}, rounds=3)
NETWORK = new_network("cross-encoder-small-gaze", 1)
FIRST = first_model(NETWORK).digest


@pytest.fixture
def rules(tmp_path: Path) -> SiteRules:
    return SiteRules(tmp_path, ("p00",), {FIRST: None}, (PLAN.digest,), tmp_path, "host:1", 2, 4.0)


def admit(
    rules: SiteRules, number: int, network: StateDict = NETWORK, plan: FederationPlan = PLAN
) -> int:
    digest = first_model(network).digest
    return rules.admit(plan, FIRST, number, network, digest, site="site-0")


def test_a_run_begins_with_a_network_that_the_site_named(rules: SiteRules) -> None:
    assert admit(rules, 1) == 2
    admit(rules, 2, moved(NETWORK, 0.05))
    with pytest.raises(ContributionWithheldError, match="did not name"):
        rules.admit(PLAN, "2" * 64, 1, NETWORK, "2" * 64, site="site-0")
    with pytest.raises(ContributionWithheldError, match="not the one with which the run begins"):
        admit(rules, 1, moved(NETWORK, 0.05))
    for number in (0, 4):
        with pytest.raises(ContributionWithheldError, match="3 rounds"):
            admit(rules, number)


def test_a_server_cannot_ask_for_the_updates_of_any_number_of_networks(rules: SiteRules) -> None:
    """By another seed of its plan the server began another run, with five networks more."""
    admit(rules, 1)
    networks = [moved(NETWORK, 0.05, draw) for draw in range(59)]
    trained = 0
    for number, network in enumerate(networks):
        plan = make_plan("fedavg", {"seed": number // 5}, rounds=3)
        try:
            admit(rules, 2, network, plan)
        except ContributionWithheldError:
            continue
        trained += 1
    assert trained == MOST_NETWORKS
    with pytest.raises(ContributionWithheldError, match=f"trained {MOST_NETWORKS} other networks"):
        admit(rules, 2, moved(NETWORK, 0.05, 100))
    admit(rules, 3, networks[0])


def test_a_network_of_round_2_needs_the_one_of_round_1(rules: SiteRules) -> None:
    with pytest.raises(ContributionWithheldError, match="knows no network of an earlier round"):
        admit(rules, 2, moved(NETWORK, 0.05))
    admit(rules, 1)
    with pytest.raises(ContributionWithheldError, match="it is not their result"):
        admit(rules, 2, new_network("cross-encoder-small-gaze", 2))
    admit(rules, 2, moved(NETWORK, 0.05))


def test_the_largest_number_that_a_contributor_asks_for_decides() -> None:
    asked = {"site-0": 1, "site-1": 2, "site-2": 1, "gone": 9}
    assert "needed 2" in describe_shortage(["site-0"], asked)
    assert describe_shortage(["site-0", "site-2"], asked) == ""
    assert "needed 3: site-1" in describe_shortage(["site-0", "site-1"], asked)
    assert describe_shortage(["site-0", "site-1", "site-2"], asked) == ""
