"""The pool from Python, where its storage takes and gives the bytes itself."""

import hashlib
import threading
from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass, field, replace
from pathlib import Path

import pytest

from site_agent import PoolClient
from site_agent.errors import DigestMismatchError, PoolRefusedRequestError, PoolUnreachableError
from site_agent.pool.cache import ModelCache
from tests.pool_server.model_files import network_bytes
from tests.pool_server.pool_driver import PoolDriver, pool_in_thread
from tests.pool_server.storage.faulty_s3 import Answer, Fault, FaultyProxy, error_answer
from tests.pool_server.swift_server import S3Server
from tests.shared_servers import shared_swift
from tests.site_agent.live_pool import UnreliableLine

pytestmark = pytest.mark.s3
ENTRIES = 375_000  # 1.5 MB, in 6 parts
PART_BYTES = 256 * 1024


@dataclass
class StorageRelay(FaultyProxy):
    """Passes requests on to an S3 server, but the first of them, as a test wants it.

    Attributes
    ----------
    refusals : list of int
        Statuses for the next requests, which go no further.
    damages : int
        In how many requests and answers to come a byte is changed on the way.
    heads : list of str
        Heads of the requests, without their bytes.
    """

    refusals: list[int] = field(default_factory=list)
    damages: int = 0
    heads: list[str] = field(default_factory=list)
    lock: threading.Lock = field(default_factory=threading.Lock)

    def receive(self, head: str, path: str, body: bytes) -> tuple[str, bytes] | Answer:
        with self.lock:
            self.heads.append(head)
            refusal = self.refusals.pop(0) if self.refusals else None
        if refusal is not None:
            return error_answer(refusal, "Refused")
        return path, self.damaged(body)

    def fault_of(self, method: str, _path: str) -> Fault | None:
        return self.damage_content if method == "GET" else None

    def damage_content(self, answer: Answer) -> Answer:
        return replace(answer, body=self.damaged(answer.body)) if answer.status < 300 else answer

    def damaged(self, content: bytes) -> bytes:
        with self.lock:
            if not content or self.damages == 0:
                return content
            self.damages -= 1
        return bytes([content[0] ^ 1]) + content[1:]


@dataclass
class FarPool:
    """A pool at the end of one line, and its storage at the end of another."""

    driver: PoolDriver
    line: UnreliableLine
    storage_line: UnreliableLine
    relay: StorageRelay
    s3: S3Server
    bucket: str

    def client(self, cache: Path, attempts: int = 5) -> PoolClient:
        token = self.driver.admin_secret
        return PoolClient(self.line.url, token, cache=ModelCache(cache), attempts=attempts)


@pytest.fixture(scope="module")
def far_pool(tmp_path_factory: pytest.TempPathFactory) -> Iterator[FarPool]:
    s3 = shared_swift()
    with closing(StorageRelay(s3.endpoint_url)) as relay, UnreliableLine(relay.url) as storage_line:
        bucket = s3.make_bucket("pool")
        settings = s3.pool_settings(bucket, s3_public_endpoint_url=storage_line.url)
        with (
            pool_in_thread(tmp_path_factory.mktemp("pool"), **settings) as driver,
            UnreliableLine(driver.url) as line,
        ):
            yield FarPool(driver, line, storage_line, relay, s3, bucket)


@pytest.fixture
def pool(far_pool: FarPool, tmp_path: Path) -> Iterator[PoolClient]:
    with far_pool.client(tmp_path / "cache") as client:
        yield client


@pytest.fixture
def model(tmp_path: Path) -> Path:
    path = tmp_path / "model.safetensors"
    path.write_bytes(network_bytes(ENTRIES))
    return path


