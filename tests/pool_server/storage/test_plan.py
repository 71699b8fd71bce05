"""Cutting files into parts."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pool_server.errors import PartMismatchError
from pool_server.storage.contract import PartPlan


@given(st.integers(1, 10**9), st.integers(1, 10**7), st.integers(1, 1000))
def test_the_parts_cover_the_file_exactly_once(size: int, part: int, most: int) -> None:
    plan = PartPlan.choose(size, part, most)
    assert 1 <= plan.count <= most
    end = 0
    for number in range(1, plan.count + 1):
        assert plan.offset_of(number) == end
        assert plan.size_of(number) >= 1
        end += plan.size_of(number)
    assert end == size


@pytest.mark.parametrize(
    ("size", "count", "part"),
    [(1, 1, 100), (1600, 16, 100), (1601, 9, 200), (6400, 16, 400), (64_000, 160, 400)],
)
def test_parts_grow_with_the_file_up_to_a_point(size: int, count: int, part: int) -> None:
    plan = PartPlan.choose(size, 100, 1000)
    assert (plan.count, plan.part_bytes) == (count, part)


@pytest.mark.parametrize("number", [0, -1, 4, 10**9])
def test_there_is_no_such_part(number: int) -> None:
    with pytest.raises(PartMismatchError, match="parts 1 to 3"):
        PartPlan(10, 4).size_of(number)
