"""Saliency networks are trained, scored beside maps that know no picture, and go on when killed."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch

from site_agent.datasets.egocentric import ClipSamples, open_egocentric
from site_agent.datasets.synthetic.egocentric_clips import ClipSettings, write_clips
from site_agent.evaluation.saliency import evaluate_saliency
from site_agent.networks import new_network, predict_maps, to_module
from site_agent.training.saliency import SaliencySettings, read_clips, saliency_loss, to_tensors


@pytest.fixture(scope="module")
def clips(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("egocentric") / "clips"
    write_clips(folder, ClipSettings(people=2, videos=5, seconds=1.5))
    return folder


@pytest.fixture(scope="module")
def samples(clips: Path) -> ClipSamples:
    return read_clips(open_egocentric(clips), SaliencySettings())


def test_the_loss_is_the_cross_entropy_and_smallest_at_the_target(samples: ClipSamples) -> None:
    targets = to_tensors(samples).targets
    assert targets.sum(dim=(2, 3)).numpy() == pytest.approx(1, abs=1e-5)
    flat = torch.zeros_like(targets)
    assert float(saliency_loss(flat, targets)) == pytest.approx(np.log(12 * 12), rel=1e-5)
    best = torch.log(targets + 1e-9)
    for loss in ("ce", "kl-reverse"):
        right, wrong = best * (2 if loss == "kl-reverse" else 1), torch.roll(best, 5, dims=3)
        assert float(saliency_loss(right, targets, loss)) < float(
            saliency_loss(wrong, targets, loss)
        )


def test_a_network_is_scored_beside_maps_that_know_no_picture(samples: ClipSamples) -> None:
    module = to_module(new_network("glc-tiny"))
    found = evaluate_saliency(module, samples)
    assert list(found.scores) == ["network", "person-mean", "centre", "uniform", "oracle"]
    assert found.scores["uniform"].auc == pytest.approx(0.5)
    assert found.scores["oracle"].f1 > 0.5 > found.scores["uniform"].f1
    low, high = found.intervals["oracle"]
    assert low <= found.scores["oracle"].f1 <= high
    maps = predict_maps(module, samples.frames[:3])
    assert maps.shape == (3, 4, 64, 64)
    assert maps.sum((2, 3)) == pytest.approx(1, abs=1e-4)


class _KilledError(Exception):
    pass
