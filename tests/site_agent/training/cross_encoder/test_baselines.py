"""Baselines of cross-encoders: contrastive encoders, and a head of two layers for 3-D gaze."""

from typing import Literal

import numpy as np
import pytest
import torch
from torch.nn import functional

from site_agent.networks.gaze_modules import CrossEncoder
from site_agent.networks.modules import new_network, to_inputs, to_module
from site_agent.training.cross_encoder.baselines import train_on_views, two_layer_error
from site_agent.training.cross_encoder.loop import FrameTensors
from site_agent.training.gaze.loop import random_view
from tests.site_agent.federated.small_sites import samples_at


def test_a_head_of_two_layers_reads_directions() -> None:
    draw = np.random.default_rng(0)
    gaze, test = (draw.normal(size=(count, 2)) * 0.2 for count in (100, 50))
    mixed = draw.normal(size=(2, 6))
    read = two_layer_error(gaze @ mixed, gaze, test @ mixed, test, steps=300, seed=0)
    blind = two_layer_error(np.zeros((100, 6)), gaze, np.zeros((50, 6)), test, steps=300, seed=0)
    assert read < 3
    assert blind > 8


@pytest.mark.parametrize("method", ["simclr", "byol"])
def test_views_of_one_patch_become_alike(method: Literal["simclr", "byol"]) -> None:
    patches = to_inputs(samples_at(0, 16).patches)
    data = FrameTensors(patches, torch.zeros(8, dtype=torch.int64))

    def likeness(encoder: torch.nn.Module) -> float:
        assert isinstance(encoder, CrossEncoder)
        generator = torch.Generator().manual_seed(1)
        with torch.inference_mode():
            views = [
                encoder.eval().encode(random_view(patches, 3, 0.6, generator))[0] for _ in range(2)
            ]
        alike = functional.cosine_similarity(views[0][:, None], views[1][None], dim=2)
        return float(alike.diagonal().mean() - alike.mean())

    network = to_module(new_network("cross-encoder-small", 0))
    assert isinstance(network, CrossEncoder)
    before = likeness(network)
    trained = train_on_views(
        network, method, data, epochs=8, batch_size=16, learning_rate=0.003, seed=0
    )
    assert likeness(trained) > before
