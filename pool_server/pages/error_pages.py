"""Errors as pages: what the server refuses in JSON, a browser shows in the layout of all pages."""

from __future__ import annotations

from http import HTTPStatus

import anyio.to_thread
from fastapi import Request
from starlette.datastructures import Headers, MutableHeaders
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from pool_server.http.session import server_parts
from pool_server.pages.rendering import page_response, render_page
from pool_server.pages.visitor import Visitor, find_visitor
from pool_server.wire.errors import ErrorBody, ErrorResponse

_FOR_PROGRAMS = ("/api/", "/healthz", "/readyz", "/metrics", "/openapi.json")


class ErrorPages:
    """Around the whole server: turns each refusal of what a browser asked for into a page."""

    def __init__(self, app: ASGIApp) -> None:
        self.app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http" or not _wants_page(scope):
            await self.app(scope, receive, send)
            return
        refusal: Message | None = None
        chunks: list[bytes] = []

        async def show(message: Message) -> None:
            nonlocal refusal
            if message["type"] == "http.response.start" and _is_refusal(message):
                refusal = message
            elif refusal is None:
                await send(message)
            else:
                chunks.append(message.get("body", b""))
                if not message.get("more_body", False):
                    error = ErrorResponse.model_validate_json(b"".join(chunks)).error
                    await _send_page(scope, receive, send, refusal, error)

        await self.app(scope, receive, show)


def _wants_page(scope: Scope) -> bool:
    accepted = Headers(scope=scope).get("accept", "*/*")
    is_page = not scope["path"].startswith(_FOR_PROGRAMS)
    return is_page and ("text/html" in accepted or accepted == "*/*")


def _is_refusal(message: Message) -> bool:
    kind = Headers(raw=message["headers"]).get("content-type", "")
    return message["status"] >= HTTPStatus.BAD_REQUEST and kind.startswith("application/json")


async def _send_page(
    scope: Scope, receive: Receive, send: Send, refusal: Message, error: ErrorBody
) -> None:
    request, status = Request(scope), HTTPStatus(refusal["status"])
    visitor = await _find_visitor(request, status)
    response = page_response(
        render_page("refusal.html", visitor=visitor, status=status, error=error), status
    )
    headers = MutableHeaders(raw=list(refusal["headers"]))
    headers.update(response.headers)
    response.raw_headers = headers.raw
    await response(scope, receive, send)


async def _find_visitor(request: Request, status: HTTPStatus) -> Visitor | None:
    """Return who looks at the page; None where the server is in no state to say."""
    known: Visitor | None = getattr(request.state, "visitor", None)
    if known is not None or status != HTTPStatus.NOT_FOUND:
        return known
    return await anyio.to_thread.run_sync(find_visitor, request, server_parts(request))
