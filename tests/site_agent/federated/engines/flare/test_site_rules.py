"""A site's conditions for live rounds hold with any server."""

from __future__ import annotations

from pathlib import Path

import pytest

from site_agent.errors import ContributionWithheldError
from site_agent.federated.engines.flare.controller import describe_shortage
from site_agent.federated.engines.flare.site_rules import MOST_NETWORKS, SiteRules
from site_agent.federated.plan import make_plan

FIRST, OTHER = "1" * 64, "2" * 64
PLAN = make_plan("fedavg", {}, rounds=3)


@pytest.fixture
def rules(tmp_path: Path) -> SiteRules:
    return SiteRules(tmp_path, ("p00",), (FIRST,), tmp_path / "trained.json", 2, 4.0)


def test_processes_of_a_site_learn_its_rules(rules: SiteRules) -> None:
    assert SiteRules.from_environment(rules.environment()) == rules


def test_a_run_begins_with_a_network_that_the_site_named(rules: SiteRules) -> None:
    rules.admit(PLAN, FIRST, 1, FIRST)
    rules.admit(PLAN, FIRST, 2, OTHER)
    with pytest.raises(ContributionWithheldError, match="did not name"):
        rules.admit(PLAN, OTHER, 1, OTHER)
    with pytest.raises(ContributionWithheldError, match="not the one with which the run begins"):
        rules.admit(PLAN, FIRST, 1, OTHER)
    for number in (0, 4):
        with pytest.raises(ContributionWithheldError, match="3 rounds"):
            rules.admit(PLAN, FIRST, number, FIRST)


def test_a_server_cannot_ask_for_the_updates_of_any_number_of_networks(rules: SiteRules) -> None:
    networks = [f"{number:064x}" for number in range(MOST_NETWORKS)]
    for network in [*networks, *networks]:
        rules.admit(PLAN, FIRST, 2, network)
    with pytest.raises(ContributionWithheldError, match=f"trained {MOST_NETWORKS} other networks"):
        rules.admit(PLAN, FIRST, 2, OTHER)
    rules.admit(PLAN, FIRST, 3, OTHER)


def test_the_largest_number_that_a_contributor_asks_for_decides() -> None:
    asked = {"site-0": 1, "site-1": 2, "site-2": 1, "gone": 9}
    assert "needed 2" in describe_shortage(["site-0"], asked)
    assert describe_shortage(["site-0", "site-2"], asked) == ""
    assert "needed 3: site-1" in describe_shortage(["site-0", "site-1"], asked)
    assert describe_shortage(["site-0", "site-1", "site-2"], asked) == ""
