"""Which bytes a Range header means."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pool_server.http.file_response import UnsatisfiableRangeError, requested_range


@pytest.mark.parametrize(
    ("header", "expected"),
    [
        (None, None),
        ("bytes=0-0", (0, 1)),
        ("bytes=5-", (5, 10)),
        ("bytes=0-99", (0, 10)),
        ("bytes=-3", (7, 10)),
        ("bytes=0-1,3-4", None),
        ("nonsense", None),
    ],
)
def test_of_ten_bytes(header: str | None, expected: tuple[int, int] | None) -> None:
    assert requested_range(header, 10) == expected


@pytest.mark.parametrize("header", ["bytes=10-", "bytes=11-12", "bytes=-0"])
def test_there_is_no_such_byte(header: str) -> None:
    with pytest.raises(UnsatisfiableRangeError):
        requested_range(header, 10)


@given(st.text(max_size=40), st.integers(min_value=1, max_value=10**12))
def test_every_requested_range_lies_in_the_file(header: str, size: int) -> None:
    try:
        span = requested_range(f"bytes={header}", size)
    except UnsatisfiableRangeError:
        return
    assert span is None or 0 <= span[0] < span[1] <= size
