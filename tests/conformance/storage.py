"""What every place for model files must do; a member's tests subclass `StorageLaws`.

Subclasses give the fixture `storage`. Parts are sent through the server, so members that send
clients elsewhere replace `send`.
"""

from __future__ import annotations

import hashlib
from datetime import UTC, datetime, timedelta

import pytest

from pool_server.errors import ContentMissingError, DigestMismatchError, PartMismatchError
from pool_server.storage import PartWriter, Storage

UPLOAD = "0123456789abcdef" * 2
OTHER = "fedcba9876543210" * 2
PARTS = [b"a" * 1000, b"b" * 1000, b"c" * 10]
WHOLE = b"".join(PARTS)
DIGEST = hashlib.sha256(WHOLE).hexdigest()


def write_and_finish(writer: PartWriter, content: bytes) -> None:
    writer.write(content)
    writer.finish()


def send(storage: Storage, handle: str, number: int, content: bytes) -> None:
    writer = storage.open_part(handle, number, len(content))
    writer.write(content)
    writer.finish(hashlib.sha256(content).hexdigest())


def send_all(storage: Storage, upload_id: str = UPLOAD) -> str:
    handle = storage.begin(upload_id, len(WHOLE))
    for number, content in reversed(list(enumerate(PARTS, start=1))):
        send(storage, handle, number, content)
    return handle


def read_all(storage: Storage, digest: str = DIGEST) -> bytes:
    with storage.open_content(digest) as file:
        return file.read()


