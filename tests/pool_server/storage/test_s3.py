"""A bucket keeps the laws of storage, on an S3 server that checks signatures, and some more."""

import base64
import hashlib
import itertools
import os
import time
import urllib.error
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from pool_server.errors import (
    ContentMissingError,
    PartMismatchError,
    StartError,
    StorageFailedError,
    StorageFullError,
)
from pool_server.settings import PoolSettings
from pool_server.storage import Storage, open_storage
from pool_server.storage.s3 import ADDRESS_LIFETIME
from pool_server.storage.s3_objects import fetch_and_hash
from tests.conformance.storage import (
    DIGEST,
    OTHER,
    PARTS,
    UPLOAD,
    WHOLE,
    StorageLaws,
    begin,
    checksum_of,
    publish,
    put_part,
    read_all,
    send,
    send_all,
    sha256,
)
from tests.pool_server.storage.faulty_s3 import Answer, FaultyProxy
from tests.pool_server.swift_server import S3Server
from tests.site_agent.live_pool import UnreliableLine

pytestmark = pytest.mark.s3
_numbers = itertools.count(1)

OpenBucket = Callable[..., Storage]


@pytest.fixture(scope="module")
def bucket(swift: S3Server) -> str:
    return swift.make_bucket("storage-laws")


@pytest.fixture
def open_bucket(swift: S3Server, bucket: str, tmp_path: Path) -> OpenBucket:
    """Open the storage below a prefix that no other test has; settings are given by name."""
    prefix = f"laws-{next(_numbers)}"

    def opened(**fields: Any) -> Storage:
        fields = {"s3_prefix": prefix, "part_bytes": 1000, **fields}
        return open_storage(
            PoolSettings(data_folder=tmp_path, **swift.pool_settings(bucket, **fields))
        )

    return opened


@pytest.fixture
def storage(open_bucket: OpenBucket) -> Storage:
    return open_bucket()


class TestS3Storage(StorageLaws):
    """On OpenStack Swift."""


def keys(server: S3Server, bucket: str, storage: Any) -> list[str]:
    prefix = storage.places.prefix
    objects = server.client().list_objects_v2(Bucket=bucket, Prefix=prefix).get("Contents", [])
    return [item["Key"].removeprefix(prefix) for item in objects]


def refusal_of(storage: Storage, handle: str, content: bytes, **changed: Any) -> int:
    """Ask for an address for part 1, use it in another way, and return the refusal's status."""
    address = storage.part_address(handle, 1, len(PARTS[0]), checksum_of(storage, handle, PARTS[0]))
    url = changed.get("url", lambda url: url)(address.url)
    headers = {**address.headers, "Content-Length": str(len(content)), **changed.get("headers", {})}
    with pytest.raises(urllib.error.HTTPError) as caught:
        put_part(url, headers, content)
    with caught.value as refusal:
        return int(refusal.status)


def test_an_address_is_good_for_one_part_of_one_size_and_checksum(storage: Storage) -> None:
    handle = begin(storage)
    other = b"z" * len(PARTS[0])
    assert refusal_of(storage, handle, other) == 400, "other bytes"
    assert refusal_of(storage, handle, PARTS[0] + b"!") == 403, "another size"
    digest = base64.b64encode(hashlib.sha256(other).digest()).decode()
    assert refusal_of(storage, handle, other, headers={"x-amz-checksum-sha256": digest}) == 403
    assert (
        refusal_of(storage, handle, PARTS[0], url=replaced("partNumber=1", "partNumber=2")) == 403
    )
    assert refusal_of(storage, handle, PARTS[0], url=replaced(UPLOAD, OTHER)) == 403
    assert storage.received_parts(handle) == {}
    send(storage, handle, 1, PARTS[0])


def replaced(old: str, new: str) -> Callable[[str], str]:
    return lambda url: url.replace(old, new)


