"""Noise on smashed data: bounds that no pair of images breaks, and one that is none."""

from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch.nn import functional

from site_agent.errors import InvalidInputError, TrainingFailedError
from site_agent.networks.modules import new_network
from site_agent.split.cuts import find_cut
from site_agent.split.frozen import smash
from site_agent.split.in_process import run_split_rounds
from site_agent.split.messages import decode_arrays
from site_agent.split.noise import (
    SmashedNoise,
    layer_sensitivity,
    sensitivity_of,
    signal_to_noise_db,
)
from site_agent.split.parts import split_network, to_part_module
from site_agent.split.plan import SplitPlan
from tests.site_agent.federated.small_sites import small_sites
from tests.site_agent.split.live_split import live_split


@cache
def bounded_part(seed: int, cut_name: str) -> tuple[Any, Any, Any]:
    """Return a client part, its stages, and the bound of the pictures' effect."""
    cut = find_cut("gaze-lenet", cut_name)
    part = split_network(new_network("gaze-lenet", seed), cut).client
    module = to_part_module(part, cut, "client")
    return module, cut.front_stages(module.stages), sensitivity_of(part, cut)


@given(
    seed=st.integers(0, 2**31),
    cut_name=st.sampled_from(["pool1", "pool2", "fc1"]),
    pixels=st.sampled_from([1, 2, 20, 2160]),
    size=st.floats(1e-3, 1e3),
)
def test_no_pair_of_images_is_beyond_the_bounds(
    seed: int, cut_name: str, pixels: int, size: float
) -> None:
    module, front, bound = bounded_part(seed % 3, cut_name)
    draw = np.random.default_rng(seed)
    first = draw.normal(size=(1, 1, 36, 60)).astype(np.float32)
    change = np.zeros(2160, np.float32)
    change[draw.choice(2160, pixels, replace=False)] = size * draw.normal(size=pixels)
    second = first + change.reshape(first.shape)
    with torch.no_grad():
        a, b = (module.run_stages(front, torch.from_numpy(x), None) for x in (first, second))  # type: ignore[arg-type]
    moved, by = (a - b).double(), (second - first).astype(np.float64)
    slack = 1 + 1e-3
    noise = 1e-4 * (1 + float(a.abs().sum()) * 1e-3)
    assert moved.abs().sum() <= bound * np.abs(by).sum() * slack + noise


def test_the_norm_of_the_kernels_as_a_matrix_is_no_bound() -> None:
    """One pixel counts in many windows, also behind the pooling."""
    weight = torch.rand(20, 1, 5, 5, generator=torch.Generator().manual_seed(0))
    reshaped = float(torch.linalg.matrix_norm(weight.flatten(1), 1))
    pixel = torch.zeros(1, 1, 36, 60)
    pixel[0, 0, 18, 30] = 1.0
    gain = float(functional.max_pool2d(functional.conv2d(pixel, weight), 2).sum())
    assert 3 * reshaped < gain <= layer_sensitivity(weight) * (1 + 1e-6)


def test_noise_has_its_scale_and_says_what_it_gives() -> None:
    cut = find_cut("gaze-lenet", "pool1")
    part = split_network(new_network("gaze-lenet"), cut).client
    bound = sensitivity_of(part, cut)
    smashed = torch.zeros(50, 20, 16, 28)
    # Pooling lets through a quarter of what one pixel changes, and a bit more at its edges.
    weight = np.abs(part.tensors["conv1.weight"].astype(np.float64)).sum()
    assert 0.36 * weight < bound < 0.6 * weight
    deviation = np.sqrt(2) * bound
    added = SmashedNoise(0.5).alter(bound, torch.Generator().manual_seed(0))(smashed)
    assert float(added.std()) == pytest.approx(0.5 * deviation, rel=0.02)
    assert float(added.mean()) == pytest.approx(0, abs=0.02 * deviation)
    assert SmashedNoise().alter(bound, torch.Generator())(smashed) is smashed
    assert "epsilon 20 for a change of one pixel" in SmashedNoise(0.5).words(10)
    drawn = torch.randn(200, 10, generator=torch.Generator().manual_seed(0))
    louder = drawn + 10 * torch.randn(200, 10, generator=torch.Generator().manual_seed(1))
    assert signal_to_noise_db(drawn, louder) == pytest.approx(-20, abs=0.5)


