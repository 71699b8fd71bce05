"""Clients that stall, that are many, that ask for long work, or that a stop of the server meets."""

import asyncio
import os
import resource
import signal
import socket
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from functools import partial
from http.client import HTTPResponse
from pathlib import Path
from urllib.parse import urlsplit

import httpx
import pytest
import uvicorn
from starlette.types import Receive, Scope, Send

from pool_server.http import session
from pool_server.http.connections import Connections, raise_descriptor_limit
from tests.pool_server.model_files import network_bytes, sha256
from tests.pool_server.pool_driver import (
    announce,
    error_of,
    open_client,
    pool_in_thread,
    pool_process,
    send_parts,
    upload,
)
from tests.pool_server.server_process import child_of
from tests.waiting import wait_until

HALF_SENT = 1300
SLOW_CHECKS = 12
TIMEOUT_S = 540.0
MOST = 8
# More than the system keeps on the way from one process to the other.
ENTRIES = 4_000_000  # 16 MB
HALF_HEAD = b"GET /healthz HTTP/1.1\r\nHost: po"
HALF_BODY = b"POST /api/v1/sites HTTP/1.1\r\nHost: pool\r\nContent-Length: 100\r\n\r\n{"


def connected(url: str, sent: bytes) -> socket.socket:
    parts = urlsplit(url)
    connection = socket.create_connection((parts.hostname, parts.port), timeout=TIMEOUT_S)
    connection.sendall(sent)
    return connection


def request(method: str, path: str, secret: str | None, length: int = 0) -> bytes:
    head = [f"{method} {path} HTTP/1.1", "Host: pool", f"Authorization: Bearer {secret}"]
    return "\r\n".join([*head, f"Content-Length: {length}", "", ""]).encode()


def answer_on(connection: socket.socket) -> HTTPResponse:
    answer = HTTPResponse(connection)
    answer.begin()
    return answer


@contextmanager
def descriptor_limit(least: int) -> Iterator[None]:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if hard != resource.RLIM_INFINITY and hard < least:
        pytest.skip(f"this machine lets a process open {hard} files only")
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, least), hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


def test_half_sent_requests_and_slow_checks_keep_nobody_waiting(tmp_path: Path) -> None:
    with (
        descriptor_limit(HALF_SENT + 500),
        pool_process(tmp_path) as (server, url, secret),
        open_client(url, secret) as client,
        ExitStack() as stack,
    ):
        upload(client, "admin/first")
        helper = child_of(server.pid, "pool_server.jobs.limited")
        waiting = []
        for number in range(SLOW_CHECKS):
            content = network_bytes()
            announced = announce(client, f"admin/slow-{number}", content).json()
            send_parts(client, announced, content)
            path = f"/api/v1/uploads/{announced['upload_id']}/complete"
            waiting.append(request("POST", path, secret))
        for number in range(HALF_SENT):
            stack.enter_context(connected(url, HALF_BODY if number % 3 == 0 else HALF_HEAD))
        os.kill(helper, signal.SIGSTOP)
        try:
            checks = [stack.enter_context(connected(url, head)) for head in waiting]
            for _ in range(3):
                assert client.get("/healthz").json() == {"status": "ok"}
                assert client.get("/readyz").json() == {"status": "ok"}
                assert client.get("/api/v1/models").status_code == 200
                assert announce(client, "admin/other", network_bytes()).status_code == 201
        finally:
            os.kill(helper, signal.SIGCONT)
        for check in checks:
            with answer_on(check) as answer:
                assert answer.status == 201


def test_a_client_that_stalls_is_given_up(tmp_path: Path) -> None:
    with pool_in_thread(tmp_path, stall_timeout_s=1.0) as pool, ExitStack() as stack:
        stalled = [
            stack.enter_context(connected(pool.url, sent)) for sent in (b"", HALF_HEAD, HALF_BODY)
        ]
        for connection in stalled:
            with answer_on(connection) as answer:
                assert answer.status == 408
                assert b'"code":"request_timeout"' in answer.read()
            assert connection.recv(1) == b""


