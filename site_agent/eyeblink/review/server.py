"""The local server of the review page, open to nobody but that page on this machine.

The address holds a secret, so other users of the machine do not find it. The ``Host`` header must
name this machine, so that a foreign page cannot reach the server under a name of its own that it
points here (DNS rebinding). Changes need the secret in a header as well, which no foreign page can
send without the browser asking the server first.
"""

import secrets
import socket
import tempfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

import uvicorn
from starlette.datastructures import Headers
from starlette.responses import PlainTextResponse
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from aggregators.whole_file import write_whole
from site_agent.errors import BusyError
from site_agent.eyeblink.review.endpoints import review_application
from site_agent.eyeblink.review.review_session import ReviewSession
from site_agent.pages import render_page
from site_agent.work.serving import ReportingServer

TOKEN_HEADER = "x-review-token"
SECURITY_HEADERS: Mapping[str, str] = {
    "content-security-policy": (
        "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' blob:; "
        "connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
    ),
    "referrer-policy": "no-referrer",
    "x-content-type-options": "nosniff",
    "cross-origin-resource-policy": "same-origin",
    "cross-origin-opener-policy": "same-origin",
    "cache-control": "no-store",
}


def with_headers(send: Send, headers: Mapping[str, str]) -> Send:
    """Return a `send` that adds headers to an answer, unless it has one of the name."""

    async def send_with_headers(message: Message) -> None:
        if message["type"] == "http.response.start":
            present = {name.lower() for name, _ in message["headers"]}
            message["headers"] = [
                *message["headers"],
                *(
                    (name.encode(), value.encode())
                    for name, value in headers.items()
                    if name.encode() not in present
                ),
            ]
        await send(message)

    return send_with_headers


def new_token() -> str:
    return secrets.token_urlsafe(24)


class Guard:
    """ASGI middleware: refuses foreign hosts and requests without the token.

    The token is the first part of every path; the application below sees the rest.
    """

    def __init__(self, app: ASGIApp, token: str) -> None:
        self._app = app
        self._token = token

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            return
        refusal = self._refusal(scope)
        if refusal is not None:
            await refusal(scope, receive, send)
            return

        send_guarded = with_headers(send, SECURITY_HEADERS)

        prefix = f"/{self._token}"
        inner = {**scope, "path": scope["path"].removeprefix(prefix), "root_path": ""}
        inner["raw_path"] = inner["path"].encode()
        await self._app(inner, receive, send_guarded)

    def _refusal(self, scope: Scope) -> PlainTextResponse | None:
        headers = Headers(scope=scope)
        if _host_name(headers.get("host", "")) not in {"127.0.0.1", "localhost"}:
            return PlainTextResponse("this server is for this machine only\n", 421)
        if not self._is_token(scope["path"].split("/")[1]):
            return PlainTextResponse("not found\n", 404)
        if scope["method"] in {"GET", "HEAD"}:
            return None
        if scope["method"] != "POST":
            return PlainTextResponse("method not allowed\n", 405)
        if not self._is_token(headers.get(TOKEN_HEADER, "")):
            return PlainTextResponse("the token header is missing\n", 403)
        return None

    def _is_token(self, word: str) -> bool:
        return secrets.compare_digest(word.encode(), self._token.encode())


def _host_name(host: str) -> str:
    name, separator, port = host.rpartition(":")
    return name if separator and port.isdigit() else host


HOST = "127.0.0.1"


def serve_review(review: ReviewSession, *, port: int = 0, on_ready: Callable[[str], None]) -> None:
    """Serve the page until SIGINT or SIGTERM.

    `on_ready`: called with the page's address, which holds a secret, once the server answers.
    """
    token = new_token()
    with local_listener(port) as listener:
        url = f"http://{HOST}:{listener.getsockname()[1]}/{token}/"
        guarded = Guard(review_application(review), token)
        local_server(guarded, lambda: on_ready(url)).run(sockets=[listener])


@contextmanager
def opening_page(url: str) -> Iterator[Path]:
    """Make a private file that leads to the page, for a browser to open.

    Other users can see the words of a command line, and with them an address; not this file.
    """
    with tempfile.TemporaryDirectory(prefix="poolctl-review-") as folder:
        path = Path(folder) / "open.html"
        write_whole(path, render_page("open_review.html", address=url), mode=0o600)
        yield path


def local_server(app: ASGIApp, on_ready: Callable[[], None]) -> uvicorn.Server:
    """Return a server for an application that guards itself; it logs no address."""
    configuration = uvicorn.Config(
        app,
        log_config=None,
        access_log=False,
        server_header=False,
        loop="asyncio",
        http="h11",
        ws="none",
        lifespan="off",
        timeout_graceful_shutdown=2,
    )
    return ReportingServer(configuration, on_ready)


@contextmanager
def local_listener(port: int) -> Iterator[socket.socket]:
    """Listen on this machine alone; 0 takes a free port."""
    with socket.socket() as listener:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            listener.bind((HOST, port))
        except OSError as error:
            raise BusyError(
                f"port {port} cannot be used ({error.strerror}); give another with --port, "
                "or leave it out to take a free one"
            ) from error
        yield listener
