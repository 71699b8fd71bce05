"""Rounds in memory and rounds with files give equal digests in any order of the sites."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from aggregators import file_digest, read_model, write_model
from aggregators.methods.networks import state_path, write_network_contribution
from aggregators.models import NetworkContribution, StateDict
from site_agent.datasets.gaze.records import GazeSamples
from site_agent.federated.in_process import run_rounds
from site_agent.federated.local_training import train_contribution
from site_agent.federated.plan import FederationPlan, combine_files, make_plan
from site_agent.networks.modules import new_network
from tests.site_agent.federated.small_sites import samples_at, small_sites

OPTIONS = {"batch_size": 8, "learning_rate": 0.01}


def rounds_with_files(plan: FederationPlan, folder: Path) -> list[tuple[str, dict[str, str]]]:
    """Hold rounds as an engine does, and return the digests of each one."""
    base, state = folder / "base.safetensors", None
    write_model(new_network("gaze-lenet"), base)
    runs = []
    for number in range(1, plan.rounds + 1):
        sent, digests = {}, {}
        for site, samples in small_sites().items():
            network = read_model(base)
            assert isinstance(network, StateDict)
            made = train_contribution(
                network, file_digest(base), samples, plan.training, site=site, round_number=number
            )
            sent[site] = folder / f"{number}-{site}"
            digests[site] = write_network_contribution(made, sent[site])
        result = folder / f"{number}.safetensors"
        combine_files(plan, base, state, sent, result)
        base, state = result, state_path(result) if state_path(result).exists() else None
        runs.append((file_digest(result), digests))
    return runs


@pytest.mark.parametrize("method", ["fedadam", pytest.param("krum", marks=pytest.mark.slow)])
def test_rounds_in_memory_give_the_digests_of_those_with_files(method: str, tmp_path: Path) -> None:
    plan = make_plan(method, OPTIONS, rounds=2)
    backwards = dict(reversed(small_sites().items()))
    held = list(run_rounds(new_network("gaze-lenet"), backwards, plan))
    assert [round_.number for round_ in held] == [1, 2]
    in_memory = [(round_.model.digest, dict(round_.update_digests)) for round_ in held]
    assert in_memory == rounds_with_files(plan, tmp_path)


def test_a_cohort_trains_in_each_round() -> None:
    plan = make_plan("fedavg", OPTIONS, rounds=2, cohort=0.5)
    sites = small_sites()
    for held in run_rounds(new_network("gaze-lenet"), sites, plan):
        assert tuple(held.update_digests) == plan.sites_in(held.number, sites)
        assert len(held.update_digests) == 2


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
