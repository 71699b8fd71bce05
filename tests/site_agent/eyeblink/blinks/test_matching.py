"""Matching is one to one."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.site_agent.eyeblink.matching import match_blinks, match_blinks_to_points


def test_each_interval_is_used_once() -> None:
    match = match_blinks([(0.0, 1.0), (0.1, 1.1)], [(0.1, 1.0)])
    assert match.pairs == ((0, 0),)
    assert match.spurious == (1,)
    assert match.missed == ()
    assert match.precision == 0.5
    assert match.recall == 1.0
    assert match.f1 == pytest.approx(2 / 3)


def test_little_overlap_is_no_match() -> None:
    assert match_blinks([(0.0, 1.0)], [(0.9, 2.0)]).pairs == ()


def test_points_match_inside_and_near() -> None:
    match = match_blinks_to_points([(10, 12), (50, 55)], [4, 11, 60], tolerance=5)
    assert match.pairs == ((0, 1), (1, 2))


INTERVALS = st.lists(
    st.tuples(st.floats(0, 100), st.floats(0.01, 5)).map(lambda pair: (pair[0], sum(pair))),
    max_size=12,
)


@given(INTERVALS, INTERVALS)
def test_laws(detected: list[tuple[float, float]], true: list[tuple[float, float]]) -> None:
    match = match_blinks(detected, true)
    assert len({one for one, _ in match.pairs}) == len(match.pairs)
    assert len({other for _, other in match.pairs}) == len(match.pairs)
    assert len(match.pairs) + len(match.missed) == len(true)
    assert len(match.pairs) + len(match.spurious) == len(detected)
    assert len(match_blinks(true, true).pairs) == len(true)
