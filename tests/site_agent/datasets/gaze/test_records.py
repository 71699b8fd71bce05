"""Sessions held out of a training."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from site_agent.datasets.gaze.records import held_out_sessions, join_samples, select_sessions
from site_agent.errors import InvalidInputError
from tests.site_agent.datasets.gaze.made import samples_of


@given(st.lists(st.integers(1, 9), min_size=1, max_size=4), st.floats(0.01, 0.99))
def test_whole_sessions_are_held_out_of_each_person(counts: list[int], share: float) -> None:
    parts = []
    for number, count in enumerate(counts):
        one = samples_of(f"p{number}", 20)
        names = np.array([f"s{i % count}" for i in range(20)])
        parts.append(replace(one, session=names))
    samples = join_samples(parts)
    held = held_out_sessions(samples, share)
    for number, count in enumerate(counts):
        of_person = samples.person == f"p{number}"
        out, rest = (set(samples.session[of_person & mask].tolist()) for mask in (held, ~held))
        assert not out & rest
        assert len(out) == (min(max(1, round(share * count)), count - 1) if count > 1 else 0)
    order = np.random.default_rng(0).permutation(len(samples))
    np.testing.assert_array_equal(held_out_sessions(samples[order], share), held[order])
    assert not held_out_sessions(samples, 0).any()


def test_sessions_are_selected_by_name() -> None:
    samples = samples_of()
    assert set(select_sessions(samples, ["s1"]).session.tolist()) == {"s1"}
    held = select_sessions(samples, ["held-out"])
    assert 0 < len(held) < len(samples)
    with pytest.raises(InvalidInputError, match="no session s7; expected s0, s1"):
        select_sessions(samples, ["s7"])
    with pytest.raises(InvalidInputError, match="no person has two sessions"):
        select_sessions(held, ["held-out"])
