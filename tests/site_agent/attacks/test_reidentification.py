"""Sites are re-identified from single updates, and not from sums of all."""

import numpy as np
import pytest

from site_agent.attacks.leaks import Losses, leak_of
from site_agent.attacks.reidentification import UpdateComparison, reidentify, scores_by_losses
from site_agent.datasets.gaze.records import join_samples
from tests.site_agent.attacks.drawn_sites import PLAN, SITES, persons, recorded

pytestmark = pytest.mark.usefixtures("small_lenet")


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


def test_losses_of_single_sites_differ_and_those_of_the_sum_do_not() -> None:
    samples = join_samples([others for _, others in persons().values()])
    losses, sites = Losses(samples), list(persons())
    plain = scores_by_losses(losses.of_leak(leak_of("plain", recorded())), samples.person, sites)
    secure = scores_by_losses(losses.of_leak(leak_of("secure", recorded())), samples.person, sites)
    assert np.ptp(plain, axis=0).min() > 0
    assert np.ptp(secure, axis=0).max() == 0


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
