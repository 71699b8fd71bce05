"""Plans of rounds are plain data, and rounds by secure sums give the networks of plain ones."""

import json
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from aggregators.errors import ConversionError, OptionError, UnknownMethodError
from aggregators.methods.registry import METHODS
from aggregators.methods.round_options import LocalTraining
from aggregators.models import NetworkContribution
from site_agent.errors import InvalidInputError
from site_agent.federated.in_process import SUM, run_rounds
from site_agent.federated.plan import make_plan, read_plan
from site_agent.networks.modules import new_network
from tests.site_agent.federated.small_sites import small_sites

NETWORK_METHODS = [name for name, method in METHODS.items() if method.kind == "network"]

SITES = [f"site-{number}" for number in range(10)]


@pytest.mark.parametrize("method", NETWORK_METHODS)
def test_a_plan_is_plain_data_and_has_all_options(method: str) -> None:
    plan = make_plan(method, {"epochs": "3"}, rounds=2, cohort=0.8)
    assert plan.training == LocalTraining(epochs=3)
    fields = METHODS[method].options_type.model_fields
    assert set(plan.method_options) == set(fields)
    assert not set(fields) & set(LocalTraining.model_fields)
    assert read_plan(json.loads(json.dumps(plan.model_dump()))) == plan


def test_what_a_plan_cannot_be_is_refused() -> None:
    with pytest.raises(OptionError, match="rounds of fedadam have no option 'rate'"):
        make_plan("fedadam", {"rate": 1}, rounds=1)
    with pytest.raises(OptionError, match="option 'eta' of fedadam is -1"):
        make_plan("fedadam", {"eta": -1}, rounds=1)
    with pytest.raises(OptionError, match="mwma does not combine networks; expected one of fedavg"):
        make_plan("mwma", {}, rounds=1)
    with pytest.raises(UnknownMethodError):
        make_plan("fedsgd", {}, rounds=1)
    with pytest.raises(InvalidInputError, match="plan of a federation: rounds"):
        make_plan("fedavg", {}, rounds=0)
    with pytest.raises(InvalidInputError, match="plan of a federation: cohort"):
        make_plan("fedavg", {}, rounds=1, cohort=1.5)


@given(st.integers(1, 50), st.permutations(SITES))
def test_the_sites_of_a_round_do_not_depend_on_the_order_of_the_names(
    number: int, sites: list[str]
) -> None:
    plan = make_plan("fedavg", {}, rounds=50, cohort=0.8)
    chosen = plan.sites_in(number, sites)
    assert len(chosen) == 8
    assert chosen == tuple(sorted(chosen)) == plan.sites_in(number, SITES)


def test_every_site_takes_part_sooner_or_later_and_seeds_differ() -> None:
    plan = make_plan("fedavg", {}, rounds=20, cohort=0.3)
    drawn = [plan.sites_in(number, SITES) for number in range(1, 21)]
    assert set().union(*drawn) == set(SITES)
    other = make_plan("fedavg", {"seed": 1}, rounds=20, cohort=0.3)
    assert drawn != [other.sites_in(number, SITES) for number in range(1, 21)]
    assert plan.model_copy(update={"cohort": 0.01}).sites_in(1, SITES)


OPTIONS = {"batch_size": 8, "learning_rate": 0.01}


@pytest.mark.parametrize(
    ("method", "mean"),
    [pytest.param("fedadam", "sites", marks=pytest.mark.slow), ("fedper", "samples")],
)
def test_secure_rounds_give_the_networks_of_plain_ones(method: str, mean: str) -> None:
    plan = make_plan(method, {**OPTIONS, "mean": mean}, rounds=2)
    base = new_network("gaze-lenet")
    plain, secure = (
        list(run_rounds(base, small_sites(), plan, secure=secure)) for secure in (False, True)
    )
    for one, other in zip(plain, secure, strict=True):
        assert set(other.update_digests) == {SUM}
        for name, values in one.model.network.tensors.items():
            values_ = other.model.network.tensors[name]
            # From the second round on a row at the bound may be kept back in one sum only.
            differences = np.abs(values - values_)
            assert differences.max() < (1e-6 if one.number == 1 else 2e-3), name
            assert np.median(differences) < 1e-6, name


def test_an_update_out_of_range_is_refused() -> None:
    plan = make_plan("fedavg", OPTIONS, rounds=1)

    def diverged(_site: str, _number: int, made: NetworkContribution) -> NetworkContribution:
        network = made.network
        tensors = {name: values * np.float32(1e9) for name, values in network.tensors.items()}
        return replace(made, network=replace(network, tensors=tensors))

    rounds = run_rounds(
        new_network("gaze-lenet"), small_sites(), plan, corrupt=diverged, secure=True
    )
    with pytest.raises(ConversionError, match="magnitude at most 256"):
        list(rounds)


@pytest.mark.parametrize(
    ("method", "reason"),
    [
        ("geometric-median", "compares the contributions"),
        ("fedcpf", "divides each number by how many sites share it"),
    ],
)
def test_no_secure_sum_serves_a_method_that_needs_more(method: str, reason: str) -> None:
    plan = make_plan(method, OPTIONS, rounds=1)
    with pytest.raises(InvalidInputError, match=f"{method} {reason}"):
        next(run_rounds(new_network("gaze-lenet"), small_sites(), plan, secure=True))
