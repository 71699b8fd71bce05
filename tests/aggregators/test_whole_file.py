"""Files that are written whole or not at all."""

import resource
from pathlib import Path

import pytest

from aggregators.whole_file import write_whole


def test_where_there_is_no_room_file_and_size_are_named(tmp_path: Path) -> None:
    path = tmp_path / "merged.dat"
    path.write_bytes(b"old")
    least, most = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (100_000, most))
    try:
        with pytest.raises(
            OSError, match=r"100,000 bytes of it were written; [0-9,]+ are free"
        ) as no:
            write_whole(path, bytes(1_000_000))
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (least, most))
    assert no.value.filename == str(path)
    assert [path.name for path in tmp_path.iterdir()] == ["merged.dat"]
    assert path.read_bytes() == b"old"
