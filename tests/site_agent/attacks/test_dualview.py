"""DualView: the prior, the search for pictures, the distribution of gaze, and the judges."""

from __future__ import annotations

import numpy as np
import pytest

from site_agent.attacks import Leak, Losses, leak_of
from site_agent.attacks.dualview import InversionSettings, Victims, fit_prior, reconstruct
from site_agent.datasets.gaze import join_samples
from tests.site_agent.attacks.drawn_sites import persons, recorded

pytestmark = pytest.mark.usefixtures("small_lenet")

PUBLIC = [others for _, others in persons().values()]


def test_codes_of_public_eyes_have_mean_0_and_variance_1_and_decode_to_them() -> None:
    samples = join_samples(PUBLIC)
    prior = fit_prior(samples.patches, len(samples) - 1)
    codes = prior.encode(samples.patches)
    np.testing.assert_allclose(codes.mean(axis=0), 0, atol=1e-6)
    np.testing.assert_allclose(codes.var(axis=0, ddof=1), 1, rtol=1e-6)
    np.testing.assert_array_equal(prior.decode(codes), samples.patches)
    assert fit_prior(samples.patches, 8).components == 8


def test_the_search_finds_pictures_that_the_network_knows_better() -> None:
    public = join_samples(PUBLIC)
    prior, sites = fit_prior(public.patches, 16), list(persons())
    settings = InversionSettings(prior=1.0, gaze=6.0, restarts=2, steps=8, learning_rate=0.05)
    victims = Victims(sites, np.zeros((len(sites), prior.components)))
    plain = reconstruct(leak_of("plain", recorded()), victims, prior, public, settings)
    assert plain.shape == (len(sites), 2, 36, 60)
    secure = reconstruct(leak_of("secure", recorded()), victims, prior, public, settings)
    assert all(np.array_equal(own, secure[0]) for own in secure)
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
    assert len({own.tobytes() for own in plain}) == len(sites)
