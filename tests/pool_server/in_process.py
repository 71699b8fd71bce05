"""A pool without a server: its application runs in this process, and no socket is opened.

A socket would make each request a third slower, and a server takes 0.2 s to stop.
Tests of sockets, of processes and of browsers run a server (`pool_driver.pool_in_thread`).
"""

import asyncio
import logging
from abc import ABC, abstractmethod
from collections.abc import Iterator
from contextlib import contextmanager

import httpx
from anyio.from_thread import BlockingPortal, start_blocking_portal
from fastapi import FastAPI
from starlette.types import Message, Scope

from pool_server.app import create_app
from pool_server.settings import PoolSettings

POOL_URL = "http://127.0.0.1:8710"
ADDRESS = ("127.0.0.1", 50000)
PIECE_BYTES = 1 << 16


class PoolTransport(httpx.BaseTransport, ABC):
    """Hands requests to a pool; those to other places (its storage) go without the token."""

    def __init__(self, url: str) -> None:
        # Reading the system's certificates takes long, and nothing here is encrypted.
        self.network = httpx.HTTPTransport(verify=False)
        self._pool = httpx.URL(url)

    def handle_request(self, request: httpx.Request) -> httpx.Response:
        if request.url.netloc == self._pool.netloc:
            return self.ask_pool(request)
        request.headers.pop("Authorization", None)
        return self.network.handle_request(request)

    @abstractmethod
    def ask_pool(self, request: httpx.Request) -> httpx.Response: ...

    def close(self) -> None:
        self.network.close()


class AppTransport(PoolTransport):
    """Hands requests to the application; any number of threads may send at once."""

    def __init__(self, app: FastAPI, portal: BlockingPortal) -> None:
        super().__init__(POOL_URL)
        self._app = app
        self._portal = portal

    def ask_pool(self, request: httpx.Request) -> httpx.Response:
        return self._portal.call(self._answer, request)

    async def _answer(self, request: httpx.Request) -> httpx.Response:
        url = request.url
        pieces = cut_body(request)
        scope: Scope = {
            "type": "http",
            "asgi": {"version": "3.0", "spec_version": "2.3"},
            "http_version": "1.1",
            "method": request.method,
            "headers": [(name.lower(), value) for name, value in request.headers.raw],
            "scheme": url.scheme,
            "path": url.path,
            "raw_path": url.raw_path.split(b"?")[0],
            "query_string": url.query,
            "root_path": "",
            "server": (url.host, url.port),
            "client": ADDRESS,
            "state": {},
        }
        answered = asyncio.Event()
        is_sent = False
        start: Message = {}
        content: list[bytes] = []

        async def receive() -> Message:
            nonlocal is_sent
            if is_sent:
                await answered.wait()
                return {"type": "http.disconnect"}
            piece = next(pieces, b"")
            is_sent = not piece
            return {"type": "http.request", "body": piece, "more_body": not is_sent}

        async def send(message: Message) -> None:
            if message["type"] == "http.response.start":
                start.update(message)
                return
            content.append(message.get("body", b""))
            if not message.get("more_body", False):
                answered.set()

        await self._app(scope, receive, send)
        assert answered.is_set(), "the application ended within its answer"
        stream = httpx.ByteStream(b"".join(content))
        return httpx.Response(start["status"], headers=start["headers"], stream=stream)


def cut_body(request: httpx.Request) -> Iterator[bytes]:
    """Cut a body into pieces, as a socket delivers it."""
    assert isinstance(request.stream, httpx.SyncByteStream)
    for chunk in request.stream:
        for start in range(0, len(chunk), PIECE_BYTES):
            yield chunk[start : start + PIECE_BYTES]


@contextmanager
def running_application(settings: PoolSettings) -> Iterator[AppTransport]:
    """Run the application of a pool, from its recovery to its end."""
    logging.getLogger("pool_server").setLevel(settings.log_level)
    app = create_app(settings)
    with (
        start_blocking_portal() as portal,
        portal.wrap_async_context_manager(app.router.lifespan_context(app)),
    ):
        yield AppTransport(app, portal)
