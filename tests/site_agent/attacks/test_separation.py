"""Measures of separation agree with their definitions."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from site_agent.attacks.separation import separation
from site_agent.errors import InvalidInputError

SCORED = st.lists(st.tuples(st.integers(0, 6), st.booleans()), min_size=2, max_size=40)


@given(SCORED)
def test_the_auc_is_the_probability_that_a_member_scores_higher(
    pairs: list[tuple[int, bool]],
) -> None:
    scores = np.array([float(score) for score, _ in pairs])
    members = np.array([member for _, member in pairs])
    if members.all() or not members.any():
        with pytest.raises(InvalidInputError, match="expected some"):
            separation(scores, members)
        return
    result = separation(scores, members, resamples=0)
    differences = scores[members][:, None] - scores[~members][None]
    assert result.auc == pytest.approx(np.mean(0.5 * (1 + np.sign(differences))))
    assert result.members + result.others == len(pairs)


def test_perfect_scores_and_random_ones() -> None:
    members = np.arange(400) < 200
    perfect = separation(members.astype(float), members, resamples=20)
    assert (perfect.auc, perfect.balanced_accuracy) == (1.0, 1.0)
    assert perfect.true_positives_at_1_percent == 1.0
    assert "auc" not in perfect.intervals, "resamples that are all alike say nothing of others"
    random = separation(np.random.default_rng(0).random(400), members, resamples=50)
    low, high = random.intervals["auc"]
    assert low < 0.5 < high
    assert 0.05 < high - low < 0.2


def test_intervals_are_wider_if_whole_persons_are_drawn() -> None:
    draw = np.random.default_rng(1)
    persons = np.repeat(np.arange(20), 20)
    scores = np.repeat(draw.random(20), 20) + 0.01 * draw.random(400)
    members = persons < 10
    alone = separation(scores, members).intervals["auc"]
    grouped = separation(scores, members, groups=persons.astype(str)).intervals["auc"]
    assert grouped[1] - grouped[0] > 2 * (alone[1] - alone[0])
