"""The local folder keeps the laws of storage, and some of its own."""

import errno
import os
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from pool_server.errors import StorageFailedError, StorageFullError, UploadClosedError
from pool_server.storage import LocalStorage, Storage
from pool_server.storage.local import translate_errors
from tests.conformance.storage import (
    DIGEST,
    PARTS,
    UPLOAD,
    StorageLaws,
    begin,
    send_all,
    write_and_finish,
)
from tests.pool_server.http.test_readiness import no_room


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


def test_publishing_copies_nothing(tmp_path: Path) -> None:
    storage = LocalStorage(tmp_path)
    handle = send_all(storage)
    with storage.assembled(handle, len(PARTS), DIGEST) as path:
        inode = path.stat().st_ino
    storage.publish(handle, DIGEST)
    assert (tmp_path / "blobs" / DIGEST[:2] / DIGEST).stat().st_ino == inode


@pytest.mark.parametrize(
    "name", ["../../etc/passwd", "", "A" * 32, "0" * 31 + "/", "0" * 32 + "\n"]
)
def test_nothing_but_identifiers_and_digests_become_paths(tmp_path: Path, name: str) -> None:
    storage = LocalStorage(tmp_path)
    for act in (storage.received_parts, storage.discard, storage.has_content, storage.open_content):
        with pytest.raises(StorageFailedError):
            act(name)


def test_more_than_the_disk_has_is_refused_before_a_byte_is_sent(tmp_path: Path) -> None:
    with pytest.raises(StorageFullError, match="free"):
        LocalStorage(tmp_path).begin(UPLOAD, size_bytes=2**60, part_bytes=2**30)


def test_a_disk_without_room_for_bytes_is_not_ready(tmp_path: Path) -> None:
    storage = LocalStorage(tmp_path)
    with no_room(), pytest.raises(StorageFullError):
        storage.check()
    assert list(storage.uploads.iterdir()) == []
    storage.check()


def test_a_full_disk_is_told_from_a_broken_one() -> None:
    with pytest.raises(StorageFullError), translate_errors("write"):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
    with pytest.raises(StorageFailedError, match="cannot write"), translate_errors("write"):
        raise OSError(errno.EIO, os.strerror(errno.EIO))


def test_an_upload_given_up_while_a_part_arrives(tmp_path: Path) -> None:
    storage = LocalStorage(tmp_path)
    handle = begin(storage, content=b"abcd")
    writer = storage.open_part(handle, 1, 4)
    writer.write(b"abcd")
    storage.discard(handle)
    with pytest.raises(UploadClosedError):
        writer.finish()
    writer.discard()
    with pytest.raises(UploadClosedError):
        storage.open_part(handle, 2, 4)
