"""Rounds in memory and rounds with files give equal digests in any order of the sites."""

from dataclasses import replace

import numpy as np

from aggregators.models import NetworkContribution, StateDict
from site_agent.datasets.gaze.records import GazeSamples
from site_agent.federated.in_process import run_rounds
from site_agent.federated.plan import make_plan
from site_agent.networks.modules import new_network
from tests.site_agent.federated.small_sites import samples_at, small_sites

OPTIONS = {"batch_size": 8, "learning_rate": 0.01}


def test_a_hostile_site_sends_what_it_likes() -> None:
    def spoil(site: str, number: int, made: NetworkContribution) -> NetworkContribution:
        if (site, number) != ("site-1", 2):
            return made
        tensors = {
            name: np.full_like(made.network.tensors[name], np.nan) for name in made.network.infos
        }
        return replace(made, network=StateDict(tensors, made.network.infos))

    plan = make_plan("median", OPTIONS, rounds=2)
    first, second = run_rounds(new_network("gaze-lenet"), small_sites(), plan, corrupt=spoil)
    assert not any("left out" in warning for warning in first.warnings)
    assert "site-1 holds infinities or NaN and was left out" in second.warnings


def test_a_round_of_many_sites_reads_and_trains_its_cohort_only() -> None:
    """1,500 small sites: time and memory of a round are those of the sites that train."""

    opened: set[str] = set()

    class Sites(dict[str, GazeSamples]):
        def __getitem__(self, site: str) -> GazeSamples:
            opened.add(site)
            return super().__getitem__(site)

    samples = samples_at(0, 4)
    sites = Sites({f"site-{number:04}": samples for number in range(1500)})
    plan = make_plan("fedavg", OPTIONS, rounds=2, cohort=0.002)
    first, second = run_rounds(new_network("gaze-lenet"), sites, plan)
    assert len(first.update_digests) == len(second.update_digests) == 3
    assert opened == {*first.update_digests, *second.update_digests}
