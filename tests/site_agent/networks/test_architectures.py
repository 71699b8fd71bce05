"""Architectures: sizes, files, and repeatable initial parameters."""

from pathlib import Path

import numpy as np
import pytest

from aggregators.formats import write_model
from aggregators.models import StateDict
from site_agent.errors import InvalidInputError
from site_agent.networks.architectures import GAZE_ARCHITECTURES
from site_agent.networks.files import read_network
from site_agent.networks.modules import new_network, predict_gaze, to_module


@pytest.mark.parametrize("name", GAZE_ARCHITECTURES)
def test_a_network_comes_back_from_its_file(name: str, tmp_path: Path) -> None:
    network = new_network(name, seed=3)
    module = to_module(network)
    trained = sum(parameter.numel() for parameter in module.parameters())
    assert trained == GAZE_ARCHITECTURES[name].parameters
    path = tmp_path / "network.safetensors"
    write_model(network, path)
    view = GAZE_ARCHITECTURES[name].view
    shape = (1 if len(view.shape) > 2 else 3, *view.shape)
    patches = np.random.default_rng(0).integers(0, 256, shape).astype(np.uint8)
    head = np.full((len(patches), 2), 0.1)
    before = predict_gaze(module, patches, head)
    after = predict_gaze(to_module(read_network(path)), patches, head)
    assert before.shape == head.shape
    np.testing.assert_array_equal(before, after)


def test_numbers_of_half_the_size_are_computed_with_as_any_others() -> None:
    network = new_network("gaze-lenet")
    halves = {
        name: np.asarray(tensor).astype(np.float16) for name, tensor in network.tensors.items()
    }
    module = to_module(StateDict(halves, network.infos, network.metadata))
    for name, values in module.state_dict().items():
        np.testing.assert_array_equal(values.numpy(), halves[name].astype(np.float32))


def test_initial_parameters_depend_on_the_seed_alone() -> None:
    first, again, other = (new_network("gaze-lenet", seed) for seed in (1, 1, 2))
    for name in first.infos:
        np.testing.assert_array_equal(first.tensors[name], again.tensors[name])
    assert not np.array_equal(first.tensors["conv1.weight"], other.tensors["conv1.weight"])


def test_a_file_of_another_shape_or_version_is_refused() -> None:
    network = new_network("gaze-lenet")
    wide = StateDict(
        network.tensors, network.infos, {**network.metadata, "architecture": "gaze-lenet-wide"}
    )
    with pytest.raises(InvalidInputError, match=r"conv2\.weight.*found \[50, 20, 5, 5\]"):
        to_module(wide)
    newer = StateDict(
        network.tensors, network.infos, {**network.metadata, "architecture_version": "2"}
    )
    with pytest.raises(InvalidInputError, match="this program runs version 1"):
        to_module(newer)
