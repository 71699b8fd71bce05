"""Leaks of rounds, the attacks that find members in them, and pictures by DualView."""

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
from site_agent.attacks.gradients import SampleGradients
from site_agent.attacks.leaks import (
    ALL_SITES,
    LEAKS,
    Leak,
    LeakLosses,
    Losses,
    apply_update,
    leak_of,
    leak_of_network,
    sample_losses,
)
from site_agent.attacks.membership import (
    Candidates,
    ShadowLosses,
    membership_signals,
    predict_from_updates,
    probe_membership,
    reference_losses,
)
from site_agent.attacks.reidentification import UpdateComparison, reidentify
from site_agent.attacks.separation import separation
from site_agent.datasets.gaze.records import GazeSamples
from site_agent.errors import InvalidInputError
from site_agent.federated.local_training import train_at_site
from site_agent.federated.plan import make_plan
from site_agent.networks.modules import new_network
from site_agent.training.gaze.loop import repeatable
from tests.site_agent.attacks.drawn_sites import PLAN, SITES, persons, recorded
from tests.site_agent.federated.small_sites import samples_at

pytestmark = pytest.mark.usefixtures("small_lenet")


def test_each_leak_holds_what_it_is_called_after() -> None:
    rounds = recorded()
    plain, secure, floor, nothing = (leak_of(name, rounds) for name in LEAKS)
    assert [tuple(round_.after) for round_ in plain.rounds] == [tuple(persons())] * 2
    assert [tuple(round_.after) for round_ in secure.rounds] == [(ALL_SITES,)] * 2
    assert secure.rounds[0].after[ALL_SITES] is secure.rounds[1].before
    assert floor.rounds[0].before is rounds[0].base
    assert floor.rounds[0].after[ALL_SITES] is rounds[1].result
    assert nothing.rounds == ()
    with pytest.raises(InvalidInputError, match="'none' holds no network"):
        Losses(persons()["p00"][0]).of_leak(nothing)


def test_the_mean_of_all_updates_is_the_network_that_the_round_made() -> None:
    first = recorded()[0]
    mean = apply_update(first.base, *first.updates.values())
    for name in first.base.infos:
        np.testing.assert_allclose(
            mean.tensors[name], first.result.tensors[name], rtol=0, atol=1e-6
        )


def test_losses_have_the_form_of_the_leak_and_training_lowers_them() -> None:
    own_samples = [trains[:6] for trains, _ in persons().values()]
    samples = GazeSamples.join(own_samples)
    losses = Losses(samples).of_leak(leak_of("plain", recorded()))
    assert losses.before.shape == (2, len(samples))
    assert losses.after.shape == (len(own_samples), 2, len(samples))
    assert losses.gains.mean() > 0
    expected = sample_losses(recorded()[1].base, samples)
    np.testing.assert_array_equal(losses.before[1], expected)


SIGNALS = {"loss now", "loss at base", "change", "change in a round"}

GRADIENTS = {"gradient alignment", "gradient regression"}

SPANS = {"span of fc1"}

ATTACKS = SIGNALS | GRADIENTS | SPANS | {"shadow model", "public references"}


@pytest.fixture(scope="module")
def overfitted() -> tuple[Leak, Candidates]:
    """A network that knows samples by heart, and these samples with others."""
    samples = samples_at(1, 32)
    training = make_plan("fedavg", {"epochs": 70, "batch_size": 8}, rounds=1).training
    base = new_network("gaze-lenet", 2)
    made = train_at_site(
        base, "0" * 64, samples[:16], training, site="site-1", round_number=1, guarded=False
    ).contribution
    leak = leak_of_network(base, apply_update(base, made))
    return leak, Candidates.of(samples[:16], samples[16:])


def test_an_overfitted_network_gives_its_samples_away(overfitted: tuple[Leak, Candidates]) -> None:
    scores = probe_membership(*overfitted)
    assert set(scores) == (SIGNALS | GRADIENTS | SPANS) - {"change in a round"}
    members = overfitted[1].is_member
    assert separation(scores["loss now"].scores, members).auc > 0.95
    change, draw = scores["change"].scores, np.random.default_rng(0)
    shuffled = [separation(change, draw.permutation(members), resamples=0).auc
                for _ in range(100)]  # fmt: skip
    assert np.mean(shuffled) == pytest.approx(0.5, abs=0.05)