@pytest.fixture(scope="module")
def stored(far_pool: FarPool, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A model that the pool has as ``admin/stored``."""
    folder = tmp_path_factory.mktemp("stored")
    path = folder / "stored.safetensors"
    path.write_bytes(network_bytes(ENTRIES))
    with far_pool.client(folder / "cache") as client:
        client.upload(path, "admin/stored")
    return path


def test_bytes_go_straight_to_the_storage_and_the_token_does_not(
    far_pool: FarPool, pool: PoolClient, model: Path
) -> None:
    line, storage_line = far_pool.line, far_pool.storage_line
    size_bytes = model.stat().st_size
    before = line.sent_bytes, line.received_bytes, storage_line.sent_bytes
    upload = pool.upload(model, "admin/straight")
    received = pool.download("admin/straight")
    assert upload.sent_bytes == received.received_bytes == size_bytes
    assert received.path.read_bytes() == model.read_bytes()
    assert line.sent_bytes - before[0] < 50_000
    assert line.received_bytes - before[1] < 100_000
    assert storage_line.sent_bytes - before[2] >= size_bytes
    heads = "\n".join(far_pool.relay.heads)
    assert far_pool.driver.admin_secret not in heads
    assert "authorization" not in heads.lower()
    requests, seen = line.requests, len(far_pool.relay.heads)
    assert pool.download("admin/straight").received_bytes == 0
    assert (line.requests - requests, len(far_pool.relay.heads)) == (1, seen), "from the cache"


def test_refused_and_damaged_parts_are_sent_to_new_addresses(
    far_pool: FarPool, pool: PoolClient, model: Path
) -> None:
    far_pool.relay.refusals = [403, 500, 503]
    far_pool.relay.damages = 1
    upload = pool.upload(model, "admin/refused")
    assert (far_pool.relay.refusals, far_pool.relay.damages) == ([], 0)
    assert upload.sent_bytes > model.stat().st_size
    assert upload.version.digest == hashlib.sha256(model.read_bytes()).hexdigest()


def test_a_storage_that_goes_on_refusing_is_given_up(
    far_pool: FarPool, model: Path, tmp_path: Path
) -> None:
    with far_pool.client(tmp_path / "cache", attempts=2) as impatient:
        far_pool.relay.refusals = [403] * 100
        with pytest.raises(PoolUnreachableError, match="the pool's storage, answered 403 Refused"):
            impatient.upload(model, "admin/given-up")
        far_pool.relay.refusals = [400] * 100
        with pytest.raises(PoolRefusedRequestError, match="400 Refused"):
            impatient.upload(model, "admin/given-up")
        far_pool.relay.refusals = []


def test_an_upload_goes_on_after_the_line_breaks(
    far_pool: FarPool, pool: PoolClient, model: Path
) -> None:
    line, size_bytes = far_pool.storage_line, model.stat().st_size
    before = line.sent_bytes
    line.cut_after_bytes, line.cuts_left = size_bytes // 5, 2
    pool.upload(model, "admin/broken-upload")
    assert line.cuts_left == 0
    # With the first break no more is lost than a part of each worker, and so with the second.
    assert line.sent_bytes - before < size_bytes + 2 * 3 * PART_BYTES + 100_000


class StopError(Exception):
    """Somebody pulled the plug."""


def interrupt_upload(pool: PoolClient, model: Path, address: str) -> None:
    def stop_in_the_middle(fraction: float, _text: str) -> None:
        # Half of the parts at most are on their way; the others have arrived.
        if fraction > 0.7:
            raise StopError

    with pytest.raises(StopError):
        pool.upload(model, address, progress=stop_in_the_middle)


def test_an_interrupted_upload_goes_on_where_it_was(
    far_pool: FarPool, pool: PoolClient, model: Path, tmp_path: Path
) -> None:
    far_pool.storage_line.bytes_per_s = 2e6
    interrupt_upload(pool, model, "admin/interrupted")
    far_pool.storage_line.bytes_per_s = None
    with far_pool.client(tmp_path / "another") as another:
        upload = another.upload(model, "admin/interrupted")
    assert 0 < upload.sent_bytes < 0.8 * model.stat().st_size


def test_a_download_goes_on_after_the_line_breaks_and_the_address_expires(
    far_pool: FarPool, pool: PoolClient, stored: Path
) -> None:
    line, size_bytes = far_pool.storage_line, stored.stat().st_size
    before = line.received_bytes
    line.cut_after_bytes, line.cuts_left = size_bytes // 3, 2
    far_pool.relay.refusals = [403, 503]
    received = pool.download("admin/stored")
    assert line.cuts_left == 0
    assert far_pool.relay.refusals == []
    assert received.path.read_bytes() == stored.read_bytes()
    assert line.received_bytes - before < 1.4 * size_bytes, "nothing came twice"


def test_other_bytes_than_announced_are_never_shown(
    far_pool: FarPool, pool: PoolClient, stored: Path
) -> None:
    far_pool.relay.damages = 1
    with pytest.raises(DigestMismatchError, match=r"expected [0-9a-f]{64}; nothing was kept"):
        pool.download("admin/stored")
    assert pool.cache.entries() == []
    assert pool.download("admin/stored").path.read_bytes() == stored.read_bytes()


def test_several_ranges_arrive_in_order(
    far_pool: FarPool, pool: PoolClient, stored: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("site_agent.pool.receiving.RANGE_BYTES", 200_000)
    part = pool.cache.part_file(hashlib.sha256(stored.read_bytes()).hexdigest())
    part.write_bytes(stored.read_bytes()[:700_001])
    heads = len(far_pool.relay.heads)
    received = pool.download("admin/stored")
    assert received.received_bytes == stored.stat().st_size - 700_001
    assert received.path.read_bytes() == stored.read_bytes()
    assert len(far_pool.relay.heads) - heads == -(-received.received_bytes // 200_000)
