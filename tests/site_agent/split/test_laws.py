"""Split training: the network does not depend on the cut, and parts never pass for wholes."""

from collections.abc import Mapping
from typing import Literal

import numpy as np
import pytest
import torch

from aggregators import merge, write_model
from aggregators.errors import IncompatibleModelsError
from aggregators.formats import encode_model, fingerprint
from aggregators.methods.registry import find_method
from aggregators.methods.round_options import LocalTraining
from aggregators.models import NetworkContribution, StateDict
from site_agent.datasets.gaze.records import GazeSamples
from site_agent.errors import InvalidInputError
from site_agent.federated.in_process import run_rounds
from site_agent.federated.local_training import subtract_network
from site_agent.federated.plan import combine, first_model, seed_of
from site_agent.networks.modules import from_module, new_network, to_module
from site_agent.split.in_process import run_split_rounds
from site_agent.split.parts import join_parts, size_of, split_network, to_part_module
from site_agent.split.plan import CUTS, Cut, SplitPlan, find_cut
from site_agent.split.training import contribution_of
from site_agent.training.gaze.loop import make_optimiser, repeatable, to_tensors, train_epoch
from tests.site_agent.federated.small_sites import samples_at, small_sites
from tests.site_agent.split.live_split import unguarded

Optimiser = Literal["sgd", "adam"]

LENET_CUTS = [cut.name for cut in CUTS["gaze-lenet"]]

RATES = {"sgd": 0.02, "adam": 0.001}


def plan_of(
    cut: str, optimiser: Optimiser = "sgd", rounds: int = 2, **settings: object
) -> SplitPlan:
    training = {"batch_size": 4, "learning_rate": RATES[optimiser], "epochs": 2, **settings}
    return SplitPlan(
        cut=cut, optimiser=optimiser, rounds=rounds, training=LocalTraining.model_validate(training)
    )


def last_network(plan: SplitPlan, sites: Mapping[str, GazeSamples]) -> StateDict:
    with unguarded():
        return [*run_split_rounds(new_network(plan.architecture, 1), sites, plan)][-1].network


def train_whole(
    network: StateDict, samples: GazeSamples, plan: SplitPlan, site: str, number: int
) -> StateDict:
    """Train an undivided network with the batches that a site draws in a round."""
    training = plan.training
    module = to_module(network)
    optimiser = make_optimiser(
        plan.optimiser, module, training.learning_rate, training.momentum, training.weight_decay
    )
    generator = torch.Generator().manual_seed(seed_of(training.seed, site, number))
    with repeatable():
        for _ in range(training.epochs):
            train_epoch(module, optimiser, to_tensors(samples), training.batch_size, generator)
    return from_module(module, network.metadata["architecture"])


def fedavg(plan: SplitPlan, sites: Mapping[str, GazeSamples]) -> StateDict:
    """Hold rounds of FedAvg of whole networks with the same batches."""
    model = first_model(new_network(plan.architecture, 1))
    for number in range(1, plan.rounds + 1):
        made: dict[str, NetworkContribution] = {}
        for site, samples in sites.items():
            trained = train_whole(model.network, samples, plan, site, number)
            change = StateDict(subtract_network(trained, model.network), dict(trained.infos))
            made[site] = contribution_of(change, len(samples), model.digest, plan)
        model = combine(plan.averaging, model, made).model
    return model.network


def difference(network: StateDict, expected: StateDict) -> float:
    """Return the largest difference, relative to the largest number of the entry."""
    return max(
        float(np.abs(network.tensors[name] - expected.tensors[name]).max())
        / max(float(np.abs(expected.tensors[name]).max()), 1e-12)
        for name, info in expected.infos.items()
        if info.dtype == "F32"
    )


@pytest.mark.parametrize("optimiser", ["sgd", "adam"])
@pytest.mark.parametrize("cut", LENET_CUTS)
def test_one_site_trains_as_the_undivided_network(cut: str, optimiser: Optimiser) -> None:
    plan = plan_of(cut, optimiser, rounds=1)
    network = last_network(plan, {"site-0": samples_at(0)})
    expected = train_whole(new_network("gaze-lenet", 1), samples_at(0), plan, "site-0", 1)
    assert difference(network, expected) < 1e-6
    assert difference(network, new_network("gaze-lenet", 1)) > 1e-3


