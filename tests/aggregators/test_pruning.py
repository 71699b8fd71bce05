"""Pruning: which weights go, and the sizes that the thesis publishes."""

from functools import cache
from pathlib import Path
from typing import Literal

import numpy as np
import pytest

from aggregators.errors import OptionError
from aggregators.formats import encode_model
from aggregators.models import StateDict
from aggregators.pruning import EntrySize, entry_sizes, prune, weights_of_layers
from tests.aggregators.methods.networks.small_rounds import make_state_dict

MIB = 1024 * 1024
CLIENT_PART = ("conv1.weight", "conv1.bias")
"""The thesis states the sizes of the server's part of the network, which is all but this."""


@cache
def wide_network() -> StateDict:
    """Make a network of the shapes of ``gaze-lenet-wide``."""
    shapes: dict[str, tuple[int, ...]] = {
        "conv1.weight": (20, 1, 5, 5),
        "conv1.bias": (20,),
        "conv2.weight": (80, 20, 5, 5),
        "conv2.bias": (80,),
        "fc1.weight": (500, 5760),
        "fc1.bias": (500,),
        "fc2.weight": (2, 502),
        "fc2.bias": (2,),
    }
    random = np.random.default_rng(0)
    return make_state_dict(
        {name: random.standard_normal(shape, dtype=np.float32) for name, shape in shapes.items()}
    )


def test_the_weights_of_least_magnitude_become_zero() -> None:
    network = make_state_dict(
        {
            "a.weight": np.array([[1.0, -4.0], [0.5, 3.0]]),
            "b.weight": np.array([[-10.0, 20.0]]),
            "b.bias": np.array([0.1, 0.1]),
            "conv.weight": np.full((1, 1, 2, 2), 0.01),
        }
    )
    names = weights_of_layers(network, "linear")
    pruned = prune(network, names, 0.5).tensors
    assert pruned["a.weight"].tolist() == [[0, -4], [0, 3]]
    assert pruned["b.weight"].tolist() == [[0, 20]]
    for name in ("b.bias", "conv.weight"):
        assert pruned[name] is network.tensors[name]
    assert weights_of_layers(network, "convolution") == ["conv.weight"]
    assert network.tensors["a.weight"].tolist() == [[1.0, -4.0], [0.5, 3.0]]


def test_the_pruning_of_torch_keeps_the_same_weights() -> None:
    torch = pytest.importorskip("torch", reason="torch is not installed (extra gaze)")
    reference = pytest.importorskip("torch.nn.utils.prune")
    layers = {"a": torch.nn.Linear(40, 30), "b": torch.nn.Linear(30, 7)}
    weights = {
        f"{key}.weight": np.array(layer.weight.detach().numpy()) for key, layer in layers.items()
    }
    for fraction in (0.0, 0.37, 0.9, 1.0):
        pruned = prune(make_state_dict(weights), list(weights), fraction).tensors
        for key, layer in layers.items():
            reference.l1_unstructured(layer, "weight", fraction)
            np.testing.assert_array_equal(pruned[f"{key}.weight"], layer.weight.detach().numpy())
            reference.remove(layer, "weight")
            layer.weight.data = torch.from_numpy(weights[f"{key}.weight"].copy())


def server_part(layers: Literal["linear", "convolution"], fraction: float) -> StateDict:
    """Return the server's part of the pruned network."""
    network = wide_network()
    pruned = prune(network, weights_of_layers(network, layers), fraction)
    names = set(pruned.infos).difference(CLIENT_PART)
    return make_state_dict({name: np.array(pruned.tensors[name]) for name in names})


@pytest.mark.parametrize(
    ("layers", "fraction", "published_mib", "published_zeros"),
    [
        ("linear", 0, 56.3, 0),
        ("linear", 0.9, 6.87, 0.8875),
        ("linear", 0.95, 4.13, 0.9368),
        ("linear", 0.99, 1.93, 0.9762),
        ("linear", 0.999, 1.43, 0.9851),
        ("convolution", 0.9, 55.0, 0.0123),
    ],
)
def test_sizes_are_those_of_the_thesis_and_ours_are_smaller(
    layers: Literal["linear", "convolution"],
    fraction: float,
    published_mib: float,
    published_zeros: float,
) -> None:
    network = server_part(layers, fraction)
    sizes = entry_sizes(network)
    coordinates = sum(entry.coordinate_bytes for entry in sizes) / MIB
    assert coordinates == pytest.approx(published_mib, rel=0.01)
    assert sum(entry.dense_bytes for entry in sizes) / MIB == pytest.approx(11.1, rel=0.01)
    numbers, kept = (sum(getattr(entry, of) for entry in sizes) for of in ("numbers", "kept"))
    assert 1 - kept / numbers == pytest.approx(published_zeros, abs=1e-4)
    file_bytes = len(encode_model(network, "poolctl-sparse"))
    assert file_bytes - 1000 < sum(entry.stored_bytes for entry in sizes) < file_bytes
    assert file_bytes / MIB < min(published_mib, 11.2)
    derived = {0.9: 1.60, 0.99: 0.37}
    if layers == "linear" and fraction in derived:
        assert file_bytes / MIB == pytest.approx(derived[fraction], rel=0.02)


def test_a_file_of_torch_has_the_computed_size(tmp_path: Path) -> None:
    torch = pytest.importorskip("torch", reason="torch is not installed (extra gaze)")
    network = server_part("linear", 0.9)
    sizes = entry_sizes(network)
    state = {}
    for entry in sizes:
        tensor = torch.from_numpy(network.tensors[entry.name])
        state[entry.name] = tensor if tensor.ndim == 1 else tensor.to_sparse()
    torch.save(state, tmp_path / "sparse.pt")
    computed = sum(entry.coordinate_bytes for entry in sizes)
    assert 0 < (tmp_path / "sparse.pt").stat().st_size - computed < 8192


def test_the_smallest_form_follows_the_number_of_zeros() -> None:
    tensors = {}
    for zeros in (0, 500, 990, 1000):
        tensors[f"{zeros:04}"] = np.ones(1000, dtype=np.float32)
        tensors[f"{zeros:04}"][:zeros] = 0
    assert entry_sizes(make_state_dict(tensors)) == [
        EntrySize("0000", 1000, 1000, "dense", 4000, 4000, 4000),
        EntrySize("0500", 1000, 500, "mask", 4000, 4000, 125 + 2000),
        EntrySize("0990", 1000, 10, "index", 4000, 4000, 80),
        EntrySize("1000", 1000, 0, "mask", 4000, 4000, 125),
    ]


def test_impossible_requests_are_refused() -> None:
    with pytest.raises(OptionError, match=r"found 1\.5, expected 0 to 1"):
        prune(wide_network(), ["fc1.weight"], 1.5)
    with pytest.raises(OptionError, match=r"no floating-point entry 'fc9\.weight'"):
        prune(wide_network(), ["fc9.weight"], 0.5)