def test_an_address_changes_nothing_once_the_parts_are_joined(storage: Storage) -> None:
    handle = send_all(storage)
    checksum = checksum_of(storage, handle, PARTS[0])
    address = storage.part_address(handle, 1, len(PARTS[0]), checksum)
    publish(storage, handle)
    # Swift goes on taking parts: the same ones do no harm, and others it refuses.
    assert put_part(address.url, dict(address.headers), PARTS[0]) == 200
    assert read_all(storage) == WHOLE
    with pytest.raises(urllib.error.HTTPError) as caught:
        put_part(address.url, dict(address.headers), b"z" * len(PARTS[0]))
    caught.value.close()
    assert read_all(storage) == WHOLE


def test_an_address_expires(open_bucket: OpenBucket) -> None:
    storage: Any = open_bucket()
    handle = begin(storage)
    checksum = checksum_of(storage, handle, PARTS[0])
    address = storage.part_address(handle, 1, len(PARTS[0]), checksum)
    assert timedelta(0) < address.expires_at - datetime.now(UTC) <= ADDRESS_LIFETIME
    storage._lifetime = timedelta(seconds=1)
    address = storage.part_address(handle, 1, len(PARTS[0]), checksum)
    time.sleep(2.1)
    with pytest.raises(urllib.error.HTTPError) as caught:
        put_part(address.url, dict(address.headers), PARTS[0])
    with caught.value as refusal:
        assert refusal.status == 403


@pytest.mark.parametrize("checksum", [None, "", "0" * 8, "0" * 32, "x" * 64])
def test_no_address_without_the_checksum_that_is_wanted(
    storage: Storage, checksum: str | None
) -> None:
    handle = begin(storage)
    assert storage.part_checksum(handle) == "sha256"
    with pytest.raises(PartMismatchError, match="sha256"):
        storage.part_address(handle, 1, 1000, checksum)


class WithoutSha256(FaultyProxy):
    """In front of a server that takes the probe with a wrong SHA-256, as older servers do."""

    def receive(self, head: str, path: str, body: bytes) -> tuple[str, bytes] | Answer:
        if head.startswith("PUT") and "x-amz-checksum-sha256" in head.lower() and "/probe" in path:
            return Answer(200, [("ETag", '"0"')], b"")
        return path, body


def test_a_server_that_compares_no_sha256_gets_the_md5_of_each_part(
    open_bucket: OpenBucket, swift: S3Server, bucket: str
) -> None:
    proxy = WithoutSha256(swift.endpoint_url)
    storage = open_bucket(s3_endpoint_url=proxy.url, s3_public_endpoint_url=swift.endpoint_url)
    handle = begin(storage)
    assert storage.part_checksum(handle) == "md5"
    assert refusal_of(storage, handle, b"z" * len(PARTS[0])) == 400
    publish(storage, send_all_from_here(storage))
    assert read_all(storage) == WHOLE
    proxy.close()


def test_nothing_is_left_but_what_is_published(
    storage: Storage, swift: S3Server, bucket: str
) -> None:
    first, second = send_all(storage), send_all(storage, OTHER)
    given_up = begin(storage, "1" * 32)
    publish(storage, first)
    publish(storage, second)
    for handle in (first, second, given_up):
        storage.discard(handle)
    storage.sweep(set(), datetime.now(UTC) + timedelta(hours=1))
    assert keys(swift, bucket, storage) == [
        f"blobs/{UPLOAD[:2]}/{UPLOAD}",
        f"published/{DIGEST[:2]}/{DIGEST}",
        f"verified/{UPLOAD}",
    ]
    prefix = storage.places.prefix  # type: ignore[attr-defined]
    assert "Uploads" not in swift.client().list_multipart_uploads(Bucket=bucket, Prefix=prefix)


def test_a_published_file_that_was_lost_is_taken_again(
    storage: Storage, swift: S3Server, bucket: str
) -> None:
    publish(storage, send_all(storage))
    lost = f"{storage.places.prefix}blobs/{UPLOAD[:2]}/{UPLOAD}"  # type: ignore[attr-defined]
    swift.client().delete_object(Bucket=bucket, Key=lost)
    assert not storage.has_content(DIGEST)
    with pytest.raises(ContentMissingError):
        storage.open_content(DIGEST)
    with pytest.raises(ContentMissingError):
        storage.content_source(DIGEST, "model.dat")
    publish(storage, send_all(storage, OTHER))
    assert read_all(storage) == WHOLE


