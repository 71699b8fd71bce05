"""The laws of storage on an S3 server of your own, such as Ceph's radosgw, which keeps them all.

    export POOLCTL_S3='{"endpoint_url": "http://127.0.0.1:7480", "access_key_id": "KEY",
        "secret_access_key": "SECRET", "region": "us-east-1", "process_id": 0}'
    pytest -m s3_elsewhere tests/pool_server/storage

The server must take parts of one byte (of Ceph: ``rgw multipart min part size = 1``).
"""

import itertools
import json
import os
import urllib.error
from pathlib import Path
from typing import Any

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
from tests.pool_server.swift_server import S3Server

pytestmark = [pytest.mark.s3, pytest.mark.s3_elsewhere]
SERVER = "POOLCTL_S3"
_numbers = itertools.count(1)


@pytest.fixture(scope="module")
def bucket_settings() -> dict[str, Any]:
    if SERVER not in os.environ:
        pytest.skip(f"no S3 server named by {SERVER}")
    server = S3Server(**json.loads(os.environ[SERVER]), settings={"s3_least_part_bytes": 1})
    return server.pool_settings(server.make_bucket("storage-laws"))


@pytest.fixture
def storage(bucket_settings: dict[str, Any], tmp_path: Path) -> Storage:
    prefix = f"laws-{next(_numbers)}"
    return open_storage(PoolSettings(data_folder=tmp_path, **bucket_settings, s3_prefix=prefix))


class TestS3StorageElsewhere(StorageLaws):
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


def test_an_address_changes_nothing_once_the_parts_are_joined(storage: Storage) -> None:
    handle = send_all(storage)
    checksum = checksum_of(storage, handle, PARTS[0])
    address = storage.part_address(handle, 1, len(PARTS[0]), checksum)
    publish(storage, handle)
    try:
        put_part(address.url, dict(address.headers), PARTS[0])
    except urllib.error.HTTPError as refusal:
        refusal.close()
    assert read_all(storage) == WHOLE
