"""The content of each leak, and losses of leaked networks."""

import numpy as np
import pytest

from site_agent.attacks.leaks import ALL_SITES, LEAKS, Losses, apply_update, leak_of, sample_losses
from site_agent.datasets.gaze.records import join_samples
from site_agent.errors import InvalidInputError
from tests.site_agent.attacks.drawn_sites import persons, recorded

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