def test_a_shadow_and_references_give_two_more_attacks() -> None:
    samples = GazeSamples.join([part for both in persons().values() for part in both])
    members = np.concatenate(
        [
            np.arange(len(trains) + len(others)) < len(trains)
            for trains, others in persons().values()
        ]
    )
    candidates = Candidates(Losses(samples), members, SampleGradients(samples))
    leak = leak_of("secure", recorded())
    references = reference_losses(recorded(), candidates.losses)
    assert references.shape == (6, len(samples))
    shadow = ShadowLosses(candidates.losses.of_leak(leak), members)
    scores = probe_membership(leak, candidates, shadow=shadow, references=references)
    assert set(scores) == ATTACKS
    assert all(attack.scores.shape == (len(samples),) for attack in scores.values())
    # The regression has learnt from the very samples that it judges.
    assert separation(scores["shadow model"].scores, members, resamples=0).auc > 0.5


def test_attributes_of_known_sites_are_learnt_and_a_sum_says_the_same_of_all() -> None:
    first, sites = recorded()[0], list(persons())
    shadow = {name: apply_update(first.base, sent) for name, sent in first.updates.items()}
    values = np.arange(len(sites), dtype=float)[:, None]
    predicted = predict_from_updates(leak_of("plain", recorded()), sites, shadow, values)
    assert np.corrcoef(predicted[:, 0], values[:, 0])[0, 1] > 0.9
    predicted = predict_from_updates(leak_of("secure", recorded()), sites, shadow, values)
    assert np.ptp(predicted) == 0


def test_networks_of_each_round_give_a_signal_that_the_last_one_does_not() -> None:
    """The first sample is learnt in one round and forgotten in the other."""
    before = np.array([[0.3, 0.3], [0.1, 0.25]])
    after = np.array([[[0.1, 0.25], [0.2, 0.2]]])
    rounds = membership_signals(LeakLosses(("all sites",), before, after))
    last = membership_signals(LeakLosses(("all sites",), before[:1], after[:, 1:]))
    np.testing.assert_allclose(rounds["change"], [0.1, 0.1])
    np.testing.assert_allclose(rounds["change in a round"], [0.2, 0.05])
    np.testing.assert_allclose(last["change in a round"], [0.1, 0.1])


def test_every_site_is_matched_by_its_update_and_none_by_the_sum() -> None:
    candidates = {name: others for name, (_, others) in persons().items()}
    plain, secure = (
        reidentify(
            UpdateComparison(candidates, PLAN.training).scores(leak_of(name, recorded()[:1])),
            list(candidates),
        )
        for name in ("plain", "secure")
    )
    assert plain.matched == 1.0
    assert plain.p_value < 0.03
    assert not secure.scores.any()
    assert secure.matched == pytest.approx(secure.chance, abs=0.1)
    assert secure.p_value > 0.05


def test_the_p_value_is_the_share_of_permutations_that_do_as_well() -> None:
    names = [str(number) for number in range(SITES)]
    perfect = reidentify(np.eye(SITES), names)
    assert perfect.matched == 1.0
    assert perfect.p_value == pytest.approx(1 / 120, rel=0.3)
    tied = reidentify(np.ones((SITES, SITES)), names)
    assert tied.matched == pytest.approx(1 / SITES, abs=0.1)
    assert tied.p_value > 0.3
    wrong = reidentify(np.roll(np.eye(SITES), 1, axis=1), names)
    assert (wrong.matched, wrong.p_value) == (0.0, 1.0)


def public_eyes() -> list[GazeSamples]:
    return [others for _, others in persons().values()]


def test_codes_of_public_eyes_have_mean_0_and_variance_1_and_decode_to_them() -> None:
    samples = GazeSamples.join(public_eyes())
    prior = fit_prior(samples.patches, len(samples) - 1)
    codes = prior.encode(samples.patches)
    np.testing.assert_allclose(codes.mean(axis=0), 0, atol=1e-6)
    np.testing.assert_allclose(codes.var(axis=0, ddof=1), 1, rtol=1e-6)
    np.testing.assert_array_equal(prior.decode(codes), samples.patches)
    assert fit_prior(samples.patches, 8).components == 8


def test_the_search_finds_pictures_that_the_network_knows_better() -> None:
    public = GazeSamples.join(public_eyes())
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
    embedding = fit_embedding(GazeSamples.join(public_eyes()))
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
    return GazeSamples.join([trains for trains, _ in persons().values()])


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
