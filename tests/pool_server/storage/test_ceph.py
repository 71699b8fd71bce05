"""The laws of storage on Ceph's radosgw: ``pytest -m s3_ceph tests/pool_server/storage``."""

from __future__ import annotations

import itertools
import urllib.error
from collections.abc import Iterator
from pathlib import Path

import pytest

from pool_server.errors import DigestMismatchError, UploadIncompleteError
from pool_server.settings import PoolSettings
from pool_server.storage import Storage, open_storage
from tests.conformance.storage import (
    PARTS,
    WHOLE,
    StorageLaws,
    begin,
    checksum_of,
    publish,
    put_part,
    read_all,
    send_all,
    sha256,
)
from tests.pool_server.ceph_server import INSTALL, ceph_server, missing_programs
from tests.pool_server.swift_server import S3Server

pytestmark = [pytest.mark.s3, pytest.mark.s3_ceph]
_numbers = itertools.count(1)


@pytest.fixture(scope="module")
def ceph(tmp_path_factory: pytest.TempPathFactory) -> Iterator[S3Server]:
    if missing := missing_programs():
        pytest.skip(f"not installed: {', '.join(missing)}; {INSTALL}")
    with ceph_server(tmp_path_factory.mktemp("ceph") / "cluster") as server:
        server.make_bucket("storage-laws")
        yield server


@pytest.fixture
def storage(ceph: S3Server, tmp_path: Path) -> Storage:
    chosen = ceph.pool_settings("storage-laws", s3_prefix=f"laws-{next(_numbers)}")
    return open_storage(PoolSettings(data_folder=tmp_path, **chosen))


class TestS3StorageOnCeph(StorageLaws):
    """As they stand."""


def test_an_address_is_good_for_one_part_of_one_size_and_checksum(storage: Storage) -> None:
    handle = begin(storage)
    address = storage.part_address(handle, 1, len(PARTS[0]), checksum_of(storage, handle, PARTS[0]))
    for content in (b"z" * len(PARTS[0]), PARTS[0] + b"!"):
        headers = {**address.headers, "Content-Length": str(len(content))}
        with pytest.raises(urllib.error.HTTPError) as caught:
            put_part(address.url, headers, content)
        caught.value.close()
    assert storage.received_parts(handle) == {}


def test_an_only_part_of_other_bytes_becomes_no_file(storage: Storage) -> None:
    """An address bound to a SHA-256 works, with a gateway that checks it or one that does not."""
    handle, digest = begin(storage, content=b"abc"), sha256(b"abc")
    address = storage.part_address(handle, 1, 3, digest)
    refusals = []
    try:
        put_part(address.url, dict(address.headers), b"abd")
    except urllib.error.HTTPError as refusal:
        refusal.close()
        refusals.append(refusal.code)
    expected = UploadIncompleteError if refusals else DigestMismatchError
    with pytest.raises(expected), storage.assembled(handle, 1, digest):
        pass
    assert not storage.has_content(digest)


def test_an_address_is_worth_nothing_once_the_parts_are_joined(storage: Storage) -> None:
    handle = send_all(storage)
    checksum = checksum_of(storage, handle, PARTS[0])
    address = storage.part_address(handle, 1, len(PARTS[0]), checksum)
    publish(storage, handle)
    with pytest.raises(urllib.error.HTTPError) as caught:
        put_part(address.url, dict(address.headers), PARTS[0])
    with caught.value as refusal:
        assert refusal.status == 404
    assert read_all(storage) == WHOLE