@pytest.mark.parametrize(
    ("cut", "optimiser"),
    [
        ("pool1", "adam"),
        *(
            pytest.param(cut, optimiser, marks=pytest.mark.slow)
            for cut in LENET_CUTS
            for optimiser in ("sgd", "adam")
        ),
    ],
)
def test_v1_is_fedavg_of_whole_networks(cut: str, optimiser: Optimiser) -> None:
    plan = plan_of(cut, optimiser)
    assert difference(last_network(plan, small_sites()), fedavg(plan, small_sites())) < 1e-6


def test_v1_of_sites_that_guard_themselves_has_the_batches_of_rounds() -> None:
    """Only the dense rows differ, which sites of rounds keep back and main servers have anyway."""
    plan = plan_of("pool1", rounds=1)
    base = new_network("gaze-lenet", 1)
    rounds = next(iter(run_rounds(base, small_sites(), plan.averaging))).model.network
    network = next(iter(run_split_rounds(base, small_sites(), plan))).network
    for name, expected in rounds.tensors.items():
        if name.startswith("fc1."):
            continue
        assert np.abs(network.tensors[name] - expected).max() < 1e-6 * np.abs(expected).max()


def test_cuts_of_resnet_do_not_change_what_it_learns() -> None:
    sites = {"site-0": samples_at(0, 8)}
    networks = []
    for cut in ("stem", "block2"):
        plan = SplitPlan(
            architecture="gaze-resnet18",
            cut=cut,
            rounds=1,
            training=LocalTraining(batch_size=4, epochs=1),
        )
        networks.append(last_network(plan, sites))
    assert difference(*networks) < 1e-6


def test_v2_trains_one_server_part_in_the_order_of_the_round() -> None:
    plan = plan_of("pool1").model_copy(update={"variant": "v2"})
    sites = small_sites()
    network = last_network(plan, sites)
    backwards = last_network(plan, dict(reversed(sites.items())))
    assert encode_model(network) == encode_model(backwards)
    orders = {plan.order_in(number, sites) for number in range(1, 20)}
    assert len(orders) == 6
    assert difference(network, last_network(plan_of("pool1"), sites)) > 1e-3


@pytest.mark.parametrize(
    "variant",
    [
        {"variant": "mean-smashed"},
        {"variant": "mean-smashed", "pairs": "by-gaze"},
        {"variant": "frozen-client"},
    ],
)
def test_variants_with_a_frozen_client_part_train_the_server_part_only(
    variant: dict[str, str],
) -> None:
    plan = SplitPlan.model_validate(plan_of("pool1").model_dump() | variant)
    base = new_network("gaze-lenet", 1)
    network = last_network(plan, small_sites())
    assert np.array_equal(network.tensors["conv1.weight"], base.tensors["conv1.weight"])
    assert difference(network, base) > 1e-3
    with pytest.raises(ValueError, match="needs labels at the server"):
        SplitPlan.model_validate(plan.model_dump() | {"cut": "u"})


def test_a_frozen_client_gives_what_a_data_centre_with_that_layer_frozen_would() -> None:
    plan = SplitPlan.model_validate(
        plan_of("pool1", rounds=1).model_dump() | {"variant": "frozen-client"}
    )
    base = new_network("gaze-lenet", 1)
    module = to_module(base)
    for name, parameter in module.named_parameters():
        parameter.requires_grad_(not name.startswith("conv1"))
    union = GazeSamples.join([small_sites()[site] for site in sorted(small_sites())])
    optimiser = make_optimiser("sgd", module, 0.02, 0.9, 0.0)
    generator = torch.Generator().manual_seed(seed_of(0, "all sites", 1))
    with repeatable():
        for _ in range(2):
            train_epoch(module, optimiser, to_tensors(union), 4, generator)
    expected = from_module(module, "gaze-lenet")
    assert difference(last_network(plan, small_sites()), expected) < 1e-6


ALL = [cut for of_one in CUTS.values() for cut in of_one]


