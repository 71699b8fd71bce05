"""Laws of every storage for model files; a storage's tests subclass `StorageLaws`.

Subclasses give the fixture `storage`. Parts go where the member wants them: through the server,
or straight to the address that it gives.
"""

import hashlib
import urllib.request
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from pool_server.errors import (
    ContentMissingError,
    DigestMismatchError,
    PartMismatchError,
    UploadClosedError,
    UploadIncompleteError,
)
from pool_server.storage import PartWriter, Storage

UPLOAD = "0123456789abcdef" * 2
OTHER = "fedcba9876543210" * 2
PART_BYTES = 1000
PARTS = [b"a" * PART_BYTES, b"b" * PART_BYTES, b"c" * 10]
WHOLE = b"".join(PARTS)
DIGEST = hashlib.sha256(WHOLE).hexdigest()


def sha256(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()


def begin(storage: Storage, upload_id: str = UPLOAD, content: bytes = WHOLE) -> str:
    return storage.begin(upload_id, size_bytes=len(content), part_bytes=PART_BYTES)


def write_and_finish(writer: PartWriter, content: bytes) -> None:
    writer.write(content)
    writer.finish()


def write_part(storage: Storage, handle: str, number: int, content: bytes) -> None:
    """Put a part there through the server."""
    writer = storage.open_part(handle, number, len(content))
    writer.write(content)
    writer.finish(sha256(content))


def checksum_of(storage: Storage, handle: str, content: bytes) -> str | None:
    algorithm = storage.part_checksum(handle)
    known = {"md5": hashlib.md5(content).hexdigest(), "sha256": sha256(content)}
    return None if algorithm is None else known[algorithm]


def put_part(url: str, headers: dict[str, str], content: bytes) -> int:
    """Send a part to an address as a client does; return the status."""
    request = urllib.request.Request(url, data=content, headers=headers, method="PUT")
    with urllib.request.urlopen(request, timeout=540) as answer:
        return int(answer.status)


def send(storage: Storage, handle: str, number: int, content: bytes) -> None:
    """Bring a part in as clients do."""
    if not storage.takes_parts:
        write_part(storage, handle, number, content)
        return
    checksum = checksum_of(storage, handle, content)
    address = storage.part_address(handle, number, len(content), checksum)
    assert put_part(address.url, dict(address.headers), content) == 200


def send_all(storage: Storage, upload_id: str = UPLOAD) -> str:
    handle = begin(storage, upload_id)
    for number, content in reversed(list(enumerate(PARTS, start=1))):
        send(storage, handle, number, content)
    return handle


def publish(storage: Storage, handle: str, content: bytes = WHOLE) -> None:
    """Assemble and publish an upload."""
    part_count = -(-len(content) // PART_BYTES)
    with storage.assembled(handle, part_count, sha256(content)) as path:
        assert path.read_bytes() == content
    storage.publish(handle, sha256(content))


def read_all(storage: Storage, digest: str = DIGEST) -> bytes:
    with storage.open_content(digest) as file:
        return file.read()


class StorageLaws:
    """The laws of `pool_server.storage.contract.Storage`."""

    def test_what_is_published_is_what_was_sent(self, storage: Storage) -> None:
        handle = send_all(storage)
        with storage.assembled(handle, len(PARTS), DIGEST) as path:
            assert path.read_bytes() == WHOLE
        assert not storage.has_content(DIGEST)
        storage.publish(handle, DIGEST)
        assert storage.has_content(DIGEST)
        assert read_all(storage) == WHOLE

    def test_a_published_file_can_be_had_as_a_path(self, storage: Storage) -> None:
        handle = send_all(storage)
        with pytest.raises(ContentMissingError), storage.content_file(DIGEST):
            pass
        publish(storage, handle)
        with storage.content_file(DIGEST) as path:
            assert path.read_bytes() == WHOLE

    def test_a_file_of_one_part(self, storage: Storage) -> None:
        handle = begin(storage, content=b"abc")
        send(storage, handle, 1, b"abc")
        publish(storage, handle, b"abc")
        storage.discard(handle)
        assert read_all(storage, sha256(b"abc")) == b"abc"

    def test_a_file_that_the_server_made(self, storage: Storage, tmp_path: Path) -> None:
        made = tmp_path / "made"
        made.write_bytes(WHOLE)
        with pytest.raises(DigestMismatchError):
            storage.store(made, sha256(b"other bytes"))
        assert list(storage.published_digests()) == []
        for _ in range(2):
            storage.store(made, DIGEST)
        made.write_bytes(b"changed since")
        assert read_all(storage) == WHOLE
        assert storage.sweep(set(), datetime.now(UTC) + timedelta(hours=1)) == 0
        assert read_all(storage) == WHOLE

    def test_content_is_read_from_any_position(self, storage: Storage) -> None:
        publish(storage, send_all(storage))
        with storage.open_content(DIGEST) as file:
            assert file.read(3) == b"aaa"
            file.seek(990)
            assert file.read(20) == WHOLE[990:1010]
            assert file.tell() == 1010
            file.seek(-10, 2)
            assert file.read() == WHOLE[-10:]
            assert file.read(1) == b""

    def test_a_part_is_there_only_when_it_is_finished(self, storage: Storage) -> None:
        handle = begin(storage)
        writer = storage.open_part(handle, 1, 1000)
        writer.write(b"a" * 1000)
        assert storage.received_parts(handle) == {}
        writer.finish()
        assert storage.received_parts(handle) == {1: 1000}

    def test_a_discarded_part_leaves_no_trace(self, storage: Storage) -> None:
        handle = begin(storage)
        writer = storage.open_part(handle, 1, 1000)
        writer.write(b"a" * 999)
        writer.discard()
        writer.discard()
        assert storage.received_parts(handle) == {}

    def test_discard_after_finish_keeps_the_part(self, storage: Storage) -> None:
        handle = begin(storage)
        writer = storage.open_part(handle, 1, 2)
        writer.write(b"ab")
        writer.finish()
        writer.discard()
        assert storage.received_parts(handle) == {1: 2}

    @pytest.mark.parametrize("content", [b"a" * 9, b"a" * 11])
    def test_a_part_of_another_size_is_refused(self, storage: Storage, content: bytes) -> None:
        handle = begin(storage)
        writer = storage.open_part(handle, 1, 10)
        with pytest.raises(PartMismatchError, match="10 bytes"):
            write_and_finish(writer, content)
        writer.discard()
        assert storage.received_parts(handle) == {}

    def test_a_part_with_another_digest_is_refused(self, storage: Storage) -> None:
        handle = begin(storage)
        writer = storage.open_part(handle, 1, 1)
        writer.write(b"a")
        with pytest.raises(PartMismatchError, match="SHA-256"):
            writer.finish("0" * 64)
        assert storage.received_parts(handle) == {}

    def test_a_part_sent_again_replaces_the_first(self, storage: Storage) -> None:
        handle = begin(storage)
        send(storage, handle, 1, b"x" * 1000)
        for number, content in enumerate(PARTS, start=1):
            send(storage, handle, number, content)
        publish(storage, handle)
        assert read_all(storage) == WHOLE

    def test_a_missing_part_is_named(self, storage: Storage) -> None:
        handle = begin(storage)
        send(storage, handle, 1, PARTS[0])
        send(storage, handle, 3, PARTS[2])
        with (
            pytest.raises(UploadIncompleteError, match="2"),
            storage.assembled(handle, len(PARTS), DIGEST),
        ):
            pass
        send(storage, handle, 2, PARTS[1])
        publish(storage, handle)

    def test_another_digest_is_refused_and_nothing_published(self, storage: Storage) -> None:
        other = "0" * 64
        handle = send_all(storage)
        with (
            pytest.raises(DigestMismatchError, match=DIGEST),
            storage.assembled(handle, len(PARTS), other),
        ):
            pass
        storage.discard(handle)
        assert not storage.has_content(DIGEST)
        assert not storage.has_content(other)

    def test_wrong_bytes_never_replace_a_published_file(self, storage: Storage) -> None:
        first, second = send_all(storage), begin(storage, OTHER)
        for number, content in enumerate(PARTS, start=1):
            send(storage, second, number, b"x" * len(content))
        publish(storage, first)
        with pytest.raises(DigestMismatchError), storage.assembled(second, len(PARTS), DIGEST):
            pass
        assert read_all(storage) == WHOLE
        storage.discard(second)
        assert read_all(storage) == WHOLE

    def test_every_step_may_be_repeated(self, storage: Storage) -> None:
        handle = send_all(storage)
        for _ in range(2):
            assert len(storage.received_parts(handle)) == len(PARTS)
            with storage.assembled(handle, len(PARTS), DIGEST) as path:
                assert path.read_bytes() == WHOLE
        for _ in range(2):
            storage.publish(handle, DIGEST)
        for _ in range(2):
            storage.discard(handle)
        assert read_all(storage) == WHOLE

    def test_two_uploads_of_one_file_do_not_disturb_each_other(self, storage: Storage) -> None:
        first, second = send_all(storage, UPLOAD), send_all(storage, OTHER)
        publish(storage, first)
        storage.discard(first)
        publish(storage, second)
        storage.discard(second)
        assert read_all(storage) == WHOLE
        storage.sweep(set(), datetime.now(UTC) + timedelta(hours=1))
        assert read_all(storage) == WHOLE

    def test_a_discarded_upload_is_over(self, storage: Storage) -> None:
        handle = send_all(storage)
        storage.discard(handle)
        with pytest.raises(UploadClosedError):
            storage.received_parts(handle)
        with pytest.raises(UploadClosedError):
            write_part(storage, handle, 1, PARTS[0])

    def test_missing_content_is_named(self, storage: Storage) -> None:
        for act in (storage.open_content, storage.content_file):
            with pytest.raises(ContentMissingError, match="1" * 64), act("1" * 64):
                pass

    def test_published_files_are_listed_and_can_be_removed(self, storage: Storage) -> None:
        handle = begin(storage, OTHER, b"abc")
        send(storage, handle, 1, b"abc")
        publish(storage, handle, b"abc")
        publish(storage, send_all(storage))
        assert list(storage.published_digests()) == sorted([DIGEST, sha256(b"abc")])
        for _ in range(2):
            storage.remove_content(sha256(b"abc"))
        assert list(storage.published_digests()) == [DIGEST]
        assert not storage.has_content(sha256(b"abc"))

    def test_a_sweep_takes_only_what_is_old_and_unknown(self, storage: Storage) -> None:
        handles = [send_all(storage, UPLOAD), send_all(storage, OTHER)]
        now = datetime.now(UTC)
        assert storage.sweep(set(), now - timedelta(hours=1)) == 0
        assert storage.sweep({handles[0]}, now + timedelta(hours=1)) == 1
        assert len(storage.received_parts(handles[0])) == len(PARTS)
        with pytest.raises(UploadClosedError):
            storage.received_parts(handles[1])

    def test_recovering_keeps_finished_parts(self, storage: Storage) -> None:
        handle = begin(storage)
        send(storage, handle, 1, PARTS[0])
        interrupted = storage.open_part(handle, 2, 1000)
        interrupted.write(b"half")
        storage.recover()
        interrupted.discard()
        assert storage.received_parts(handle) == {1: 1000}

    def test_check_is_quiet_while_all_is_well(self, storage: Storage) -> None:
        storage.check()
        storage.check()
