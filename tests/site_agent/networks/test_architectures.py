"""Architectures: sizes, files, initial parameters, GLC, and torch's compiler."""

import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch

from aggregators.formats import write_model
from aggregators.models import StateDict
from site_agent.errors import InvalidInputError
from site_agent.networks.architectures import GAZE_ARCHITECTURES
from site_agent.networks.files import read_network
from site_agent.networks.glc import GLC_LAYOUTS, Glc, global_local_attention
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


_TRAINED = """
import inspect, sys, torch
from site_agent.networks.modules import new_network, to_module
from site_agent.training.gaze.loop import repeatable
module = to_module(new_network("gaze-lenet", seed=1))
inspect.getmodule(inspect.currentframe())
for kind in (torch.optim.SGD, torch.optim.AdamW):
    optimiser = kind(module.parameters(), lr=0.1)
    optimiser.zero_grad()
    sum(entry.sum() for entry in module.parameters()).backward()
    with repeatable():
        optimiser.step()
    optimiser.load_state_dict(optimiser.state_dict())
"""


def run_python(text: str) -> None:
    subprocess.run([sys.executable, "-c", text], check=True)


def test_training_does_not_load_the_compiler() -> None:
    run_python(_TRAINED + 'assert "torch._dynamo.eval_frame" not in sys.modules')


def test_a_network_can_be_compiled_after_training() -> None:
    run_python(
        _TRAINED
        + """
import torch._dynamo.config
compiled = torch.compile(module.conv1, backend="eager")
picture = torch.ones(1, 1, 36, 60)
assert torch.equal(compiled(picture), module.conv1(picture))
assert "torch._dynamo.eval_frame" in sys.modules
assert torch._dynamo is sys.modules["torch._dynamo"]
"""
    )


@pytest.mark.parametrize(
    ("name", "parameters"),
    [("glc-paper", 70_181_857), ("glc-8", 55_941_601), ("glc-small", 1_993_921),
     ("glc-tiny", 111_505)],
)  # fmt: skip
def test_networks_have_as_many_parameters_as_published(name: str, parameters: int) -> None:
    with torch.device("meta"):
        module = Glc(GLC_LAYOUTS[name])
    assert sum(parameter.numel() for parameter in module.parameters()) == parameters


@pytest.mark.parametrize("name", ["glc-tiny", "glc-small"])
def test_each_parameter_gets_a_gradient(name: str) -> None:
    layout = GLC_LAYOUTS[name]
    torch.manual_seed(1)
    module = Glc(layout)
    maps = module(torch.randn(2, 3, layout.frames, layout.size_px, layout.size_px))
    side = layout.size_px // 4
    assert maps.shape == (2, 1, layout.frames, side, side)
    maps.square().mean().backward()
    without = [key for key, parameter in module.named_parameters() if not parameter.grad.any()]  # type: ignore[union-attr]
    assert not without


@pytest.mark.slow
def test_the_published_size_makes_one_step() -> None:
    torch.manual_seed(1)
    module = Glc(GLC_LAYOUTS["glc-paper"]).eval()  # no block is left out by chance
    maps = module(torch.randn(1, 3, 8, 256, 256))
    assert maps.shape == (1, 1, 8, 64, 64)
    maps.square().mean().backward()
    without = [key for key, parameter in module.named_parameters() if not parameter.grad.any()]  # type: ignore[union-attr]
    assert not without


def dense_attention(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
    """Compute it as published: 1e8 is subtracted off the diagonal and the first column."""
    count = q.shape[2]
    suppressed = torch.full((count, count), 1e8, dtype=q.dtype)
    suppressed.fill_diagonal_(0)
    suppressed[:, 0] = 0
    logits = q @ k.transpose(-2, -1) * q.shape[-1] ** -0.5
    attention: torch.Tensor = (logits - suppressed).softmax(-1) @ v
    return attention


@pytest.mark.parametrize(("dtype", "tolerance"), [(torch.float32, 1e-6), (torch.float64, 1e-12)])
def test_two_logits_give_the_dense_masked_attention(dtype: torch.dtype, tolerance: float) -> None:
    generator = torch.Generator().manual_seed(3)
    q, k, v = (torch.randn(2, 4, 33, 16, generator=generator, dtype=dtype) for _ in range(3))
    attended = global_local_attention(q, k, v)
    torch.testing.assert_close(attended, dense_attention(q, k, v), rtol=0, atol=tolerance)
    # The global token, which stands first, sees itself only.
    torch.testing.assert_close(attended[:, :, 0], v[:, :, 0])


def test_half_precision_stays_finite() -> None:
    generator = torch.Generator().manual_seed(3)
    q, k, v = (8 * torch.randn(1, 2, 17, 32, generator=generator).half() for _ in range(3))
    assert bool(global_local_attention(q, k, v).isfinite().all())
