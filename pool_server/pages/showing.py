"""Around every page: forms are checked, and the layout, the policy and errors are the same.

A form comes back with its problems; a refusal in JSON reaches a browser as a page.
"""

import gzip
import re
from collections.abc import Awaitable, Callable, Coroutine, Mapping, Sequence
from dataclasses import dataclass, field
from http import HTTPStatus
from typing import Any, TypeVar
from urllib.parse import parse_qs

import anyio.to_thread
from fastapi import APIRouter, Request
from fastapi.exceptions import RequestValidationError
from fastapi.routing import APIRoute
from starlette.datastructures import Headers, MutableHeaders
from starlette.responses import HTMLResponse, RedirectResponse, Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from pool_server.errors import (
    MissingError,
    NotAllowedError,
    NotAuthenticatedError,
    PoolError,
    RefusedError,
)
from pool_server.http.error_responses import error_response, error_text, request_id_of
from pool_server.http.paths import is_streamed
from pool_server.http.session import server_parts
from pool_server.pages import pool_api, rendering, words
from pool_server.pages.visitor import (
    LoginNeededError,
    ProofNeededError,
    Visitor,
    cookie_name,
    find_visitor,
    has_form_key,
    login_address,
    require_own_page,
    set_cookie,
)
from pool_server.wire.errors import ErrorBody, ErrorResponse
from pool_server.wire.rounds import WaitingRounds

_FIELD_OF_CODE = {
    "card_refused": "card",
    "digest_mismatch": "file",
    "format_refused": "file",
    "labels_refused": "labels",
    "sharing_refused": "visibility",
    "terms_refused": "term",
    "too_large": "file",
}
_HINTS = {
    "visibility": "Choose “as usual here”, or change it on the page of the model.",
    "term": "Several sites or words go into one field, with commas between.",
}
"""Hints for a page in place of those that name commands."""
_LABEL = re.compile(r"^label ([a-z][a-z0-9_.-]*)=")
_LABEL_FIELD = "label-"


def field_problems(typed: Mapping[str, Sequence[str]], body: ErrorBody) -> dict[str, str]:
    """Return the problem of each refused field; empty if the refusal is about no field."""
    problems: dict[str, str] = {}
    for entry in body.details.get("fields", []):
        where = str(entry["where"]).removeprefix("body.")
        name, problem = _place(typed, where.split("."), str(entry["problem"]))
        problems.setdefault(name, problem)
    if not problems and body.code in _FIELD_OF_CODE:
        name = _FIELD_OF_CODE[body.code]
        if name == "card" and "card" not in typed:
            name = "text"
        if match := _LABEL.search(body.message):
            name = _label_field(typed, match[1])
        hint = _HINTS.get(name, "")
        problems[name] = f"{body.message}. {hint}" if hint else body.message
    return problems


def _place(typed: Mapping[str, Sequence[str]], steps: list[str], problem: str) -> tuple[str, str]:
    """Return the field of the page for a value of the request, and the problem in its words."""
    group, key = steps[0], ".".join(steps[1:])
    if group == "labels" and key:
        name = key.removesuffix(".[key]")
        return _label_field(typed, name), f"{name}: {problem}"
    if group == "metrics" and key:
        return "metrics", f"{key}: {problem}"
    if group == "terms" and key.isdigit() and int(key) < len(typed.get("term", ())):
        code = typed["term"][int(key)]
        problem = problem.replace(f"{code}=", "").replace(" after it ", " ")
        return f"detail-{code}", re.sub(rf"^{re.escape(code)} \([^)]*\) ", "", problem)
    return steps[-1], problem


def _label_field(typed: Mapping[str, Sequence[str]], key: str) -> str:
    """Return the field in which a label was typed: its own, or that of other labels."""
    name = f"{_LABEL_FIELD}{key}"
    return name if any(typed.get(name, ())) else "labels"


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
            # Visitors that only read get no cookie; a form is worth something only with one.
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
            await require_own_form(request)
        return await handle(request)
    except LoginNeededError:
        path = request.url.path + (f"?{request.url.query}" if request.url.query else "")
        if request.method in _SAFE:
            return RedirectResponse(login_address(path), 303)
        raise NotAuthenticatedError(
            "your session had ended before the form was sent, so nothing was changed",
            hint="Log in in another tab, then load the form again and copy your text: your "
            "browser keeps it on the page before this one.",
        ) from None
    except ProofNeededError:
        form = await read_form(request)
        visitor: Visitor = request.state.visitor
        values: dict[str, Any] = {"again": request.url.path, "typed": form.typed()}
        return await show(visitor, "proof.html", status=403, form=EMPTY_FORM, **values)
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
    return ErrorBody(code=code, message=message, hint=error.hint, details=error.details)


T = TypeVar("T")


@dataclass(frozen=True)
class FormState:
    """A form as it is shown: its typed values, and the errors in them."""

    kept: Mapping[str, str] = field(default_factory=dict)
    errors: Mapping[str, str] = field(default_factory=dict)
    message: str = ""
    hint: str = ""


EMPTY_FORM = FormState()


def refused_form(form: "Form", error: pool_api.RefusedByApiError | PoolError) -> FormState:
    """Return a form with its typed values and the pool's reasons for refusing them."""
    body = error.body if isinstance(error, pool_api.RefusedByApiError) else describe_error(error)
    if problems := form.problems(body):
        return FormState(form.kept(), problems, count_problems(problems))
    return FormState(form.kept(), {}, body.message, body.hint)


