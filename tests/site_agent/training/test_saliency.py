"""Saliency networks are trained, compared with maps that know no picture, and go on when killed."""

from pathlib import Path

import numpy as np
import pytest
import torch

from aggregators.formats import file_digest, read_model
from site_agent.datasets.egocentric import ClipSamples, open_egocentric
from site_agent.datasets.synthetic.egocentric_clips import ClipSettings, write_clips
from site_agent.errors import InvalidInputError
from site_agent.evaluation.saliency import evaluate_saliency
from site_agent.networks.modules import new_network, predict_maps, to_module
from site_agent.training.gaze import start_network
from site_agent.training.network_settings import GazeSettings, SaliencySettings
from site_agent.training.saliency import read_clips, saliency_loss, to_tensors, train_saliency
from site_agent.work import Progress


@pytest.fixture(scope="module")
def clips(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("egocentric") / "clips"
    write_clips(folder, ClipSettings(persons=2, videos=5, seconds=1.5))
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


def test_the_reverse_divergence_has_the_scale_of_glc() -> None:
    point = torch.zeros(1, 1, 12, 12)
    point[..., 3, 4] = 1.0
    # 1e-10 of the source in all places but one, divided by the logarithm of their number.
    expected = (143 / 144 * np.log(1e10) - np.log(144)) / np.log(144)
    loss = saliency_loss(torch.zeros_like(point), point, "kl-reverse")
    assert float(loss) == pytest.approx(expected, rel=1e-4)


def test_a_network_is_scored_beside_maps_that_know_no_picture(samples: ClipSamples) -> None:
    module = to_module(new_network("glc-tiny"))
    evaluation = evaluate_saliency(module, samples)
    assert list(evaluation.scores) == ["network", "person-mean", "centre", "uniform", "oracle"]
    assert evaluation.scores["uniform"].auc == pytest.approx(0.5)
    assert evaluation.scores["oracle"].f1 > 0.5 > evaluation.scores["uniform"].f1
    assert "oracle" not in evaluation.intervals, "videos are too few or too alike"
    maps = predict_maps(module, samples.frames[:3])
    assert maps.shape == (3, 4, 64, 64)
    assert maps.sum((2, 3)) == pytest.approx(1, abs=1e-4)


class _KilledError(Exception):
    pass


def _killed_in(epoch: int) -> Progress:
    def progress(_share: float | None, text: str) -> None:
        if text.startswith(f"epoch {epoch}"):
            raise _KilledError

    return progress


@pytest.mark.slow
def test_a_killed_training_goes_on_and_gives_the_same_network(clips: Path, tmp_path: Path) -> None:
    dataset, settings = open_egocentric(clips), SaliencySettings(epochs=2, batch_size=4)
    whole, scores = train_saliency(dataset, tmp_path / "whole.safetensors", settings)
    assert scores is not None
    assert whole.record.details["test_scores"]["network"]["f1"] == scores.scores["network"].f1
    assert whole.record.details["losses"][1] < whole.record.details["losses"][0]
    again = tmp_path / "again.safetensors"
    with pytest.raises(_KilledError):
        train_saliency(dataset, again, settings, _killed_in(2))
    assert not again.exists()
    resumed, _ = train_saliency(dataset, again, settings)
    assert resumed.record.details["resumed_at_epoch"] == 1
    assert file_digest(again) == file_digest(whole.model_path)
    network = read_model(again)
    assert network.metadata["architecture"] == "glc-tiny"  # type: ignore[union-attr]


def test_networks_of_one_kind_are_refused_for_the_other(clips: Path) -> None:
    with pytest.raises(
        InvalidInputError, match="gaze-lenet is a gaze network; expected one of glc"
    ):
        read_clips(open_egocentric(clips), SaliencySettings(architecture="gaze-lenet"))
    with pytest.raises(InvalidInputError, match="glc-tiny is a saliency network"):
        start_network(GazeSettings(architecture="glc-tiny"), None)
