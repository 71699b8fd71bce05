"""Pruning: which weights go, and the sizes that the thesis publishes."""

from __future__ import annotations

from functools import cache
from typing import Literal

import numpy as np
import pytest

from aggregators.errors import OptionError
from aggregators.models import StateDict
from aggregators.pruning import (
    coordinate_bytes,
    prune,
    smallest_bytes,
    storage_bytes,
    weights_of_layers,
)
from tests.aggregators.methods.networks.small_rounds import make_state_dict

MIB = 1024 * 1024


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


@pytest.mark.parametrize("scope", ["layer", "global"])
def test_the_weights_of_least_magnitude_become_zero(scope: Literal["layer", "global"]) -> None:
    network = make_state_dict(
        {
            "a.weight": np.array([[1.0, -4.0], [0.5, 3.0]]),
            "b.weight": np.array([[-10.0, 20.0]]),
            "b.bias": np.array([0.1, 0.1]),
            "conv.weight": np.full((1, 1, 2, 2), 0.01),
        }
    )
    names = weights_of_layers(network, "linear")
    pruned = prune(network, names, 0.5, scope).tensors
    kept = {"layer": ([[0, -4], [0, 3]], [[0, 20]]), "global": ([[0, -4], [0, 0]], [[-10, 20]])}
    assert (pruned["a.weight"].tolist(), pruned["b.weight"].tolist()) == kept[scope]
    for name in ("b.bias", "conv.weight"):
        assert pruned[name] is network.tensors[name]
    assert weights_of_layers(network, "convolution") == ["conv.weight"]
    assert network.tensors["a.weight"].tolist() == [[1.0, -4.0], [0.5, 3.0]]


@pytest.mark.parametrize(
    ("fraction", "published_mib"),
    [(0, 56.3), (0.9, 6.87), (0.95, 4.13), (0.99, 1.93), (0.999, 1.43)],
)
def test_sizes_are_those_of_the_thesis_and_ours_are_smaller(
    fraction: float, published_mib: float
) -> None:
    network = wide_network()
    pruned = prune(network, weights_of_layers(network, "linear"), fraction).tensors
    # All published sizes follow if biases and the first convolution stay dense.
    dense = {"conv1.weight", *(name for name in pruned if name.endswith("bias"))}
    published_form = sum(
        each.nbytes if name in dense else coordinate_bytes(each) for name, each in pruned.items()
    )
    assert published_form / MIB == pytest.approx(published_mib, rel=0.01)
    ours = smallest_bytes(StateDict(pruned, network.infos)) / MIB
    assert ours < published_mib
    derived = {0.9: 1.60, 0.99: 0.37}
    if fraction in derived:
        assert ours == pytest.approx(derived[fraction], rel=0.02)


def test_the_smallest_form_follows_the_number_of_zeros() -> None:
    for zeros, form in ((0, "dense"), (500, "mask"), (990, "index")):
        tensor = np.ones(1000, dtype=np.float32)
        tensor[:zeros] = 0
        sizes = storage_bytes(tensor)
        assert min(sizes, key=sizes.__getitem__) == form


def test_impossible_requests_are_refused() -> None:
    with pytest.raises(OptionError, match=r"found 1\.5, expected 0 to 1"):
        prune(wide_network(), ["fc1.weight"], 1.5)
    with pytest.raises(OptionError, match=r"no floating-point entry 'fc9\.weight'"):
        prune(wide_network(), ["fc9.weight"], 0.5)
