"""Access to the page's server: nobody but the page itself, on this machine.

The address holds a secret, so other users of the machine do not find it. The ``Host`` header must
name this machine, so that a foreign page cannot reach the server under a name of its own that it
points here (DNS rebinding). Changes need the secret in a header as well, which no foreign page can
send without the browser asking the server first.
"""

from __future__ import annotations

import secrets
from collections.abc import Mapping

from starlette.datastructures import Headers
from starlette.responses import PlainTextResponse
from starlette.types import ASGIApp, Message, Receive, Scope, Send

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

        async def send_guarded(message: Message) -> None:
            if message["type"] == "http.response.start":
                present = {name.lower() for name, _ in message["headers"]}
                message["headers"] = [
                    *message["headers"],
                    *(
                        (name.encode(), value.encode())
                        for name, value in SECURITY_HEADERS.items()
                        if name.encode() not in present
                    ),
                ]
            await send(message)

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
