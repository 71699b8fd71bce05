"""A server that is asked to stop in the middle of its work."""

import signal
import socket
import time
from http.client import HTTPResponse
from pathlib import Path
from urllib.parse import urlsplit

import httpx

from tests.pool_server.model_files import network_bytes, sha256
from tests.pool_server.pool_driver import announce, error_of, open_client, pool_process, upload

# More than the system keeps on the way from one process to the other.
ENTRIES = 4_000_000  # 16 MB


def begin(url: str, secret: str, head: str, body: bytes = b"") -> socket.socket:
    """Send the start of a request; its answer, or the rest of its body, comes later."""
    parts = urlsplit(url)
    connection = socket.create_connection((parts.hostname or "", parts.port or 80), timeout=540)
    lines = [head, "Host: pool", f"Authorization: Bearer {secret}"]
    connection.sendall("\r\n".join([*lines, "", ""]).encode() + body)
    return connection


def answer_on(connection: socket.socket) -> HTTPResponse:
    answer = HTTPResponse(connection)
    answer.begin()
    return answer


def test_open_requests_are_finished(tmp_path: Path) -> None:
    content, coming = network_bytes(ENTRIES), network_bytes(ENTRIES)
    half = len(coming) // 2
    with (
        pool_process(tmp_path, POOL_SERVER_GRACEFUL_STOP_S="60") as (server, url, secret),
        open_client(url, secret) as client,
    ):
        assert secret is not None
        upload(client, "admin/kept", content)
        opened = announce(client, "admin/coming", coming).json()
        put = f"PUT {opened['parts'][0]['url']} HTTP/1.1\r\nContent-Length: {len(coming)}"
        get = "GET /api/v1/models/admin/kept/versions/1/content HTTP/1.1"
        with (
            begin(url, secret, put, coming[:half]) as sending,
            begin(url, secret, get) as receiving,
            answer_on(receiving) as download,
        ):
            first = download.read(1000)
            assert client.get("/readyz").status_code == 200
            server.send_signal(signal.SIGTERM)
            refused = ask_until_not_ready(url)
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


def ask_until_not_ready(url: str) -> httpx.Response:
    end = time.monotonic() + 540
    while True:
        # By a connection of its own each time, as whoever looks from outside.
        answer = httpx.get(f"{url}/readyz", trust_env=False, timeout=540)
        if answer.status_code != 200:
            return answer
        assert time.monotonic() < end, "still ready"
        time.sleep(0.01)
