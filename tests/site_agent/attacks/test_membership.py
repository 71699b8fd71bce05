"""Membership attacks find the samples of an overfitted network, and none by random labels."""

import numpy as np
import pytest

from site_agent.attacks.gradients import SampleGradients
from site_agent.attacks.leaks import (
    Leak,
    LeakLosses,
    Losses,
    apply_update,
    leak_of,
    leak_of_network,
)
from site_agent.attacks.membership import (
    Candidates,
    ShadowLosses,
    membership_signals,
    predict_from_updates,
    probe_membership,
    reference_losses,
)
from site_agent.attacks.separation import separation
from site_agent.datasets.gaze.records import join_samples
from site_agent.federated.local_training import train_contribution
from site_agent.federated.plan import make_plan
from site_agent.networks.modules import new_network
from tests.site_agent.attacks.drawn_sites import persons, recorded
from tests.site_agent.federated.small_sites import samples_at

pytestmark = pytest.mark.usefixtures("small_lenet")

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
