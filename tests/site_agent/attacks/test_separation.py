"""Measures of separation agree with their definitions."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from site_agent.attacks import separation
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
    found = separation(scores, members, resamples=0)
    differences = scores[members][:, None] - scores[~members][None]
    assert found.auc == pytest.approx(np.mean(0.5 * (1 + np.sign(differences))))
    assert found.members + found.others == len(pairs)


def test_intervals_are_wider_if_whole_persons_are_drawn() -> None:
    draw = np.random.default_rng(1)
    persons = np.repeat(np.arange(20), 20)
    scores = np.repeat(draw.random(20), 20) + 0.01 * draw.random(400)
    members = persons < 10
    alone = separation(scores, members).intervals["auc"]
    grouped = separation(scores, members, groups=persons.astype(str)).intervals["auc"]
    assert grouped[1] - grouped[0] > 2 * (alone[1] - alone[0])
