"""``poolctl prune``, and the other commands with the file that it writes."""

from pathlib import Path

import numpy as np
import pytest

from aggregators import read_model, write_model
from aggregators.models import StateDict
from site_agent.datasets.gaze.check import open_gaze
from site_agent.datasets.gaze.records import angular_errors_deg
from site_agent.networks.modules import new_network, predict_gaze, to_module
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


def test_a_table_compares_fractions_and_writes_nothing(
    poolctl: Run, network: Path, tmp_path: Path
) -> None:
    shown = poolctl("prune", network, "--fraction", "0,0.9,0.99", "--json").data
    assert [row["fraction"] for row in shown["table"]] == [0, 0.9, 0.99]
    assert [row["kept"] for row in shown["table"]] == [5204, 614, 155]
    assert [row["dense_bytes"] for row in shown["table"]] == [4 * 5204] * 3
    stored = [row["stored_bytes"] for row in shown["table"]]
    assert stored == sorted(stored, reverse=True)
    text = poolctl("prune", network, "--fraction", "0,0.9").out
    assert text.splitlines()[0].split()[0] == "fraction"
    assert [path.name for path in tmp_path.iterdir() if path.is_file()] == [network.name]


def test_the_table_states_the_error_on_gaze_data(poolctl: Run, tmp_path: Path) -> None:
    pytest.importorskip("torch", reason="torch is not installed (extra gaze)")
    path, eyes = tmp_path / "gaze.safetensors", tmp_path / "eyes"
    network = new_network("gaze-lenet")
    write_model(network, path)
    poolctl("dataset", "draw", "eyes", eyes, "--set", "persons=1", "--set", "frames_per_person=20")
    table = poolctl("prune", path, "--fraction", "0,1", "--test", eyes, "--json").data["table"]
    samples = open_gaze(eyes).read()
    predicted = predict_gaze(to_module(network), samples.patches, samples.head)
    # Without any weight of the last layer, only its bias is left.
    constant = np.broadcast_to(network.tensors["fc2.bias"], predicted.shape)
    for line, gaze in zip(table, (predicted, constant), strict=True):
        errors = angular_errors_deg(gaze.astype(float), samples.gaze)
        assert line["error_deg"] == pytest.approx(errors.mean(), rel=1e-5)
    shown = poolctl("prune", path, "--fraction", "1", "--test", eyes)
    assert shown.out.splitlines()[1].split()[-1] == f"{table[1]['error_deg']:.2f}"
    assert "--fraction" in poolctl("prune", path, "--test", eyes).err
    sparse = tmp_path / "gaze.sparse"
    poolctl("prune", path, "--fraction", 1, "-o", sparse)
    [scores] = poolctl("evaluate", sparse, eyes, "--json").data["items"]
    assert scores["mean_error_deg"] == pytest.approx(table[1]["error_deg"], rel=1e-5)


def test_what_cannot_be_pruned_is_said(poolctl: Run, network: Path, tmp_path: Path) -> None:
    out = tmp_path / "out.sparse"
    for arguments in (["-o", out], ["--fraction", "0,1", "-o", out], []):
        shown = poolctl("prune", network, *arguments)
        assert shown.code == 2
        assert "--fraction" in shown.err
    assert poolctl("prune", network, "--fraction", "0,1.5").code == 2
    detector = tmp_path / "faces.svm"
    write_model(make_detector(0), detector)
    assert "expected a network" in poolctl("prune", detector, "--fraction", "0.5").err
    linear = tmp_path / "linear.safetensors"
    write_model(make_state_dict({"fc.weight": np.ones((2, 2))}), linear)
    shown = poolctl("prune", linear, "--fraction", "0.5", "--layers", "convolution")
    assert "has no such layers" in shown.err
    assert poolctl("prune", network, "--fraction", 0.9, "-o", network, "--force").code == 2
    tried = poolctl("prune", network, "--fraction", 0.9, "-o", out, "--dry-run")
    assert "would write" in tried.out
    assert not out.exists()
    assert poolctl("prune", network, "--fraction", 0.9, "-o", out, "-q").out.split() == [str(out)]
    shown = poolctl("prune", network, "--fraction", 0.8, "-o", out)
    assert "another model already exists" in shown.err
