"""Bodies of requests: nothing is read before the sender and the limit are known."""

import asyncio
import itertools
import re
import socket
import tracemalloc
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlsplit

import pytest
from fastapi import FastAPI
from starlette.types import Message

from pool_server.app import create_app
from pool_server.http import middleware
from pool_server.settings import PoolSettings
from tests.pool_server.people.sites.test_permissions import routes_of
from tests.pool_server.pool_driver import PoolDriver, announce, error_of
from tests.pool_server.server_process import put_empty_database

CONTENT_TYPES = (
    "application/json",
    "application/x-www-form-urlencoded",
    "multipart/form-data; boundary=x",
    "application/octet-stream",
)
UNKNOWN_SENDERS: tuple[Mapping[str, str], ...] = (
    {},
    {"authorization": "Bearer pool_unknown", "cookie": "pool=session_unknown"},
)
CHUNK = b"a=b&" * 4096
SENT_BYTES = 64 << 20


@dataclass
class Answer:
    """The answer to one request, and how many bytes of it the application asked for."""

    status: int = 0
    headers: Mapping[str, str] | None = None
    content: bytes = b""
    read_bytes: int = 0


@pytest.fixture(scope="module")
def app(tmp_path_factory: pytest.TempPathFactory) -> Iterator[FastAPI]:
    settings = PoolSettings(data_folder=tmp_path_factory.mktemp("bodies"))
    put_empty_database(settings)
    app = create_app(settings)
    yield app
    app.state.parts.database.close()


async def ask(
    app: FastAPI,
    method: str,
    path: str,
    headers: Mapping[str, str],
    *,
    chunk: bytes = CHUNK,
    sent_bytes: int = SENT_BYTES,
) -> Answer:
    """Send a request to the application itself; its body is made as it is asked for."""
    answer = Answer()

    async def receive() -> Message:
        answer.read_bytes += len(chunk)
        return {"type": "http.request", "body": chunk, "more_body": answer.read_bytes < sent_bytes}

    async def send(message: Message) -> None:
        if message["type"] == "http.response.start":
            answer.status = message["status"]
            answer.headers = {name.decode(): value.decode() for name, value in message["headers"]}
        else:
            answer.content += message.get("body", b"")

    named = {"host": "pool.example", **headers}
    scope: dict[str, Any] = {
        "type": "http",
        "asgi": {"version": "3.0"},
        "http_version": "1.1",
        "method": method,
        "scheme": "http",
        "path": path,
        "raw_path": path.encode(),
        "query_string": b"",
        "root_path": "",
        "headers": [(name.encode(), value.encode()) for name, value in named.items()],
        "client": ("127.0.0.1", 1),
        "server": ("pool.example", 80),
        "state": {},
    }
    await app(scope, receive, send)
    return answer


def every_request(app: FastAPI) -> Iterator[tuple[str, str]]:
    """Give the method and a path of every route."""
    for method, template in routes_of(app.routes):
        yield method, re.sub(r"\{[^}]*\}", "1", template.replace("{upload_id}", "0" * 32))


def test_little_is_read_from_unknown_senders_on_every_route(
    app: FastAPI, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Bytes drained after a refusal are kept nowhere; the next test looks at memory.
    monkeypatch.setattr(middleware, "DRAIN_BYTES", 0)

    async def ask_all() -> list[tuple[Any, ...]]:
        return [
            (method, path, kind, answer.read_bytes)
            for (method, path), kind, sender in itertools.product(
                every_request(app), CONTENT_TYPES, UNKNOWN_SENDERS
            )
            if (answer := await ask(app, method, path, {"content-type": kind, **sender})).read_bytes
            > middleware.MOST_ANONYMOUS_BYTES + len(CHUNK)
        ]

    assert asyncio.run(ask_all()) == []


def test_memory_is_bounded_whatever_unknown_senders_send(app: FastAPI) -> None:
    chunk = CHUNK * 64

    async def peak_of(method: str, path: str, kind: str) -> int:
        tracemalloc.reset_peak()
        before, _ = tracemalloc.get_traced_memory()
        await ask(app, method, path, {"content-type": kind}, chunk=chunk)
        return tracemalloc.get_traced_memory()[1] - before

    async def ask_all() -> dict[tuple[str, str, str], int]:
        return {
            (*request, kind): await peak_of(*request, kind)
            for request, kind in itertools.product(every_request(app), CONTENT_TYPES)
        }

    tracemalloc.start()
    try:
        peaks = asyncio.run(ask_all())
    finally:
        tracemalloc.stop()
    assert len(peaks) > 4 * 100
    assert {request: peak for request, peak in peaks.items() if peak > 8 << 20} == {}


@pytest.mark.parametrize("count", [500, pytest.param(10_000, marks=pytest.mark.slow)])
def test_paths_add_no_labels(app: FastAPI, count: int) -> None:
    begins = ("/json/models", "/api/v1/models", "/models", "/static", "/pictures", "/x", "/rounds")

    async def ask_all() -> None:
        for number in range(count):
            path = f"{begins[number % len(begins)]}/secret-{number}" + "/a" * (number % 5)
            # Programs get no page of the refusal, which takes longer than the rest.
            await ask(app, "GET", path, {"accept": "application/json"}, chunk=b"", sent_bytes=0)

    asyncio.run(ask_all())
    text = app.state.parts.metrics.text().decode()
    labels = set(re.findall(r'route="([^"]*)"', text))
    assert {"/json/{path:path}", "unknown"} <= labels
    assert labels <= {"unknown", *(template for _, template in routes_of(app.routes))}
    assert "secret-" not in text


def test_true_is_no_number(embedded_pool: PoolDriver) -> None:
    answer = announce(embedded_pool.member("truths"), "truths/one", b"x", size_bytes=True)
    assert error_of(answer) == (422, "invalid_request")
    assert "found true, expected a number" in answer.text


def test_redirects_name_no_host(app: FastAPI) -> None:
    headers = {"host": "evil.example"}
    answer = asyncio.run(ask(app, "GET", "/models/", headers, chunk=b"", sent_bytes=0))
    assert answer.status == 307
    assert answer.headers is not None
    assert answer.headers["location"] == "/models"


def test_two_lengths_of_a_body_are_refused(served_pool: PoolDriver) -> None:
    place = urlsplit(served_pool.url)
    head = (
        b"POST /api/v1/sites HTTP/1.1\r\nHost: pool\r\nContent-Length: 4\r\n"
        b"Transfer-Encoding: chunked\r\n\r\n0\r\n\r\nGET /healthz HTTP/1.1\r\nHost: pool\r\n\r\n"
    )
    with socket.create_connection((place.hostname, place.port), timeout=540) as connection:
        connection.sendall(head)
        answer = b""
        while received := connection.recv(65536):
            answer += received
    assert answer.startswith(b"HTTP/1.1 422 ")
    assert b"Content-Length and Transfer-Encoding" in answer
    assert answer.count(b"HTTP/1.1") == 1, "the connection is closed"
