"""The local folder keeps the laws of storage, and some of its own."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from pool_server.errors import StorageFailedError, UploadClosedError
from pool_server.storage import LocalStorage, Storage
from tests.conformance.storage import StorageLaws, begin, write_and_finish


class TestLocalStorage(StorageLaws):
    @pytest.fixture
    def storage(self, tmp_path: Path) -> Storage:
        return LocalStorage(tmp_path / "storage")


def test_nothing_half_written_remains_after_recovering(tmp_path: Path) -> None:
    storage = LocalStorage(tmp_path)
    handle = begin(storage, content=b"x" * 100)
    writer = storage.open_part(handle, 1, 100)
    writer.write(b"half")
    assert list(tmp_path.rglob("*.tmp"))
    storage.recover()
    assert not list(tmp_path.rglob("*.tmp"))
    with pytest.raises(UploadClosedError):
        write_and_finish(writer, b"x" * 96)
    writer.discard()


def test_a_sweep_leaves_alone_what_another_process_is_writing(tmp_path: Path) -> None:
    storage = LocalStorage(tmp_path)
    handle = begin(storage, content=b"x" * 100)
    writer = storage.open_part(handle, 1, 100)
    writer.write(b"x" * 50)
    probe = tmp_path / "uploads" / "probe.0123456789abcdef.tmp"
    probe.touch()
    now = datetime.now(UTC)
    assert storage.sweep({handle}, now - timedelta(hours=1)) == 0
    assert len(list(tmp_path.rglob("*.tmp"))) == 2
    write_and_finish(writer, b"x" * 50)
    killed = storage.open_part(handle, 2, 100)
    assert storage.sweep({handle}, now + timedelta(hours=1)) == 0
    assert not list(tmp_path.rglob("*.tmp")), "nobody has touched them for long"
    assert storage.received_parts(handle) == {1: 100}
    killed.discard()


@pytest.mark.parametrize(
    "name", ["../../etc/passwd", "", "A" * 32, "0" * 31 + "/", "0" * 32 + "\n"]
)
def test_nothing_but_identifiers_and_digests_become_paths(tmp_path: Path, name: str) -> None:
    storage = LocalStorage(tmp_path)
    for act in (storage.received_parts, storage.discard, storage.has_content, storage.open_content):
        with pytest.raises(StorageFailedError):
            act(name)