@pytest.mark.parametrize("cut", ALL, ids=lambda cut: f"{cut.architecture}-{cut.name}")
def test_joined_parts_are_the_network_in_bytes(cut: Cut) -> None:
    network = new_network(cut.architecture, 3)
    network = StateDict(network.tensors, network.infos, {**network.metadata, "note": "a base"})
    parts = split_network(network, cut)
    assert encode_model(join_parts(parts.client, parts.server)) == encode_model(network)
    assert set(parts.client.infos).isdisjoint(parts.server.infos)


def test_parts_of_half_precision_are_computed_with_as_any_others() -> None:
    cut = find_cut("gaze-lenet", "pool1")
    part = split_network(new_network("gaze-lenet"), cut).client
    halves = {name: np.asarray(tensor).astype(np.float16) for name, tensor in part.tensors.items()}
    module = to_part_module(StateDict(halves, part.infos, part.metadata), cut, "client")
    for name, values in module.state_dict().items():
        np.testing.assert_array_equal(values.numpy(), halves[name].astype(np.float32))


def test_parts_and_wholes_have_different_merge_keys(tmp_path: object) -> None:
    network = new_network("gaze-lenet")
    fedavg = find_method("fedavg")
    files = [network]
    for cut in CUTS["gaze-lenet"]:
        parts = split_network(network, cut)
        files += [parts.client, parts.server]
    keys = [fedavg.merge_key(fingerprint(file)) for file in files]
    assert len(set(keys)) == len(files)


def test_a_part_merges_with_no_other_and_does_not_run(tmp_path) -> None:  # type: ignore[no-untyped-def]
    network = new_network("gaze-lenet")
    first, other = (split_network(network, cut) for cut in CUTS["gaze-lenet"][:2])
    paths = [tmp_path / f"{name}.safetensors" for name in ("client", "server", "whole")]
    for path, entry in zip(paths, (first.client, other.client, network), strict=True):
        write_model(entry, path)
    for pair in (paths[:2], [paths[0], paths[2]]):
        with pytest.raises(IncompatibleModelsError, match="architecture"):
            merge("fedavg", pair, output=tmp_path / "merged.safetensors")
    with pytest.raises(InvalidInputError, match="gaze-lenet/pool1/client"):
        to_module(first.client)


def test_what_does_not_belong_together_is_refused() -> None:
    network = new_network("gaze-lenet")
    pool1, pool2 = (split_network(network, cut) for cut in CUTS["gaze-lenet"][:2])
    with pytest.raises(InvalidInputError, match=r"cut at pool1 .* the server part at pool2"):
        join_parts(pool1.client, pool2.server)
    with pytest.raises(InvalidInputError, match="expected the client part"):
        join_parts(pool1.server, pool1.client)
    with pytest.raises(InvalidInputError, match="the network is gaze-lenet, expected gaze-resnet"):
        split_network(network, find_cut("gaze-resnet18", "stem"))
    lacking = {key: value for key, value in pool1.server.infos.items() if key != "fc2.bias"}
    with pytest.raises(InvalidInputError, match=r"entry 'fc2.bias' .* found none, expected \[2\]"):
        join_parts(pool1.client, StateDict(pool1.server.tensors, lacking, pool1.server.metadata))
    with pytest.raises(InvalidInputError, match="no cut 'pool9'; expected one of pool1, pool2"):
        find_cut("gaze-lenet", "pool9")
    with pytest.raises(InvalidInputError, match="glc-tiny cannot be cut"):
        find_cut("glc-tiny", "pool1")


@pytest.mark.parametrize(
    ("name", "parameters", "share", "floats"),
    [
        ("pool1", 520, 0.059, 8960),
        ("pool2", 40_600, 0.81, 5760),
        ("fc1", 2_921_100, 1.0, 500),
        ("u", 1526, 0.059, 9460),
    ],
)
def test_sizes_of_the_thesis_network(name: str, parameters: int, share: float, floats: int) -> None:
    size = size_of(find_cut("gaze-lenet-wide", name))
    assert size.client_parameters == parameters
    assert size.client_parameters + size.server_parameters == 2_922_106
    assert size.client_share == pytest.approx(share, abs=0.005)
    assert size.floats == floats
    # Max-pooling takes 3 comparisons for each of its outputs; ReLU follows the first dense layer.
    assert size.multiplications == 15_297_004
    assert size.comparisons == 3 * (20 * 16 * 28 + 80 * 6 * 12) + 500