class StorageLaws:
    """The laws of `pool_server.storage.contract.Storage`."""

    def test_what_is_published_is_what_was_sent(self, storage: Storage) -> None:
        handle = send_all(storage)
        storage.assemble(handle, len(PARTS), DIGEST)
        with storage.staged_file(handle) as path:
            assert path.read_bytes() == WHOLE
        assert not storage.has_content(DIGEST)
        storage.publish(handle, DIGEST)
        assert storage.has_content(DIGEST)
        assert read_all(storage) == WHOLE

    def test_a_published_file_can_be_had_as_a_path(self, storage: Storage) -> None:
        handle = send_all(storage)
        storage.assemble(handle, len(PARTS), DIGEST)
        with pytest.raises(ContentMissingError), storage.content_file(DIGEST):
            pass
        storage.publish(handle, DIGEST)
        with storage.content_file(DIGEST) as path:
            assert path.read_bytes() == WHOLE

    def test_a_file_of_one_part(self, storage: Storage) -> None:
        handle = storage.begin(UPLOAD, 3)
        send(storage, handle, 1, b"abc")
        digest = hashlib.sha256(b"abc").hexdigest()
        storage.assemble(handle, 1, digest)
        storage.publish(handle, digest)
        storage.discard(handle)
        assert read_all(storage, digest) == b"abc"

    def test_content_is_read_from_any_position(self, storage: Storage) -> None:
        handle = send_all(storage)
        storage.assemble(handle, len(PARTS), DIGEST)
        storage.publish(handle, DIGEST)
        with storage.open_content(DIGEST) as file:
            file.seek(990)
            assert file.read(20) == WHOLE[990:1010]

    def test_a_part_is_there_only_when_it_is_finished(self, storage: Storage) -> None:
        handle = storage.begin(UPLOAD, len(WHOLE))
        writer = storage.open_part(handle, 1, 1000)
        writer.write(b"a" * 1000)
        assert storage.received_parts(handle) == {}
        writer.finish()
        assert storage.received_parts(handle) == {1: 1000}

    def test_a_discarded_part_leaves_no_trace(self, storage: Storage) -> None:
        handle = storage.begin(UPLOAD, len(WHOLE))
        writer = storage.open_part(handle, 1, 1000)
        writer.write(b"a" * 999)
        writer.discard()
        writer.discard()
        assert storage.received_parts(handle) == {}

    def test_discard_after_finish_keeps_the_part(self, storage: Storage) -> None:
        handle = storage.begin(UPLOAD, len(WHOLE))
        writer = storage.open_part(handle, 1, 2)
        writer.write(b"ab")
        writer.finish()
        writer.discard()
        assert storage.received_parts(handle) == {1: 2}

    @pytest.mark.parametrize("content", [b"a" * 9, b"a" * 11])
    def test_a_part_of_another_size_is_refused(self, storage: Storage, content: bytes) -> None:
        handle = storage.begin(UPLOAD, len(WHOLE))
        writer = storage.open_part(handle, 1, 10)
        with pytest.raises(PartMismatchError, match="10 bytes"):
            write_and_finish(writer, content)
        writer.discard()
        assert storage.received_parts(handle) == {}

    def test_a_part_with_another_digest_is_refused(self, storage: Storage) -> None:
        handle = storage.begin(UPLOAD, len(WHOLE))
        writer = storage.open_part(handle, 1, 1)
        writer.write(b"a")
        with pytest.raises(PartMismatchError, match="SHA-256"):
            writer.finish("0" * 64)
        assert storage.received_parts(handle) == {}

    def test_a_part_sent_again_replaces_the_first(self, storage: Storage) -> None:
        handle = storage.begin(UPLOAD, len(WHOLE))
        send(storage, handle, 1, b"x" * 1000)
        for number, content in enumerate(PARTS, start=1):
            send(storage, handle, number, content)
        storage.assemble(handle, len(PARTS), DIGEST)
        storage.publish(handle, DIGEST)
        assert read_all(storage) == WHOLE

    def test_another_digest_is_refused_and_nothing_published(self, storage: Storage) -> None:
        handle = send_all(storage)
        with pytest.raises(DigestMismatchError, match=DIGEST):
            storage.assemble(handle, len(PARTS), "0" * 64)
        assert not storage.has_content(DIGEST)
        assert not storage.has_content("0" * 64)
        storage.assemble(handle, len(PARTS), DIGEST)

    def test_every_step_may_be_repeated(self, storage: Storage) -> None:
        handle = send_all(storage)
        for _ in range(2):
            storage.assemble(handle, len(PARTS), DIGEST)
        for _ in range(2):
            storage.publish(handle, DIGEST)
        for _ in range(2):
            storage.discard(handle)
        assert read_all(storage) == WHOLE

    def test_two_uploads_of_one_file_do_not_disturb_each_other(self, storage: Storage) -> None:
        first, second = send_all(storage, UPLOAD), send_all(storage, OTHER)
        storage.assemble(first, len(PARTS), DIGEST)
        storage.publish(first, DIGEST)
        storage.discard(first)
        storage.assemble(second, len(PARTS), DIGEST)
        storage.publish(second, DIGEST)
        storage.discard(second)
        assert read_all(storage) == WHOLE

    def test_discarding_an_upload_keeps_what_is_published(self, storage: Storage) -> None:
        handle = send_all(storage)
        storage.assemble(handle, len(PARTS), DIGEST)
        storage.publish(handle, DIGEST)
        storage.discard(handle)
        assert storage.received_parts(handle) == {}
        assert read_all(storage) == WHOLE

    def test_missing_content_is_named(self, storage: Storage) -> None:
        with pytest.raises(ContentMissingError, match="1" * 64):
            storage.open_content("1" * 64)

    def test_a_sweep_takes_only_what_is_old_and_unknown(self, storage: Storage) -> None:
        handles = [send_all(storage, UPLOAD), send_all(storage, OTHER)]
        now = datetime.now(UTC)
        assert storage.sweep(set(), now - timedelta(hours=1)) == 0
        assert storage.sweep({handles[0]}, now + timedelta(hours=1)) == 1
        assert len(storage.received_parts(handles[0])) == len(PARTS)
        assert storage.received_parts(handles[1]) == {}

    def test_recovering_keeps_finished_parts(self, storage: Storage) -> None:
        handle = storage.begin(UPLOAD, len(WHOLE))
        send(storage, handle, 1, PARTS[0])
        interrupted = storage.open_part(handle, 2, 1000)
        interrupted.write(b"half")
        storage.recover()
        interrupted.discard()
        assert storage.received_parts(handle) == {1: 1000}

    def test_check_is_quiet_while_all_is_well(self, storage: Storage) -> None:
        storage.check()
