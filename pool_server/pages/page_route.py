"""Around every page: forms are checked, and the policy goes along."""

from __future__ import annotations

import gzip
from collections.abc import Callable, Coroutine
from typing import Any

from fastapi import APIRouter, Request
from fastapi.exceptions import RequestValidationError
from fastapi.routing import APIRoute
from starlette.responses import HTMLResponse, RedirectResponse, Response

from pool_server.errors import MissingError, PoolError
from pool_server.http.error_responses import error_response, error_text, request_id_of
from pool_server.pages import forms, pool_api, rendering
from pool_server.pages.visitor import LoginNeededError, Visitor, login_address, set_cookie
from pool_server.wire.errors import ErrorBody

LEAST_COMPRESSED = 1000
_SAFE = frozenset({"GET", "HEAD"})
Handler = Callable[[Request], Coroutine[Any, Any, Response]]


class PageRoute(APIRoute):
    """A route that answers a browser."""

    def get_route_handler(self) -> Handler:
        handle = super().get_route_handler()

        async def answer(request: Request) -> Response:
            response = await _answer(request, handle)
            visitor: Visitor | None = getattr(request.state, "visitor", None)
            # Who only reads gets no cookie; a form is worth something with one only.
            has_form = getattr(request.state, "has_form", False)
            is_given = "set-cookie" in response.headers
            if visitor is not None and visitor.is_new and has_form and not is_given:
                set_cookie(response, request, visitor.secret)
            for name, value in rendering.PAGE_HEADERS.items():
                response.headers.setdefault(name, value)
            return compress(request, response)

        return answer


def page_router() -> APIRouter:
    return APIRouter(route_class=PageRoute, include_in_schema=False)


async def _answer(request: Request, handle: Handler) -> Response:
    try:
        if request.method not in _SAFE:
            await forms.require_own_form(request)
        return await handle(request)
    except LoginNeededError:
        path = request.url.path + (f"?{request.url.query}" if request.url.query else "")
        return RedirectResponse(login_address(path if request.method in _SAFE else "/"), 303)
    except pool_api.RefusedByApiError as refusal:
        body = refusal.body
        return error_response(
            refusal.status,
            body.code,
            body.message,
            hint=body.hint,
            details=body.details,
            request_id=body.request_id or request_id_of(request),
        )
    except RequestValidationError:
        raise MissingError("the pool has no page at this address", code="no_such_page") from None


def compress(request: Request, response: Response) -> Response:
    """Compress a page; nothing in it that is secret is the same twice (`Visitor.csrf`)."""
    takes_gzip = "gzip" in request.headers.get("accept-encoding", "")
    if takes_gzip and isinstance(response, HTMLResponse) and len(response.body) > LEAST_COMPRESSED:
        response.body = gzip.compress(bytes(response.body), 5, mtime=0)
        response.headers["content-encoding"] = "gzip"
        response.headers["content-length"] = str(len(response.body))
        response.headers["vary"] = "cookie, accept-encoding"
    return response


def describe_error(error: PoolError) -> ErrorBody:
    """Return an error as the API would send it."""
    kind, shows = type(error), error.shows_message
    code, message = (error.code, error.message) if shows else (kind.code, error_text(kind))
    return ErrorBody(code=code, message=message, hint=error.hint)
