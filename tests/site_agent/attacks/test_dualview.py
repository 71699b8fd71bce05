"""DualView: its priors, the search for pictures, the distribution of gaze, and the judges."""

from dataclasses import replace
from functools import cache
from pathlib import Path

import numpy as np
import pytest
import torch

from site_agent.attacks.dualview import (
    GazeGrid,
    InversionSettings,
    Victims,
    fit_embedding,
    fit_prior,
    infer_densities,
    kl_divergence,
    nearest_public,
    psnr,
    reconstruct,
    reconstruct_by_gan,
    ssim,
)
from site_agent.attacks.eye_gan import (
    LATENT,
    EyeCritic,
    EyeGan,
    GanSettings,
    critic_loss,
    no_skeletons,
    train_gan,
)
from site_agent.attacks.leaks import Leak, Losses, leak_of
from site_agent.datasets.gaze.records import GazeSamples, join_samples
from site_agent.training.gaze.loop import repeatable
from tests.site_agent.attacks.drawn_sites import persons, recorded

pytestmark = pytest.mark.usefixtures("small_lenet")


def public_eyes() -> list[GazeSamples]:
    return [others for _, others in persons().values()]


def test_codes_of_public_eyes_have_mean_0_and_variance_1_and_decode_to_them() -> None:
    samples = join_samples(public_eyes())
    prior = fit_prior(samples.patches, len(samples) - 1)
    codes = prior.encode(samples.patches)
    np.testing.assert_allclose(codes.mean(axis=0), 0, atol=1e-6)
    np.testing.assert_allclose(codes.var(axis=0, ddof=1), 1, rtol=1e-6)
    np.testing.assert_array_equal(prior.decode(codes), samples.patches)
    assert fit_prior(samples.patches, 8).components == 8


def test_the_search_finds_pictures_that_the_network_knows_better() -> None:
    public = join_samples(public_eyes())
    prior, sites = fit_prior(public.patches, 16), list(persons())
    settings = InversionSettings(prior=1.0, gaze=6.0, restarts=2, steps=8, learning_rate=0.05)
    victims = Victims(sites, np.zeros((len(sites), prior.components)))
    plain = reconstruct(leak_of("plain", recorded()), victims, prior, public, settings)
    assert plain.shape == (len(sites), 2, 36, 60)
    secure = reconstruct(leak_of("secure", recorded()), victims, prior, public, settings)
    assert all(np.array_equal(picture, secure[0]) for picture in secure)
    nothing = reconstruct(Leak("none", ()), victims, prior, public, settings)
    mean = prior.decode(np.zeros((1, prior.components)))
    assert np.array_equal(nothing, np.broadcast_to(mean, nothing.shape))

    order = np.argsort(public.gaze[:, 0], kind="stable")
    asked = public[order[[len(order) // 4, 3 * len(order) // 4]]]
    network = recorded()[-1].result

    def loss(pictures: np.ndarray) -> float:
        asked.patches[:] = pictures
        return float(Losses(asked).of(network).mean())

    assert loss(secure[0]) < 0.9 * loss(nothing[0])
    assert len({picture.tobytes() for picture in plain}) == len(sites)


def test_densities_are_learnt_from_shadow_sites() -> None:
    grid, draw = GazeGrid(), np.random.default_rng(0)
    centres = draw.uniform(-0.2, 0.15, (40, 2))
    densities = np.array([grid.density(draw.normal(at, 0.08, (60, 2))) for at in centres])
    np.testing.assert_allclose(densities.sum(axis=1), 1)
    gaze = draw.uniform(-0.4, 0.25, (500, 2))
    gains = np.array([-np.linalg.norm(gaze - at, axis=1) for at in centres])
    changes = grid.changes(gains, gaze)
    inferred = infer_densities(changes[:5], changes[5:], densities[5:])
    mean = densities[5:].mean(axis=0)
    learnt = [kl_divergence(densities[site], inferred[site]) for site in range(5)]
    guessed = [kl_divergence(densities[site], mean) for site in range(5)]
    assert np.mean(learnt) < 0.5 * np.mean(guessed)
    assert kl_divergence(mean, mean) == pytest.approx(0)


def test_judges_know_persons_and_likeness() -> None:
    embedding = fit_embedding(join_samples(public_eyes()))
    trains = [pictures[:10] for pictures, _ in persons().values()]
    similar = embedding.similarities(
        np.array([pictures.patches for pictures in trains]), public_eyes()
    )
    assert list(similar.argmax(axis=1)) == list(range(len(trains)))
    picture = trains[0].patches[0]
    assert ssim(picture, picture) == pytest.approx(1)
    darker = (picture // 2).astype(np.uint8)
    assert ssim(picture, darker) < 0.99
    assert psnr(picture, darker) < 30 < psnr(picture, picture)
    assert np.array_equal(nearest_public(picture[None], trains[0])[0], picture)


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
