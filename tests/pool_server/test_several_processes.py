"""Several server processes of one pool: at work together, and killed in the middle of it.

Here they share a folder and carry every byte themselves; in `test_processes_and_bucket` the bytes
go to a bucket.
"""

import os
import signal
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import httpx
import pytest

from pool_server.operations.maintenance import check_pool, open_pool_offline
from site_agent.errors import PoolClientError
from site_agent.pool.cache import ModelCache
from site_agent.pool.client import PoolClient
from tests.pool_server.conftest import OpenPool
from tests.pool_server.model_files import network_bytes, sha256
from tests.pool_server.pool_driver import (
    PoolDriver,
    announce,
    at_once,
    complete,
    error_of,
    open_client,
    pool_of_processes,
    send_parts,
    upload,
)
from tests.pool_server.postgres_server import PostgresServer, postgres_server
from tests.pool_server.server_process import ServerProcess, child_of
from tests.pool_server.transfers.test_kills import complete_until_killed
from tests.site_agent.live_pool import UnreliableLine
from tests.waiting import wait_until

pytestmark = [pytest.mark.postgres, pytest.mark.both_shapes]

PART_BYTES = 256 * 1024
ENTRIES = 1_000_000  # 4 MB, sixteen parts
# Of one connection; a client that uploads has three. All of it would take some ten seconds.
UP_BYTES_PER_S, DOWN_BYTES_PER_S = 150_000, 400_000
# Three workers of a client lose at most the part that each was sending.
MOST_LOST_BYTES = 3 * PART_BYTES


@dataclass(frozen=True)
class Pair:
    """Two processes of a pool; the first may be killed."""

    pool: PoolDriver
    url: str
    other_url: str
    process: ServerProcess

    def clients(self, site: str) -> tuple[httpx.Client, httpx.Client]:
        """Return clients of a site at the one process and at the other."""
        secret = self.pool.secret(site, "contributor")
        enter = self.pool.stack.enter_context
        return enter(open_client(self.url, secret)), enter(open_client(self.other_url, secret))


