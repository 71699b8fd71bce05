"""Leaks, and the attacks that find members in them."""

import numpy as np
import pytest

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
from site_agent.datasets.gaze.records import join_samples
from site_agent.errors import InvalidInputError
from site_agent.federated.local_training import train_contribution
from site_agent.federated.plan import make_plan
from site_agent.networks.modules import new_network
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
    samples = join_samples(own_samples)
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
    made = train_contribution(
        base, "0" * 64, samples[:16], training, site="site-1", round_number=1, guarded=False
    )
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
    samples = join_samples([part for both in persons().values() for part in both])
    members = np.concatenate(
        [
            np.arange(len(trains) + len(others)) < len(trains)
            for trains, others in persons().values()
        ]
    )
    candidates = Candidates(Losses(samples), members, SampleGradients(samples))
    leak = leak_of("secure", recorded())
    references = reference_losses(recorded(), candidates.losses, count=3)
    assert references.shape == (3, len(samples))
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
    assert (perfect.matched, perfect.top_1) == (1.0, 1.0)
    assert perfect.p_value == pytest.approx(1 / 120, rel=0.3)
    tied = reidentify(np.ones((SITES, SITES)), names)
    assert tied.matched == pytest.approx(1 / SITES, abs=0.1)
    assert tied.p_value > 0.3
    wrong = reidentify(np.roll(np.eye(SITES), 1, axis=1), names)
    assert (wrong.matched, wrong.p_value) == (0.0, 1.0)
