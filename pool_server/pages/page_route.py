"""Around every page: forms are checked, refusals become pages, and the policy goes along."""

from __future__ import annotations

import gzip
from collections.abc import Callable, Coroutine
from http import HTTPStatus
from typing import Any

from fastapi import APIRouter, Request
from fastapi.exceptions import RequestValidationError
from fastapi.routing import APIRoute
from starlette.responses import HTMLResponse, RedirectResponse, Response

from pool_server.errors import PoolError, WriteConflictError
from pool_server.http.audit import record_refusal
from pool_server.http.error_responses import request_id_of
from pool_server.http.error_table import entry_of
from pool_server.pages.forms import require_own_form
from pool_server.pages.pool_api import RefusedByApiError
from pool_server.pages.rendering import PAGE_HEADERS, page_response, render_page
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
            for name, value in PAGE_HEADERS.items():
                response.headers.setdefault(name, value)
            return compress(request, response)

        return answer


def page_router() -> APIRouter:
    return APIRouter(route_class=PageRoute, include_in_schema=False)


async def _answer(request: Request, handle: Handler) -> Response:
    try:
        if request.method not in _SAFE:
            await require_own_form(request)
        return await handle(request)
    except LoginNeededError:
        path = request.url.path + (f"?{request.url.query}" if request.url.query else "")
        return RedirectResponse(login_address(path if request.method in _SAFE else "/"), 303)
    except WriteConflictError:
        raise
    except RefusedByApiError as refusal:
        return refusal_page(request, refusal.status, refusal.body)
    except PoolError as error:
        await record_refusal(request, error)
        return refusal_page(request, entry_of(error).status, describe_error(error))
    except RequestValidationError:
        body = ErrorBody(code="no_such_page", message="the pool has no page at this address")
        return refusal_page(request, HTTPStatus.NOT_FOUND, body)


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
    entry = entry_of(error)
    message = error.message if entry.shows_message else entry.text
    return ErrorBody(code=entry.code, message=message, hint=error.hint)


def refusal_page(request: Request, status: int, body: ErrorBody) -> Response:
    """Return a page that says what was refused, why, and what to do; to a script as JSON."""
    visitor = getattr(request.state, "visitor", None)
    named = body.model_copy(update={"request_id": body.request_id or request_id_of(request)})
    page = render_page("refusal.html", visitor=visitor, status=HTTPStatus(status), error=named)
    return page_response(page, status)
