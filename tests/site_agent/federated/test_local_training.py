"""A site's training in a round can be repeated, and depends on the round."""

import numpy as np
import pytest

from aggregators.methods.round_options import LocalTraining
from aggregators.models import NetworkContribution
from site_agent.datasets.gaze.records import GazeSamples
from site_agent.errors import ContributionWithheldError, TrainingDataError
from site_agent.federated.local_training import clip_update, train_contribution
from site_agent.networks.modules import new_network
from tests.site_agent.federated.small_sites import samples_at

pytestmark = pytest.mark.usefixtures("small_lenet")


def _samples(count: int) -> GazeSamples:
    draw = np.random.default_rng(5)
    return GazeSamples(
        draw.integers(0, 256, (count, 36, 60)).astype(np.uint8),
        draw.normal(size=(count, 2)) * 0.1,
        draw.normal(size=(count, 2)) * 0.1,
        np.full(count, "p00"),
        np.full(count, "day01"),
        np.arange(count),
        np.full(count, "left"),
    )


def _train(round_number: int, count: int = 33, *, max_hours: float = 1.0) -> NetworkContribution:
    return train_contribution(
        new_network("gaze-lenet"),
        "0" * 64,
        _samples(count),
        LocalTraining(batch_size=16),
        site="site-a",
        round_number=round_number,
        max_hours=max_hours,
    )


def test_equal_inputs_give_equal_differences() -> None:
    first, again, later = _train(1), _train(1), _train(2)
    assert first.samples == 33
    assert first.holds == "differences"
    for name in first.network.infos:
        np.testing.assert_array_equal(first.network.tensors[name], again.network.tensors[name])
    assert not np.array_equal(
        first.network.tensors["fc2.weight"], later.network.tensors["fc2.weight"]
    )


def test_an_update_is_shortened_to_a_norm_and_keeps_its_direction() -> None:
    made = _train(1)
    floats = [name for name, info in made.network.infos.items() if info.dtype == "F32"]
    first, clipped = (
        np.concatenate([item.network.tensors[name].ravel() for name in floats]).astype(np.float64)
        for item in (made, clip_update(made, 0.01))
    )
    norm = float(np.linalg.norm(first))
    assert np.linalg.norm(clipped) == pytest.approx(0.01, rel=1e-5)
    assert first @ clipped == pytest.approx(0.01 * norm, rel=1e-5)
    assert clip_update(made, 2 * norm) is made


def test_a_training_that_would_take_too_long_is_refused_at_its_first_steps() -> None:
    with pytest.raises(ContributionWithheldError, match="--max-hours"):
        _train(1, max_hours=1e-7)


def test_a_single_sample_is_refused() -> None:
    with pytest.raises(TrainingDataError, match="found 1 samples, expected at least 2"):
        _train(1, count=1)


def test_a_site_with_fewer_samples_than_the_terms_ask_for_takes_no_part() -> None:
    asked = LocalTraining(least_samples=17)
    with pytest.raises(TrainingDataError, match="found 16 samples, expected at least 17"):
        train_contribution(
            new_network("gaze-lenet"), "ab" * 32, samples_at(1, 16), asked,
            site="site-a", round_number=1,
        )  # fmt: skip