@pytest.mark.parametrize("name", ["../../etc/passwd", "", "A" * 64, "0" * 63 + "/"])
def test_nothing_but_identifiers_and_digests_become_keys(storage: Storage, name: str) -> None:
    for act in (storage.received_parts, storage.discard, storage.has_content, storage.open_content):
        with pytest.raises(StorageFailedError):
            act(name)
    with pytest.raises(StorageFailedError):
        storage.begin(name, size_bytes=1, part_bytes=1)


def test_files_to_look_at_go_with_the_block_or_the_process(
    storage: Storage, tmp_path: Path
) -> None:
    handle = send_all(storage)
    with storage.assembled(handle, len(PARTS), DIGEST) as path:
        # Another process, that starts meanwhile, does not take it for a leftover.
        storage.recover()
        assert path.read_bytes() == WHOLE
    assert not path.exists()
    left = path.with_name("0123.scratch")
    left.write_bytes(b"of a process that was killed")
    storage.recover()
    assert not left.exists()


def test_what_needs_more_room_than_there_is(storage: Storage) -> None:
    handle = storage.begin(UPLOAD, size_bytes=2**60, part_bytes=2**50)
    with pytest.raises(StorageFullError, match="free"):
        storage.open_part(handle, 1, 2**60)


def test_reading_goes_on_when_the_line_breaks(open_bucket: OpenBucket, swift: S3Server) -> None:
    content = os.urandom(300_000)
    storage = open_bucket()
    handle = storage.begin(UPLOAD, size_bytes=len(content), part_bytes=len(content))
    send(storage, handle, 1, content)
    with storage.assembled(handle, 1, sha256(content)):
        storage.publish(handle, sha256(content))
    with UnreliableLine(swift.endpoint_url) as line:
        far = open_bucket(s3_endpoint_url=line.url)
        for fetch in (read_whole, copy_whole):
            line.cut_after_bytes, line.cuts_left = 150_000, 2
            assert fetch(far, sha256(content)) == content
            assert line.cuts_left == 0
            line.cut_after_bytes, line.cuts_left = 10_000, 1000
            with pytest.raises(StorageFailedError):
                fetch(far, sha256(content))
            line.cuts_left = 0


def read_whole(storage: Storage, digest: str) -> bytes:
    with storage.open_content(digest) as file:
        return file.read()


def copy_whole(storage: Storage, digest: str) -> bytes:
    with storage.content_file(digest) as path:
        return path.read_bytes()


def test_errors_are_told_once_and_without_secrets(open_bucket: OpenBucket, swift: S3Server) -> None:
    unreachable = open_bucket(s3_endpoint_url="http://127.0.0.1:9")
    strangers = open_bucket(s3_secret_access_key="wrong-secret")
    nowhere = open_bucket(s3_bucket="no-such-bucket")
    for storage in (unreachable, strangers, nowhere):
        for act in (
            storage.check,
            lambda storage=storage: begin(storage),
            lambda storage=storage: storage.has_content(DIGEST),
            lambda storage=storage: storage.sweep(set(), datetime.now(UTC)),
        ):
            with pytest.raises(StorageFailedError) as caught:
                act()
            assert "wrong-secret" not in str(caught.value)
            assert swift.secret_access_key not in str(caught.value)
    for storage, said, hint in (
        (nowhere, f"bucket 'no-such-bucket' at {swift.endpoint_url}: the S3 server ans", "Make"),
        (strangers, "answered 403: Forbidden", "s3_secret_access_key"),
    ):
        with pytest.raises(StorageFailedError) as caught:
            storage.check()
        assert said in caught.value.message
        assert hint in caught.value.hint


