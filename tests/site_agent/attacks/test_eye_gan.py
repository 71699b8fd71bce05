"""The generator of eyes and its critic, and pictures reconstructed by it."""

from dataclasses import replace
from functools import cache
from pathlib import Path

import numpy as np
import pytest
import torch

from site_agent.attacks.dualview import InversionSettings, reconstruct_by_gan
from site_agent.attacks.eye_gan import (
    LATENT,
    EyeCritic,
    EyeGan,
    GanSettings,
    critic_loss,
    no_skeletons,
    train_gan,
)
from site_agent.attacks.leaks import Leak, leak_of
from site_agent.datasets.gaze.records import GazeSamples, join_samples
from site_agent.training.gaze.loop import repeatable
from tests.site_agent.attacks.drawn_sites import persons, recorded

pytestmark = pytest.mark.usefixtures("small_lenet")


def eyes() -> GazeSamples:
    return join_samples([trains for trains, _ in persons().values()])


@cache
def trained() -> EyeGan:
    return train_gan(eyes().patches, GanSettings(steps=40, batch_size=8, learning_rate=2e-4))


def test_a_critic_learns_to_tell_eyes_from_noise() -> None:
    torch.manual_seed(0)
    critic, patches = EyeCritic(), torch.tensor(eyes().patches[:, None]) / 255
    optimiser = torch.optim.Adam(critic.parameters(), 3e-3)
    real, noise = patches[::6], torch.rand(30, 1, 36, 60)
    with repeatable():
        for _ in range(30):
            loss = critic_loss(critic, real, noise, no_skeletons(30), torch.rand(30, 1, 1, 1))
            optimiser.zero_grad()
            loss.backward()  # type: ignore[no-untyped-call]
            optimiser.step()
    unseen, other_noise = patches[1::6], torch.rand(30, 1, 36, 60)
    worst_eye = critic(unseen, no_skeletons(30)).min()
    assert worst_eye > critic(other_noise, no_skeletons(30)).max()


def test_made_pictures_have_the_grey_levels_of_eyes_and_differ() -> None:
    made, known = trained().draw(32).astype(float), eyes().patches.astype(float)
    alike = np.corrcoef(made.mean(axis=0).ravel(), known.mean(axis=0).ravel())[0, 1]
    assert alike > 0.4
    assert abs(made.mean() - known.mean()) < 30
    assert 0.2 < made.std(axis=0).mean() / known.std(axis=0).mean() < 2
    assert np.array_equal(trained().draw(4), trained().draw(4))


def test_a_generator_can_be_kept(tmp_path: Path) -> None:
    trained().save(tmp_path / "gan.pt")
    assert np.array_equal(EyeGan.load(tmp_path / "gan.pt").draw(2), trained().draw(2))


def test_the_search_lowers_the_loss_of_the_critic() -> None:
    def score(steps: int) -> float:
        settings = InversionSettings(prior=1, gaze=0, appearance=0, restarts=3, steps=steps)
        pictures = reconstruct_by_gan(Leak("none", ()), ["a", "b"], trained(), eyes(), settings)
        assert np.array_equal(pictures[0], pictures[1]), "nothing that leaked differs by site"
        return float(trained().score(pictures[0]).mean())

    assert score(15) > score(0)


def test_pictures_of_earlier_rounds_are_seen_and_each_loss_matters() -> None:
    leak, sites = leak_of("plain", recorded()), list(persons())[:2]
    settings = InversionSettings(gaze=6, appearance=4, restarts=2, steps=2)

    def reconstruct(*, auxiliary: bool = True, **weights: float) -> bytes:
        chosen = replace(settings, **weights)
        pictures = reconstruct_by_gan(leak, sites, trained(), eyes(), chosen, auxiliary=auxiliary)
        assert pictures.shape == (2, 2, 36, 60)
        return pictures.tobytes()

    ways = [
        reconstruct(), reconstruct(auxiliary=False), reconstruct(prior=0, appearance=0),
        reconstruct(prior=0, gaze=0),
    ]  # fmt: skip
    assert len(set(ways)) == len(ways)


def test_a_skeleton_reaches_the_picture() -> None:
    codes = torch.zeros(2, LATENT)
    skeletons = no_skeletons(2)
    skeletons[1, :, :, :30] = 0.5
    first, second = trained().generator(codes, skeletons).detach()
    assert not torch.equal(first, second)
