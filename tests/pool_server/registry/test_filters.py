"""Filters, cursors and addresses are read as they were written, or refused."""

import contextlib
from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pool_server.errors import QueryError
from pool_server.registry.query import (
    MergeKey,
    Order,
    Position,
    Range,
    read_address,
    read_label,
    read_merge_key,
    read_metric,
)
from pool_server.wire.names import ModelAddress


@pytest.mark.parametrize(
    "parse",
    [read_label, read_metric, read_merge_key, read_address, Order.parse]
    + [Order.parse(word).read_cursor for word in ("-created", "name", "metric.a")],
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
    assert read_metric(f"{name}{relation}{bound!r}") == Range("metrics", name, relation, bound)


def test_values_may_contain_anything_after_the_first_equals_sign() -> None:
    assert read_label("a=b=c, d") == "a=b=c, d"
    assert read_label("a=b>5") == "a=b>5"
    assert read_label("a>=5") == Range("labels", "a", ">=", 5.0)
    assert read_merge_key("m:k:1") == MergeKey("m", "k:1")


@given(st.floats(allow_nan=False, allow_infinity=False), st.integers(1, 2**53))
def test_cursors_by_metric_come_back(value: float, version_id: int) -> None:
    order, position = Order.parse("-metric.mean_error"), Position(value, version_id)
    assert order.read_cursor(order.write_cursor(position)) == position


@pytest.mark.parametrize("reference", ["", "@2", "@latest", f"@sha256:{'0' * 64}"])
def test_an_address_ends_where_it_ends(reference: str) -> None:
    address = f"pool://site-a/face-68{reference}"
    assert str(ModelAddress.parse(address)) == address
    with pytest.raises(ValueError, match="is not a model address"):
        ModelAddress.parse(f"{address}\n")