def test_requests_under_way_are_limited_for_each_address(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    traffic = session.Traffic()
    monkeypatch.setattr(session, "Traffic", lambda: traffic)
    with pool_in_thread(tmp_path) as pool, ExitStack() as stack:
        assert pool.admin.get("/api/v1/whoami").is_success
        # The server counts a request until a moment after its answer.
        wait_until(lambda: not traffic._from_address)
        for _ in range(session.MOST_FROM_ADDRESS):
            stack.enter_context(traffic.under_way("127.0.0.1"))
        refused = pool.admin.get("/api/v1/whoami")
        assert error_of(refused) == (429, "too_many_requests")
        assert refused.headers["retry-after"] == "1"
        assert pool.admin.get("/healthz").status_code == 200
        transport = httpx.HTTPTransport(local_address="127.0.0.2", verify=False)
        with open_client(pool.url, pool.admin_secret, transport) as elsewhere:
            assert elsewhere.get("/api/v1/whoami").status_code == 200


async def answer_after_body(_scope: Scope, receive: Receive, send: Send) -> None:
    await receive()
    await send({"type": "http.response.start", "status": 204, "headers": []})
    await send({"type": "http.response.body", "body": b""})


async def exchange(address: tuple[str, int], sent: bytes, source: str) -> bytes:
    reader, writer = await asyncio.open_connection(*address, local_addr=(source, 0))
    writer.write(sent)
    answer = await reader.readline()
    writer.close()
    return answer


def test_where_connections_are_too_many_the_idlest_of_the_greediest_leaves() -> None:
    async def run() -> None:
        connections = Connections(MOST, stall_s=TIMEOUT_S)
        with socket.create_server(("127.0.0.1", 0)) as listener:
            server = uvicorn.Server(
                uvicorn.Config(
                    answer_after_body, http=connections.protocol, lifespan="off", log_config=None
                )
            )
            serving = asyncio.create_task(server.serve(sockets=[listener]))
            while not server.started:
                await asyncio.sleep(0.01)
            address = listener.getsockname()
            modest, modest_writer = await asyncio.open_connection(
                *address, local_addr=("127.0.0.2", 0)
            )
            greedy = [await asyncio.open_connection(*address) for _ in range(MOST - 1)]
            for _, writer in greedy:
                writer.write(HALF_HEAD)
            whole = b"GET / HTTP/1.1\r\nHost: pool\r\n\r\n"
            for source in ("127.0.0.1", "127.0.0.3"):
                assert b"204" in await exchange(address, whole, source)
            assert await greedy[0][0].read() == b""
            modest_writer.write(whole)
            assert b"204" in await modest.readline()
            for _, writer in (*greedy, (modest, modest_writer)):
                writer.close()
            server.should_exit = True
            await serving

    asyncio.run(asyncio.wait_for(run(), TIMEOUT_S))


def test_failures_to_accept_fill_no_log(tmp_path: Path) -> None:
    log = tmp_path / "log"
    with (
        pool_process(tmp_path / "pool", log) as (server, url, secret),
        open_client(url, secret) as client,
        ExitStack() as stack,
    ):
        assert client.get("/healthz").status_code == 200
        limits = resource.prlimit(server.pid, resource.RLIMIT_NOFILE)
        open_now = len(list(Path(f"/proc/{server.pid}/fd").iterdir()))
        resource.prlimit(server.pid, resource.RLIMIT_NOFILE, (open_now, limits[1]))
        for _ in range(10):
            stack.enter_context(connected(url, HALF_HEAD))
        wait_until(lambda: "no new connections" in log.read_text())
        resource.prlimit(server.pid, resource.RLIMIT_NOFILE, limits)
        with connected(url, request("GET", "/healthz", secret)) as late, answer_on(late) as answer:
            assert answer.status == 200
        said = log.read_text()
    assert said.count("no new connections") == 1
    assert "out of system resource" not in said


def test_the_limit_of_descriptors_is_raised() -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(soft, 900), hard))
    try:
        raise_descriptor_limit()
        raised, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
        assert raised == min(hard, 65_536) or hard == resource.RLIM_INFINITY
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


def test_a_server_that_stops_finishes_open_requests(tmp_path: Path) -> None:
    content, coming = network_bytes(ENTRIES), network_bytes(ENTRIES)
    half = len(coming) // 2
    with (
        pool_process(tmp_path, POOL_SERVER_GRACEFUL_STOP_S="60") as (server, url, secret),
        open_client(url, secret) as client,
    ):
        upload(client, "admin/kept", content)
        opened = announce(client, "admin/coming", coming).json()
        put = request("PUT", f"/api/v1/uploads/{opened['upload_id']}/parts/1", secret, len(coming))
        get = request("GET", "/api/v1/models/admin/kept/versions/1/content", secret)
        with (
            connected(url, put + coming[:half]) as sending,
            connected(url, get) as receiving,
            answer_on(receiving) as download,
        ):
            first = download.read(1000)
            assert client.get("/readyz").status_code == 200
            server.send_signal(signal.SIGTERM)
            # By a connection of its own each time, as whoever looks from outside.
            ask = partial(httpx.get, f"{url}/readyz", trust_env=False, timeout=TIMEOUT_S)
            wait_until(lambda: ask().status_code != 200)
            refused = ask()
            assert error_of(refused) == (503, "stopping")
            assert "requests under way" in refused.json()["error"]["message"]
            assert refused.headers["connection"] == "close"
            sending.sendall(coming[half:])
            with answer_on(sending) as response:
                assert response.status == 204
            assert sha256(first + download.read()) == sha256(content)
        assert server.wait(540) == 0
    with pool_process(tmp_path) as (_, url, _none), open_client(url, secret) as client:
        resumed = announce(client, "admin/coming", coming).json()
        assert [part["received"] for part in resumed["parts"]] == [True]
