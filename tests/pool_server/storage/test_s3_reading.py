"""How a large object is read back."""

from __future__ import annotations

import pytest

from pool_server.settings import MIB
from pool_server.storage.s3_objects import cut_ranges


@pytest.mark.parametrize("part_bytes", [1000, 16 * MIB, 48 * MIB, 64 * MIB])
@pytest.mark.parametrize("size_bytes", [0, 1, MIB, MIB + 1, 20 * MIB, 1_000_000_000])
def test_the_ranges_are_the_whole_object_and_no_large_one_begins_with_a_part(
    size_bytes: int, part_bytes: int
) -> None:
    ranges = cut_ranges(size_bytes, part_bytes)
    assert [start for start, _ in ranges] == [0, *(end for _, end in ranges[:-1])]
    assert ranges[-1][1] == size_bytes
    if part_bytes > 8 * MIB:
        assert all(start % part_bytes == MIB for start, _ in ranges[1:])
        assert all(end - start <= part_bytes for start, end in ranges)