@pytest.fixture(scope="module")
def processes(
    postgres: PostgresServer, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[PoolDriver]:
    """A pool of three processes that share a folder: enough for two to be killed."""
    url, folder = postgres.make_pool_database(), tmp_path_factory.mktemp("processes")
    settings = {"part_bytes": PART_BYTES, "lease_s": 6}
    with pool_of_processes(folder, url, count=3, **settings) as pool:
        for site in ("both", "middle", "check"):
            pool.secret(site, "contributor")
        yield pool


@pytest.fixture
def pair(processes: PoolDriver) -> Pair:
    urls = (processes.url, *processes.others)
    living = [n for n, process in enumerate(processes.processes) if process.poll() is None]
    first, second = living[:2]
    return Pair(processes, urls[first], urls[second], processes.processes[first])


@contextmanager
def client_of(pool: PoolDriver, url: str, site: str, folder: Path) -> Iterator[PoolClient]:
    with PoolClient(url, pool.secret(site, "contributor"), cache=ModelCache(folder)) as client:
        yield client


def model_file(folder: Path) -> Path:
    path = folder / "large.safetensors"
    path.write_bytes(network_bytes(ENTRIES))
    return path


def test_uploads_through_one_process_are_downloaded_through_the_other(pair: Pair) -> None:
    content = network_bytes(ENTRIES)
    one, other = pair.clients("both")
    upload(one, "both/gaze", content)
    assert other.get("/api/v1/models/both/gaze/versions/1/content").content == content


@pytest.mark.slow
def test_one_is_killed_in_the_middle_of_an_upload_and_of_a_download(
    pair: Pair, tmp_path: Path
) -> None:
    file = model_file(tmp_path)
    content = network_bytes(ENTRIES)
    upload(pair.clients("middle")[0], "middle/there", content)
    with (
        UnreliableLine(pair.url) as up,
        UnreliableLine(pair.url) as down,
        client_of(pair.pool, up.url, "middle", tmp_path / "one") as sender,
        client_of(pair.pool, down.url, "middle", tmp_path / "two") as receiver,
        ThreadPoolExecutor(2) as threads,
    ):
        up.bytes_per_s, down.bytes_per_s = UP_BYTES_PER_S, DOWN_BYTES_PER_S
        sending = threads.submit(sender.upload, file, "middle/large")
        receiving = threads.submit(receiver.download, "middle/there")
        wait_until(lambda: min(up.sent_bytes, down.received_bytes) > 2 * PART_BYTES)
        assert not sending.done()
        assert not receiving.done()
        other = pair.clients("middle")[1]
        assert names_in(other, "middle") == ["there"], "nothing half is listed"
        assert other.get("/api/v1/models/middle/large/versions/1").status_code == 404
        pair.process.send_signal(signal.SIGKILL)
        for line in (up, down):
            line.turn_to(pair.other_url)
            line.bytes_per_s = None
        sent, received = sending.result(540), receiving.result(60)
    assert file.stat().st_size <= sent.sent_bytes <= file.stat().st_size + MOST_LOST_BYTES
    assert received.received_bytes == len(content)
    assert received.path.read_bytes() == content
    with client_of(pair.pool, pair.other_url, "middle", tmp_path / "three") as client:
        assert client.download("middle/large").path.read_bytes() == file.read_bytes()
    assert names_in(other, "middle") == ["large", "there"]
    with open_pool_offline(pair.pool.settings) as opened:
        assert check_pool(opened).problems == ()


def names_in(client: httpx.Client, site: str) -> list[str]:
    items = client.get("/api/v1/models", params={"site": site, "state": "any"}).json()["items"]
    return sorted(item["name"] for item in items)


@pytest.mark.slow
def test_one_is_killed_while_it_checks_a_file(pair: Pair) -> None:
    content = network_bytes(ENTRIES)
    one, other = pair.clients("check")
    upload(one, "check/before", network_bytes())
    opened = announce(one, "check/gaze", content).json()
    send_parts(one, opened, content)
    # The check does not end before the process does.
    helper = child_of(pair.process.pid, "pool_server.jobs.limited")
    os.kill(helper, signal.SIGSTOP)
    thread = threading.Thread(target=complete_until_killed, args=(one, opened))
    thread.start()
    address = f"/api/v1/uploads/{opened['upload_id']}"
    wait_until(lambda: other.get(address).json()["state"] == "checking")
    pair.process.send_signal(signal.SIGKILL)
    os.kill(helper, signal.SIGKILL)
    thread.join()
    assert error_of(complete(other, opened)) == (409, "upload_busy")
    assert names_in(other, "check") == ["before"]
    wait_until(lambda: complete(other, opened).status_code == 201)
    assert other.get("/api/v1/models/check/gaze/versions/1/content").content == content
    assert names_in(other, "check") == ["before", "gaze"]


@pytest.mark.slow
def test_the_database_is_killed_in_the_middle_of_an_upload(tmp_path: Path) -> None:
    file = model_file(tmp_path)
    folder = tmp_path / "pool"
    folder.mkdir()
    with (
        postgres_server() as server,
        pool_of_processes(
            folder, server.make_pool_database(), count=1, part_bytes=PART_BYTES
        ) as pool,
        UnreliableLine(pool.url) as line,
        client_of(pool, line.url, "lab", tmp_path / "cache") as sender,
        ThreadPoolExecutor(1) as threads,
    ):
        anyone = pool.client(None)
        line.bytes_per_s = UP_BYTES_PER_S
        sending = threads.submit(sender.upload, file, "lab/large")
        wait_until(lambda: line.sent_bytes > 2 * PART_BYTES)
        server.kill()
        assert error_of(anyone.get("/readyz")) == (503, "database_unavailable")
        refused = pool.admin.get("/api/v1/models")
        assert error_of(refused) == (503, "database_unavailable")
        assert refused.headers["retry-after"] == "2"
        assert anyone.get("/healthz").status_code == 200
        assert not sending.done()
        server.start()
        line.bytes_per_s = None
        assert anyone.get("/readyz").status_code == 200
        sent_bytes = finish_upload(sending.result, sender, file)
        assert sent_bytes <= file.stat().st_size + MOST_LOST_BYTES
        [version] = pool.admin.get("/api/v1/models").json()["items"]
        assert version["digest"] == sha256(file.read_bytes())
        got = pool.admin.get("/api/v1/models/lab/large/versions/1/content")
        assert got.content == file.read_bytes()
        log = (folder / "log-0").read_text()
        assert server.password not in log
        assert '"status": 500' not in log


def finish_upload(result: Callable[[float], Any], sender: PoolClient, file: Path) -> int:
    """Return the bytes sent by an upload, which is run again if it gave up."""
    try:
        return int(result(60).sent_bytes)
    except PoolClientError:
        return int(sender.upload(file, "lab/large").sent_bytes)


def ask_at_once(*acts: Callable[[], httpx.Response]) -> list[tuple[int, str]]:
    """Do things at the same moment; gives status and code of each answer."""
    return sorted(
        (answer.status_code, "") if answer.is_success else error_of(answer)
        for answer in at_once(*acts)
    )


def test_second_requests_are_told_that_the_first_won(pool: PoolDriver) -> None:
    """Also when both come at once, to either process."""
    for number in range(2):
        site = {"name": f"race-{number}"}
        made = ask_at_once(*[lambda site=site: pool.admin.post("/api/v1/sites", json=site)] * 4)
        assert made == [(201, "")] + [(409, "site_exists")] * 3
        token = {"site": site["name"], "name": "laptop", "role": "viewer"}
        made = ask_at_once(*[lambda token=token: pool.admin.post("/api/v1/tokens", json=token)] * 4)
        assert made == [(201, "")] + [(409, "token_exists")] * 3


def test_two_admins_cannot_revoke_one_another(open_pool: OpenPool, tmp_path: Path) -> None:
    with open_pool(tmp_path) as pool:
        [first] = pool.admin.get("/api/v1/tokens").json()["items"]
        one, one_id = pool.admin, first["token_id"]
        for number in range(2):
            fields = {"site": "admin", "name": f"admin-{number}", "role": "admin"}
            made = one.post("/api/v1/tokens", json={**fields, "pool_wide": True}).json()
            other, other_id = pool.client(made["secret"]), made["token_id"]
            answers = ask_at_once(
                partial(one.delete, f"/api/v1/tokens/{other_id}"),
                partial(other.delete, f"/api/v1/tokens/{one_id}"),
            )
            # The second caller had lost the token, or the right to remove the last one.
            assert answers[0] == (204, "")
            assert answers[1] in {(401, "not_authenticated"), (409, "last_admin")}
            if other.get("/api/v1/whoami").is_success:
                one, one_id = other, other_id
            assert one.get("/api/v1/whoami").json()["role"] == "admin"
