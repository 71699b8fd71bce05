"""A server killed at the worst moments: nothing half is shown, and the client goes on."""

import signal
import socket
import sqlite3
import subprocess
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing, contextmanager, suppress
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import httpx
import pytest

from tests.pool_server.model_files import network_bytes, sha256
from tests.pool_server.pool_driver import announce, complete, open_client, pool_process, send_parts
from tests.waiting import wait_until

PART = {"POOL_SERVER_PART_BYTES": "1000000"}
ENTRIES = 1_000_000  # 4 MB, five parts


def wait_for_file(folder: Path, pattern: str) -> None:
    wait_until(lambda: list(folder.glob(pattern)), interval_s=0.001)


def test_killed_while_a_part_arrives(tmp_path: Path) -> None:
    content = network_bytes(ENTRIES)
    with (
        pool_process(tmp_path, **PART) as (server, url, secret),
        open_client(url, secret) as client,
    ):
        opened = announce(client, "admin/gaze", content).json()
        send_parts(client, {**opened, "parts": opened["parts"][:2]}, content)
        half = opened["parts"][2]
        with socket.create_connection(urlsplit(url).netloc.split(":")) as connection:  # type: ignore[arg-type]
            connection.sendall(
                f"PUT /api/v1/uploads/{opened['upload_id']}/parts/3 HTTP/1.1\r\n"
                f"Host: pool\r\nAuthorization: Bearer {secret}\r\n"
                f"Content-Length: {half['size_bytes']}\r\n\r\n".encode()
                + content[half["offset"] : half["offset"] + 500_000]
            )
            wait_for_file(tmp_path / "storage" / "uploads", "*/000003.*.tmp")
            server.send_signal(signal.SIGKILL)
            server.wait()
    with pool_process(tmp_path, **PART) as (_, url, none), open_client(url, secret) as client:
        assert none is None
        assert not list((tmp_path / "storage").rglob("*.tmp"))
        assert client.get("/api/v1/models").json()["items"] == []
        resumed = announce(client, "admin/gaze", content)
        assert resumed.status_code == 200
        received = [part["received"] for part in resumed.json()["parts"]]
        assert received == [True, True, False, False, False]
        send_parts(client, resumed.json(), content)
        assert complete(client, resumed.json()).status_code == 201
        assert client.get("/api/v1/models/admin/gaze/versions/1/content").content == content


@pytest.mark.parametrize("moment", [pytest.param("checking", marks=pytest.mark.slow), "published"])
def test_killed_while_completing(tmp_path: Path, moment: str) -> None:
    content, storage = network_bytes(ENTRIES), tmp_path / "storage"
    pattern = {"checking": "uploads/*/assembled", "published": "blobs/*/*"}[moment]
    with killed_while_completing(
        tmp_path, content, lambda: wait_for_file(storage, pattern), **PART
    ) as client:
        require_whole_or_nothing(client, content)
    with closing(sqlite3.connect(tmp_path / "pool.sqlite3")) as connection:
        assert connection.execute("PRAGMA integrity_check").fetchone() == ("ok",)


@contextmanager
def killed_while_completing(
    folder: Path, content: bytes, wait_for_moment: Callable[[], None], **environment: str
) -> Iterator[httpx.Client]:
    """Kill a server at some moment of an upload's completion; give a client of the next one."""
    with (
        pool_process(folder, **environment) as (server, url, secret),
        open_client(url, secret) as client,
    ):
        opened = announce(client, "admin/gaze", content).json()
        send_parts(client, opened, content)
        thread = threading.Thread(target=complete_until_killed, args=(client, opened))
        thread.start()
        wait_for_moment()
        server.send_signal(signal.SIGKILL)
        server.wait()
        thread.join()
    with pool_process(folder, **environment) as (_, url, _none), open_client(url, secret) as client:
        yield client


def require_whole_or_nothing(client: httpx.Client, content: bytes) -> None:
    """Check that a file is published as a whole or not seen, and that its upload goes on."""
    listed = client.get("/api/v1/models").json()["items"]
    assert [version["digest"] for version in listed] in ([], [sha256(content)])
    resumed = announce(client, "admin/gaze", content).json()
    if resumed["state"] != "complete":
        assert all(part["received"] for part in resumed["parts"])
        assert complete(client, resumed).status_code == 201
    assert client.get("/api/v1/models/admin/gaze/versions/1/content").content == content
    assert len(client.get("/api/v1/models").json()["items"]) == 1


def complete_until_killed(client: httpx.Client, opened: Mapping[str, Any]) -> None:
    with suppress(httpx.HTTPError):
        complete(client, opened)


def test_a_stopped_server_ends_well(tmp_path: Path) -> None:
    for stop in (signal.SIGTERM, signal.SIGINT):
        with pool_process(tmp_path) as (server, _url, _):
            server.send_signal(stop)
            try:
                assert server.wait(540) == 0
            except subprocess.TimeoutExpired:
                pytest.fail(f"{stop!r} did not stop the server")