@pytest.mark.parametrize(
    ("fields", "named"),
    [
        ({"s3_bucket": ""}, "S3_BUCKET"),
        ({"s3_bucket": "a/b"}, "S3_BUCKET"),
        ({"s3_endpoint_url": "storage.example.org"}, "S3_ENDPOINT_URL"),
        ({"s3_public_endpoint_url": "ftp://storage"}, "S3_PUBLIC_ENDPOINT_URL"),
        ({"s3_endpoint_url": "http://me:hidden-word@storage"}, "S3_ENDPOINT_URL"),
        ({"s3_secret_access_key": ""}, "S3_SECRET_ACCESS_KEY"),
        ({"s3_access_key_id": ""}, "S3_ACCESS_KEY_ID"),
        ({"part_bytes": 1000, "s3_least_part_bytes": 1001}, "PART_BYTES"),
    ],
)
def test_settings_that_cannot_be(
    open_bucket: OpenBucket, fields: dict[str, Any], named: str
) -> None:
    with pytest.raises(StartError, match=f"POOL_SERVER_{named}") as caught:
        open_bucket(**fields)
    assert "hidden-word" not in caught.value.message


def test_sites_may_reach_the_server_under_another_address(open_bucket: OpenBucket) -> None:
    storage = open_bucket(s3_public_endpoint_url="https://storage.example.org")
    publish(storage, send_all_from_here(storage))
    url = storage.content_source(DIGEST, "Gäze.dat")
    assert url is not None
    assert url.startswith("https://storage.example.org/storage-laws-")
    assert "filename%2A%3DUTF-8%27%27G%25C3%25A4ze.dat" in url


def send_all_from_here(storage: Storage) -> str:
    handle = begin(storage)
    for number, content in enumerate(PARTS, start=1):
        writer = storage.open_part(handle, number, len(content))
        writer.write(content)
        writer.finish()
    return handle


def test_an_answer_that_is_cut_short_is_a_failure_of_the_storage(
    open_bucket: OpenBucket, monkeypatch: pytest.MonkeyPatch
) -> None:
    storage: Any = open_bucket()
    monkeypatch.setattr(storage.bucket.short_client, "create_multipart_upload", lambda **_: {})
    with pytest.raises(StorageFailedError, match=r"damaged.*UploadId"):
        storage.bucket.begin_multipart("short", "md5")


def test_a_file_of_many_pieces_is_read_in_their_order(
    storage: Any, swift: S3Server, bucket: str, tmp_path: Path
) -> None:
    content = b"".join(bytes([megabyte]) * (1 << 20) for megabyte in range(33)) + b"the end"
    key = f"{storage.places.prefix}large"
    swift.client().put_object(Bucket=bucket, Key=key, Body=content)
    with (tmp_path / "copy").open("w+b", buffering=0) as file:
        assert fetch_and_hash(storage.bucket, key, file) == hashlib.sha256(content).hexdigest()
    assert (tmp_path / "copy").read_bytes() == content


@pytest.mark.parametrize(
    ("style", "endpoint_url", "expected"),
    [
        ("virtual", "https://s3.example.org", "https://face-pool.s3.example.org/"),
        ("path", "https://s3.example.org", "https://s3.example.org/face-pool/"),
        ("virtual", "", "https://face-pool.s3.eu-central-1.amazonaws.com/"),
        ("auto", "", "https://face-pool.s3.eu-central-1.amazonaws.com/"),
        ("path", "", "https://s3.eu-central-1.amazonaws.com/face-pool/"),
        # An address of numbers has no names below it.
        ("auto", "http://127.0.0.1:9000", "http://127.0.0.1:9000/face-pool/"),
        ("virtual", "http://127.0.0.1:9000", "http://127.0.0.1:9000/face-pool/"),
    ],
)
def test_forms_of_addresses(style: str, endpoint_url: str, expected: str, tmp_path: Path) -> None:
    storage: Any = open_storage(
        PoolSettings(
            data_folder=tmp_path,
            storage="s3",
            s3_bucket="face-pool",
            s3_region="eu-central-1",
            s3_endpoint_url=endpoint_url,
            s3_addressing_style=style,
            s3_access_key_id="key",
            s3_secret_access_key="secret",
        )
    )
    url = storage.bucket.sign_url("get_object", storage._lifetime, "blobs/01/0123")
    assert url.startswith(f"{expected}blobs/01/0123?")
