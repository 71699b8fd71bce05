"""Rounds by secure sums in memory against plain rounds."""

from dataclasses import replace

import numpy as np
import pytest

from aggregators.errors import ConversionError
from aggregators.models import NetworkContribution
from site_agent.errors import InvalidInputError
from site_agent.federated.in_process import SUM, run_rounds
from site_agent.federated.plan import make_plan
from site_agent.networks.modules import new_network
from tests.site_agent.federated.small_sites import small_sites

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
