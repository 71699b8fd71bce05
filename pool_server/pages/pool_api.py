"""The API as pages ask it: in this process, as the caller of the page.

A page has no query of its own. It goes through the routes of the API, with their roles, scopes,
limits and entries in the audit, so that it can show nobody more than a program would get.
"""

import json
from collections.abc import Mapping
from typing import Any, TypeVar
from urllib.parse import quote, urlencode

from fastapi import Request
from pydantic import BaseModel
from starlette.responses import Response
from starlette.types import Message, Receive, Scope, Send

from pool_server.http.identity import ADMITTED, Caller
from pool_server.http.paths import API_PREFIX
from pool_server.registry.service import NAMED
from pool_server.wire.errors import ErrorBody, ErrorResponse

# Headers that the API's request shares with that of the page; those of its body, say, are not.
_KEPT_HEADERS = frozenset({b"host", b"user-agent", b"range", b"if-range"})
_OF_THE_PAGE = ("path_params", "route", "endpoint", "router")

T = TypeVar("T", bound=BaseModel)


class RefusedByApiError(Exception):
    """The API answered a page with a refusal."""

    def __init__(self, status: int, body: ErrorBody) -> None:
        self.status = status
        self.body = body
        super().__init__(body.message)


class PoolApi:
    """Asks the API as one caller.

    `request`: Request of the page. `caller`: None asks without a token.
    """

    def __init__(self, request: Request, caller: Caller | None) -> None:
        self._request = request
        self._caller = caller
        named = {} if request.method != "GET" else request.scope.setdefault(NAMED, {})
        self._named: dict[Any, Any] = named

    async def get(self, answer: type[T], path: str, **query: Any) -> T:
        """Return the API's answer at a path below ``/api/v1``; None in `query` is left out.

        Raises `RefusedByApiError`: not found, not allowed, or not readable.
        """
        return answer.model_validate_json(await self._ask("GET", path, query=query))

    async def send(
        self, method: str, path: str, body: BaseModel | Mapping[str, Any] | None = None
    ) -> bytes:
        """Change something, and return the JSON that the API answers with.

        Raises `RefusedByApiError`: as `get`; also where `body` is not as described.
        """
        if isinstance(body, BaseModel):
            content = body.model_dump_json(exclude_unset=True).encode()
        else:
            content = b"" if body is None else json.dumps(dict(body)).encode()
        return await self._ask(method, path, content=content)

    def pass_on(self, method: str, path: str, **headers: str) -> Response:
        """Return a response that is the API's own, with query and body of the page's request."""
        scope = self._scope(method, path, {}, headers)
        scope["query_string"] = self._request.scope["query_string"]
        return _PassedOn(self._request, scope)

    async def _ask(
        self,
        method: str,
        path: str,
        *,
        query: Mapping[str, Any] | None = None,
        content: bytes = b"",
    ) -> bytes:
        scope = self._scope(method, path, query or {}, {"content-type": "application/json"})
        status, chunks = 500, []

        async def receive() -> Message:
            return {"type": "http.request", "body": content, "more_body": False}

        async def send(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
            else:
                chunks.append(message.get("body", b""))

        await self._request.app.router(scope, receive, send)
        answer = b"".join(chunks)
        if status >= 400:
            raise RefusedByApiError(status, ErrorResponse.model_validate_json(answer).error)
        return answer

    def _scope(
        self, method: str, path: str, query: Mapping[str, Any], headers: Mapping[str, str]
    ) -> Scope:
        outer = self._request.scope
        whole = API_PREFIX + path
        parameters = {name: value for name, value in query.items() if value not in (None, "", [])}
        kept = [header for header in outer["headers"] if header[0] in _KEPT_HEADERS]
        new = [(name.replace("_", "-").encode(), value.encode()) for name, value in headers.items()]
        scope = {name: value for name, value in outer.items() if name not in _OF_THE_PAGE}
        return scope | {
            "method": method,
            "path": whole,
            "raw_path": quote(whole).encode(),
            "query_string": urlencode(parameters, doseq=True).encode(),
            "headers": kept + new,
            "state": {},
            ADMITTED: self._caller,
            NAMED: self._named,
        }


class _PassedOn(Response):
    """An answer of the API, sent on as it comes."""

    def __init__(self, request: Request, scope: Scope) -> None:
        super().__init__()
        self._request = request
        self._scope = scope

    async def __call__(self, _scope: Scope, receive: Receive, send: Send) -> None:
        await self._request.app.router(self._scope, receive, send)
