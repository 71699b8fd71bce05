"""Reading filters never fails in any way but one."""

from __future__ import annotations

import contextlib
from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pool_server.errors import QueryError
from pool_server.registry.filters import LabelFilter, MergeKey, MetricFilter, ModelChoice


@pytest.mark.parametrize(
    "parse", [LabelFilter.parse, MetricFilter.parse, MergeKey.parse, ModelChoice.parse]
)
@given(text=st.text(max_size=80))
def test_any_text_is_read_or_refused(parse: Callable[[str], object], text: str) -> None:
    with contextlib.suppress(QueryError):
        parse(text)


@given(
    st.from_regex(r"[a-z][a-z0-9_.-]{0,20}", fullmatch=True),
    st.sampled_from(["<", "<=", ">", ">=", "="]),
    st.floats(allow_nan=False, allow_infinity=False),
)
def test_metric_filters_come_back(name: str, relation: str, bound: float) -> None:
    found = MetricFilter.parse(f"{name}{relation}{bound!r}")
    assert (found.name, found.relation, found.bound) == (name, relation, bound)


def test_values_may_have_anything_after_the_first_equals_sign() -> None:
    assert LabelFilter.parse("a=b=c, d") == LabelFilter("a", "b=c, d")
    assert MergeKey.parse("m:k:1") == MergeKey("m", "k:1")
