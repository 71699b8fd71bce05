"""Cursors come back as they were given out, and nothing else is taken for one."""

from hypothesis import given
from hypothesis import strategies as st

from pool_server.errors import QueryError
from pool_server.http.parameters import read_cursor, write_cursor


@given(st.integers(min_value=1, max_value=10**18 - 1))
def test_a_cursor_holds_its_row(row: int) -> None:
    assert read_cursor(write_cursor(row)) == row


@given(st.text(max_size=60))
def test_anything_else_is_refused(text: str) -> None:
    try:
        row = read_cursor(text)
    except QueryError:
        return
    assert write_cursor(row).rstrip("=") == text.rstrip("=")
