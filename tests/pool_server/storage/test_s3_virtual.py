"""Buckets that are part of the host's name, on an S3 server that checks signatures.

Every name below ``localhost`` means this machine (RFC 6761), but not every resolver knows that;
`_resolver` sees to it in this process, for the server's part and for the client's.
"""

import itertools
import socket
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest

from pool_server.settings import PoolSettings
from pool_server.storage import Storage, open_storage
from site_agent import ModelCache, PoolClient
from tests.conformance.storage import (
    DIGEST,
    PARTS,
    StorageLaws,
    begin,
    checksum_of,
    publish,
    send_all,
)
from tests.pool_server.model_files import network_bytes
from tests.pool_server.pool_driver import pool_in_thread
from tests.pool_server.swift_server import DOMAIN, S3Server

pytestmark = pytest.mark.s3
BUCKET = "virtual-laws"
_numbers = itertools.count(1)


@pytest.fixture(autouse=True)
def _resolver(monkeypatch: pytest.MonkeyPatch) -> None:
    resolve = socket.getaddrinfo

    def resolve_local(host: Any, *arguments: Any, **named: Any) -> Any:
        is_local = isinstance(host, str) and f".{host}".endswith(f".{DOMAIN}")
        return resolve("127.0.0.1" if is_local else host, *arguments, **named)

    monkeypatch.setattr(socket, "getaddrinfo", resolve_local)


@pytest.fixture(scope="module")
def virtual(swift: S3Server) -> dict[str, Any]:
    """Settings of storage in a bucket that is reached by its own name."""
    endpoint_url = f"http://{DOMAIN}:{urlsplit(swift.endpoint_url).port}"
    return swift.pool_settings(
        swift.make_bucket(BUCKET), s3_endpoint_url=endpoint_url, s3_addressing_style="virtual"
    )


@pytest.fixture
def storage(virtual: dict[str, Any], tmp_path: Path) -> Storage:
    prefix = f"laws-{next(_numbers)}"
    return open_storage(PoolSettings(data_folder=tmp_path, **virtual, s3_prefix=prefix))


@pytest.mark.slow
class TestVirtualS3Storage(StorageLaws):
    """As they stand."""


def test_addresses_for_clients_name_the_bucket_in_the_host(storage: Storage) -> None:
    publish(storage, send_all(storage))
    handle = begin(storage, "1" * 32)
    part = storage.part_address(handle, 1, len(PARTS[0]), checksum_of(storage, handle, PARTS[0]))
    content = storage.content_source(DIGEST, "face.dat")
    assert isinstance(content, str)
    for url in (part.url, content):
        parts = urlsplit(url)
        assert parts.hostname is not None
        assert parts.hostname.startswith(BUCKET)
        assert parts.hostname.endswith(f".{DOMAIN}")
        assert parts.path.startswith("/laws-")


def test_a_client_sends_and_fetches_a_file(virtual: dict[str, Any], tmp_path: Path) -> None:
    file = tmp_path / "face.safetensors"
    file.write_bytes(network_bytes(50_000))
    with (
        pool_in_thread(tmp_path / "pool", **virtual, s3_prefix="a-pool") as pool,
        PoolClient(pool.url, pool.admin_secret, cache=ModelCache(tmp_path / "cache")) as client,
    ):
        assert client.upload(file, "admin/face").sent_bytes == file.stat().st_size
        received = client.download("admin/face")
    assert received.received_bytes == file.stat().st_size
    assert received.path.read_bytes() == file.read_bytes()


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
