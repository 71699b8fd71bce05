"""DualView: the prior, the search for pictures, the distribution of gaze, and the judges."""

import numpy as np
import pytest

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
    ssim,
)
from site_agent.attacks.leaks import Leak, Losses, leak_of
from site_agent.datasets.gaze.records import GazeSamples, join_samples
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
