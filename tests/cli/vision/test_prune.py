"""``poolctl prune``, and the other commands with the file that it writes."""

from pathlib import Path

import numpy as np
import pytest

from aggregators import read_model, write_model
from aggregators.models import StateDict
from tests.aggregators.methods.networks.small_rounds import make_state_dict
from tests.aggregators.small_models import make_detector
from tests.cli.conftest import Run


@pytest.fixture
def network(tmp_path: Path) -> Path:
    """A network of one convolution and two linear layers."""
    random = np.random.default_rng(0)
    shapes = {
        "conv.weight": (4, 1, 5, 5),
        "conv.bias": (4,),
        "fc1.weight": (50, 100),
        "fc2.weight": (2, 50),
    }
    path = tmp_path / "gaze.safetensors"
    write_model(
        make_state_dict(
            {name: random.normal(size=shape).astype("f4") for name, shape in shapes.items()},
            architecture="small",
        ),
        path,
    )
    return path


def zeros_in(path: Path) -> dict[str, int]:
    network = read_model(path)
    assert isinstance(network, StateDict)
    return {name: int((tensor == 0).sum()) for name, tensor in network.tensors.items()}


def test_a_network_is_pruned_and_goes_through_the_other_commands(
    poolctl: Run, network: Path, tmp_path: Path
) -> None:
    sparse, dense = tmp_path / "gaze.sparse", tmp_path / "pruned.safetensors"
    shown = poolctl("prune", network, "--fraction", 0.9, "-o", sparse)
    assert shown.code == 0, shown.err
    lines = {line.split()[0]: line.split() for line in shown.out.splitlines()}
    assert lines["fc1.weight"][1:4] == ["mask", "10", "%"]
    assert lines["conv.weight"][1:4] == ["dense", "100", "%"]
    assert zeros_in(sparse) == {
        "conv.weight": 0, "conv.bias": 0, "fc1.weight": 4500, "fc2.weight": 90
    }  # fmt: skip
    assert sparse.stat().st_size < network.stat().st_size / 4
    assert poolctl("convert", sparse, "-o", dense).code == 0
    assert zeros_in(dense) == zeros_in(sparse)
    again = tmp_path / "again.sparse"
    assert poolctl("convert", dense, "-o", again).code == 0
    assert again.read_bytes() == sparse.read_bytes()
    inspected = poolctl("inspect", sparse, "--json").data
    assert inspected["format"] == "poolctl-sparse"
    assert "fedavg" in inspected["merge_keys"]
    assert inspected["merge_keys"] == poolctl("inspect", network, "--json").data["merge_keys"]
    merged = tmp_path / "merged.safetensors"
    assert poolctl("merge", "fedavg", sparse, network, "-o", merged).code == 0
    refused = poolctl("merge", "fedavg", sparse, network, "-o", tmp_path / "merged.sparse")
    assert "use safetensors" in refused.err


def test_layers_are_chosen_and_pruned_each_or_together(
    poolctl: Run, network: Path, tmp_path: Path
) -> None:
    out = tmp_path / "pruned.safetensors"
    arguments = ("prune", network, "--fraction", 0.5, "-o", out, "--force", "--json")
    shown = poolctl(*arguments, "--layers", "convolution").data
    assert shown["format"] == "safetensors"
    assert zeros_in(out)["conv.weight"] == 50
    assert zeros_in(out)["fc1.weight"] == 0
    poolctl(*arguments, "--global")
    zeros = zeros_in(out)
    assert zeros["fc1.weight"] + zeros["fc2.weight"] == 2550
    assert zeros["fc2.weight"] != 50


def test_what_cannot_be_pruned_is_said(poolctl: Run, network: Path, tmp_path: Path) -> None:
    out = tmp_path / "out.sparse"
    shown = poolctl("prune", network, "--fraction", "1.5", "-o", out)
    assert shown.code == 2
    assert "--fraction" in shown.err
    detector = tmp_path / "faces.svm"
    write_model(make_detector(0), detector)
    assert "expected a network" in poolctl("prune", detector, "--fraction", "0.5", "-o", out).err
    linear = tmp_path / "linear.safetensors"
    write_model(make_state_dict({"fc.weight": np.ones((2, 2))}), linear)
    shown = poolctl("prune", linear, "--fraction", "0.5", "--layers", "convolution", "-o", out)
    assert "has no such layers" in shown.err
    assert poolctl("prune", network, "--fraction", 0.9, "-o", network, "--force").code == 2
    tried = poolctl("prune", network, "--fraction", 0.9, "-o", out, "--dry-run")
    assert "would write" in tried.out
    assert not out.exists()
    assert poolctl("prune", network, "--fraction", 0.9, "-o", out, "-q").out.split() == [str(out)]
    shown = poolctl("prune", network, "--fraction", 0.8, "-o", out)
    assert "another model already exists" in shown.err