@pytest.mark.parametrize("scale", ["thesis", "guaranteed"])
def test_training_under_noise_keeps_the_scale_of_the_noise(scale: str) -> None:
    plan = SplitPlan.model_validate({"rounds": 1, "noise_level": 0.01, "noise_scale": scale})
    base, cut = new_network("gaze-lenet", 1), plan.found_cut
    sites = dict([*small_sites().items()][:1])
    (held,) = run_split_rounds(base, sites, plan)
    before, after = (
        sensitivity_of(part, cut) for part in (split_network(base, cut).client, held.client.network)
    )
    if scale == "guaranteed":
        assert after <= before * (1 + 1e-5)
        return
    weight = torch.from_numpy(np.array(held.client.network.tensors["conv1.weight"])).flatten(1)
    assert float(torch.linalg.matrix_norm(weight, 1)) == pytest.approx(1.0, rel=1e-5)
    noise = SmashedNoise.of(plan)
    assert noise.scale(after) == 0.01
    assert noise.epsilon(1) is None
    assert "bounds no change" in noise.words(1)


def test_at_the_scale_of_the_thesis_sgd_trains_under_noise_that_else_makes_it_diverge() -> None:
    def last_loss(scale: str) -> float:
        plan = SplitPlan.model_validate({"rounds": 2, "noise_level": 2.0, "noise_scale": scale})
        *_, held = run_split_rounds(new_network("gaze-lenet", 1), small_sites(), plan)
        return max(held.losses.values())

    assert last_loss("thesis") < 1.0
    with pytest.raises(TrainingFailedError, match=r"diverges.*take --set optimiser=adam"):
        last_loss("guaranteed")


def test_batchnorm_has_no_bound() -> None:
    cut = find_cut("gaze-resnet18", "stem")
    part = split_network(new_network("gaze-resnet18"), cut).client
    with pytest.raises(InvalidInputError, match="BatchNorm2d in bn1"):
        sensitivity_of(part, cut)


@pytest.mark.parametrize("variant", ["v1", "frozen-client"])
def test_studies_draw_the_same_noise_again(variant: str) -> None:
    plan = SplitPlan.model_validate({"variant": variant, "rounds": 1, "noise_level": 0.01})
    base = new_network("gaze-lenet", 1)
    results = [next(iter(run_split_rounds(base, small_sites(), plan))) for _ in range(2)]
    assert results[0].server.digest == results[1].server.digest
    plain = plan.model_copy(update={"noise_level": 0.0})
    assert next(iter(run_split_rounds(base, small_sites(), plain))).server.digest != (
        results[0].server.digest
    )


def test_predictions_send_noise_as_training_does(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    plan = SplitPlan.model_validate({"rounds": 1, "noise_level": 0.5})
    sent = []
    with live_split(tmp_path, plan) as live, live.client("site-0") as client:
        call = client._server.call

        def recorded(method: str, path: str, body: bytes = b"", **more: Any) -> bytes:
            if path == "/predict":
                sent.append(decode_arrays(body, live.server.shapes["predict"])["smashed"])
            return call(method, path, body, **more)

        monkeypatch.setattr(client._server, "call", recorded)
        samples = small_sites()["site-0"]
        client.predict(samples)
        part = live.aggregator.rounds.model.network
    clean = smash(part, samples, plan, lambda smashed: smashed).smashed
    scale = SmashedNoise(0.5).scale(sensitivity_of(part, plan.found_cut))
    noise = np.concatenate(sent) - clean
    assert float(noise.std()) == pytest.approx(np.sqrt(2) * scale, rel=0.05)