def count_problems(problems: Mapping[str, str]) -> str:
    """Return the sentence above a form's problems."""
    if problems.keys() == {"file"}:
        return "This file cannot be taken"
    return f"{words.count(len(problems), 'field')} cannot be taken as typed"


async def show(
    visitor: Visitor, template: str, *, status: int = 200, has_secret: bool = False, **values: Any
) -> HTMLResponse:
    """Return a page in the layout of all, with how many rounds wait for the visitor's site."""
    waiting = None
    if visitor.caller is not None:
        # Nobody, where the session's token is narrowed to other things.
        waiting = await asking(visitor.api.get(WaitingRounds, "/rounds/waiting"))
    page = rendering.render_page(
        template,
        visitor=visitor,
        waiting=waiting.count if waiting else 0,
        providers=server_parts(visitor.request).settings.sign_on,
        **values,
    )
    return rendering.page_response(page, status, has_secret=has_secret)


async def asking(question: Awaitable[T]) -> T | None:
    """Return an answer of the API, or None where the visitor may not ask for it."""
    try:
        return await question
    except pool_api.RefusedByApiError:
        return None


def go_to(path: str) -> RedirectResponse:
    """Lead the browser to a page after a change, so that a reload changes nothing."""
    return RedirectResponse(path, 303)


_FOR_PROGRAMS = ("/api/", "/healthz", "/readyz", "/metrics", "/openapi.json")


class ErrorPages:
    """Middleware around the whole server: turns refusals into pages for browsers."""

    def __init__(self, app: ASGIApp) -> None:
        self.app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http" or not _wants_page(scope):
            await self.app(scope, receive, send)
            return
        refusal: Message | None = None
        chunks: list[bytes] = []

        async def forward(message: Message) -> None:
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

        await self.app(scope, receive, forward)


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
    response = rendering.page_response(
        rendering.render_page("refusal.html", visitor=visitor, status=status, error=error), status
    )
    headers = MutableHeaders(raw=list(refusal["headers"]))
    headers.update(response.headers)
    response.raw_headers = headers.raw
    await response(scope, receive, send)


async def _find_visitor(request: Request, status: HTTPStatus) -> Visitor | None:
    """Return the visitor of the page; None where the server cannot look it up."""
    known: Visitor | None = getattr(request.state, "visitor", None)
    if known is not None or status != HTTPStatus.NOT_FOUND:
        return known
    return await anyio.to_thread.run_sync(find_visitor, request, server_parts(request))


CSRF_FIELD, CSRF_HEADER = "csrf", "x-csrf"
PROOF_FIELD = "proof"
MOST_FIELDS = 400
_FORM = "application/x-www-form-urlencoded"


class Form:
    """The fields of a form; one that was left out is empty."""

    def __init__(self, fields: Mapping[str, list[str]]) -> None:
        self._fields = fields

    def __getitem__(self, name: str) -> str:
        return self._fields.get(name, [""])[0].strip()

    def all(self, name: str) -> list[str]:
        """Return all values of a field that may come several times, without empty ones."""
        return [value.strip() for value in self._fields.get(name, []) if value.strip()]

    def has(self, name: str) -> bool:
        """Return whether a box is ticked."""
        return bool(self[name])

    def problems(self, body: ErrorBody) -> dict[str, str]:
        """Return the reasons for refusing this form, by its fields."""
        return field_problems(self._fields, body)

    def typed(self) -> list[tuple[str, str]]:
        """Return all values of a form that must be sent again, after the token."""
        pairs = [(name, value) for name, values in self._fields.items() for value in values]
        return [pair for pair in pairs if pair[0] not in {CSRF_FIELD, PROOF_FIELD}]

    def kept(self) -> dict[str, str]:
        """Return the typed values for showing the form again, without secrets."""
        hidden = {CSRF_FIELD, PROOF_FIELD, "token", "secret"}
        return {name: values[0] for name, values in self._fields.items() if name not in hidden}


async def read_form(request: Request) -> Form:
    """Return the form in a request's body; empty if the body is no form, or is streamed.

    A streamed body has no limit, so it must not be read before its sender is known.

    Raises `RefusedError`: it has too many fields, or text that is not Unicode.
    """
    if is_streamed(request.scope) or not request.headers.get("content-type", "").startswith(_FORM):
        return Form({})
    body = await request.body()
    try:
        fields = parse_qs(
            body.decode("ascii"),
            keep_blank_values=True,
            errors="strict",
            max_num_fields=MOST_FIELDS,
        )
    except ValueError as error:
        raise RefusedError(
            f"the form cannot be read: {error}",
            hint=f"Send at most {MOST_FIELDS} fields, as a browser does.",
        ) from error
    return Form(fields)


async def require_own_form(request: Request) -> None:
    """Raise `NotAllowedError` unless a page of this pool sent a change for its own visitor."""
    require_own_page(request)
    sent = request.headers.get(CSRF_HEADER) or (await read_form(request))[CSRF_FIELD]
    secret = request.cookies.get(cookie_name(request), "")
    if not secret or not has_form_key(sent, secret):
        raise NotAllowedError(
            "the form belongs to another log-in, or to none",
            code="form_expired",
            hint="Go back, load the page again, and send the form again.",
        )
