"""Cutting networks: joined again they are the same bytes, and parts never pass for wholes."""

import numpy as np
import pytest

from aggregators import merge, write_model
from aggregators.errors import IncompatibleModelsError
from aggregators.formats import encode_model, fingerprint
from aggregators.methods.registry import find_method
from aggregators.models import StateDict
from site_agent.errors import InvalidInputError
from site_agent.networks.modules import new_network, to_module
from site_agent.split.cuts import CUTS, Cut, find_cut
from site_agent.split.parts import join_parts, size_of, split_network, to_part_module

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
