"""Several server processes on PostgreSQL and a bucket, one of them killed in the middle.

The bytes of clients go straight to the bucket; the servers hand out addresses, and read a file
from there when it is checked.
"""

import signal
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import dataclass, replace
from pathlib import Path

import pytest

from pool_server.operations.maintenance import check_pool, open_pool_offline
from tests.pool_server.model_files import network_bytes, sha256
from tests.pool_server.pool_driver import (
    PoolDriver,
    announce,
    complete,
    error_of,
    open_client,
    pool_of_processes,
    send_parts,
    upload,
)
from tests.pool_server.postgres_server import PostgresServer
from tests.pool_server.swift_server import S3Server
from tests.pool_server.test_several_processes import (
    ENTRIES,
    MOST_LOST_BYTES,
    PART_BYTES,
    UP_BYTES_PER_S,
    client_of,
    model_file,
    names_in,
)
from tests.pool_server.transfers.test_kills import complete_until_killed
from tests.site_agent.live_pool import UnreliableLine
from tests.waiting import wait_until

pytestmark = [pytest.mark.postgres, pytest.mark.s3, pytest.mark.slow]


@dataclass(frozen=True)
class BucketPool:
    """Two processes, the first to be killed, and the lines of clients and servers to a bucket."""

    driver: PoolDriver
    straight: UnreliableLine
    servers_line: UnreliableLine
    swift: S3Server
    bucket: str
    numbers: tuple[int, int] = (0, 1)

    @property
    def url(self) -> str:
        return self._url(0)

    @property
    def other_url(self) -> str:
        return self._url(1)

    def _url(self, which: int) -> str:
        return (self.driver.url, *self.driver.others)[self.numbers[which]]

    def kill_first(self) -> None:
        self.driver.processes[self.numbers[0]].send_signal(signal.SIGKILL)

    def keys(self, prefix: str) -> list[str]:
        listing = self.swift.client().list_objects_v2(Bucket=self.bucket, Prefix=prefix)
        return [item["Key"] for item in listing.get("Contents", [])]

    def require_whole(self) -> None:
        """Check that the bucket holds published files alone, all of them undamaged."""
        with open_pool_offline(self.driver.settings) as opened:
            assert check_pool(opened).problems == ()
        assert len(self.keys("blobs/")) == len(self.keys("published/")) > 0
        assert self.keys("uploads/") == []
        assert "Uploads" not in self.swift.client().list_multipart_uploads(Bucket=self.bucket)


@pytest.fixture(scope="module")
def processes(
    postgres: PostgresServer, swift: S3Server, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[BucketPool]:
    """A pool of three processes: enough for two to be killed."""
    folder, bucket = tmp_path_factory.mktemp("processes"), swift.make_bucket("killed-processes")
    with ExitStack() as stack:
        straight = stack.enter_context(UnreliableLine(swift.endpoint_url))
        servers_line = stack.enter_context(UnreliableLine(swift.endpoint_url))
        fields = swift.pool_settings(
            bucket,
            s3_endpoint_url=servers_line.url,
            s3_public_endpoint_url=straight.url,
            part_bytes=PART_BYTES,
            lease_s=6,
        )
        url = postgres.make_pool_database()
        driver = stack.enter_context(pool_of_processes(folder, url, count=3, **fields))
        for site in ("middle", "check"):
            driver.secret(site, "contributor")
        yield BucketPool(driver, straight, servers_line, swift, bucket)


@pytest.fixture
def pool(processes: BucketPool) -> BucketPool:
    running = processes.driver.processes
    first, second, *_ = [number for number, process in enumerate(running) if process.poll() is None]
    return replace(processes, numbers=(first, second))


def test_one_is_killed_in_the_middle_of_an_upload_and_of_a_download(
    pool: BucketPool, tmp_path: Path
) -> None:
    driver, straight = pool.driver, pool.straight
    file, content = model_file(tmp_path), network_bytes(ENTRIES)
    with ExitStack() as stack:
        enter = stack.enter_context
        line = enter(UnreliableLine(pool.url))
        sender, receiver = (
            enter(client_of(driver, line.url, "middle", tmp_path / name)) for name in ("one", "two")
        )
        threads = enter(ThreadPoolExecutor(2))
        other = enter(open_client(pool.other_url, driver.secret("middle", "contributor")))
        upload(other, "middle/there", content)
        published = pool.keys("published/")
        straight.bytes_per_s = UP_BYTES_PER_S
        sent_before, received_before = straight.sent_bytes, straight.received_bytes
        sending = threads.submit(sender.upload, file, "middle/large")
        receiving = threads.submit(receiver.download, "middle/there")
        wait_until(
            lambda: (
                min(straight.sent_bytes - sent_before, straight.received_bytes - received_before)
                > 2 * PART_BYTES
            )
        )
        assert not sending.done()
        assert not receiving.done()
        assert names_in(other, "middle") == ["there"], "nothing half is listed"
        assert other.get("/api/v1/models/middle/large/versions/1").status_code == 404
        assert pool.keys("published/") == published
        pool.kill_first()
        line.turn_to(pool.other_url)
        # Both have to ask for new addresses, and only the other process is left to ask.
        straight.break_connections()
        straight.bytes_per_s = None
        sent, received = sending.result(540), receiving.result(120)
    assert file.stat().st_size <= sent.sent_bytes <= file.stat().st_size + MOST_LOST_BYTES
    assert received.path.read_bytes() == content
    assert received.received_bytes == len(content), "no byte came twice"
    assert line.sent_bytes < PART_BYTES, "not through the pool"
    with client_of(driver, pool.other_url, "middle", tmp_path / "three") as client:
        assert client.download("middle/large").path.read_bytes() == file.read_bytes()
    pool.require_whole()


def test_one_is_killed_while_it_reads_a_file_from_the_bucket(pool: BucketPool) -> None:
    driver, content = pool.driver, network_bytes(ENTRIES)
    secret = driver.secret("check", "contributor")
    with open_client(pool.url, secret) as one, open_client(pool.other_url, secret) as other:
        published = pool.keys("published/")
        opened = announce(one, "check/gaze", content).json()
        send_parts(one, opened, content)
        read_before = pool.servers_line.received_bytes
        pool.servers_line.bytes_per_s = 300_000
        completing = threading.Thread(target=complete_until_killed, args=(one, opened))
        completing.start()
        wait_until(lambda: pool.servers_line.received_bytes - read_before > len(content) // 4)
        assert pool.servers_line.received_bytes - read_before < len(content)
        pool.kill_first()
        completing.join()
        pool.servers_line.bytes_per_s = None
        assert error_of(complete(other, opened)) == (409, "upload_busy")
        assert names_in(other, "check") == []
        assert pool.keys("published/") == published
        wait_until(lambda: complete(other, opened).status_code == 201)
        got = other.get("/api/v1/models/check/gaze/versions/1/content")
        assert sha256(got.content) == sha256(content)
        assert names_in(other, "check") == ["gaze"]
    pool.require_whole()
