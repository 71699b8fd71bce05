"""Cursors come back as they were given out, and nothing else is taken for one."""

from datetime import UTC, datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pool_server.errors import QueryError
from pool_server.http.parameters import (
    read_cursor,
    read_moment_cursor,
    write_cursor,
    write_moment_cursor,
)


@given(st.integers(min_value=1, max_value=10**18 - 1))
def test_a_cursor_holds_its_row(row: int) -> None:
    assert read_cursor(write_cursor(row)) == row


@given(
    st.datetimes(datetime(1970, 1, 1), datetime(5000, 1, 1), timezones=st.just(UTC)),
    st.from_regex("[0-9a-f]{32}", fullmatch=True),
)
def test_a_cursor_holds_its_moment_and_key(at: datetime, key: str) -> None:
    cursor = write_moment_cursor(at, key)
    assert read_moment_cursor(cursor) == (at, key)
    with pytest.raises(QueryError):
        read_cursor(cursor)


@given(st.text(max_size=60))
def test_anything_else_is_refused(text: str) -> None:
    try:
        row = read_cursor(text)
    except QueryError:
        return
    assert write_cursor(row).rstrip("=") == text.rstrip("=")
