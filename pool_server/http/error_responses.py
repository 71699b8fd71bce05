"""Refusals as `ErrorResponse`, and their description in the API's schema."""

import inspect
from collections.abc import Mapping
from http import HTTPStatus
from typing import cast

from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse
from starlette.exceptions import HTTPException
from starlette.responses import Response

from pool_server.errors import (
    ConflictError,
    DatabaseUnavailableError,
    InternalError,
    InvalidRequestError,
    MissingError,
    NotAllowedError,
    NotAuthenticatedError,
    PoolError,
    WriteConflictError,
)
from pool_server.http.audit import record_refusal
from pool_server.wire.errors import ErrorBody, ErrorResponse, problem_words

MOST_FIELDS_NAMED = 5
# Faults that pass by themselves, and the seconds after which they may have.
RETRY_AFTER_S = {"upload_busy": "1", "write_conflict": "1", "database_unavailable": "2"}


def error_response(
    status: int,
    code: str,
    message: str,
    *,
    hint: str = "",
    details: Mapping[str, object] | None = None,
    request_id: str = "",
    headers: Mapping[str, str] | None = None,
) -> JSONResponse:
    body = ErrorBody(
        code=code, message=message, hint=hint, details=dict(details or {}), request_id=request_id
    )
    return JSONResponse(
        ErrorResponse(error=body).model_dump(mode="json"), status_code=status, headers=headers
    )


def respond_to_pool_error(error: PoolError, request_id: str = "") -> JSONResponse:
    kind, shows = type(error), error.shows_message
    code = error.code if shows else kind.code
    headers = {}
    if error.status == HTTPStatus.UNAUTHORIZED:
        headers["WWW-Authenticate"] = 'Bearer realm="pool"'
    if code in RETRY_AFTER_S:
        headers["Retry-After"] = RETRY_AFTER_S[code]
    if "retry_after_s" in error.details:
        headers["Retry-After"] = str(error.details["retry_after_s"])
    return error_response(
        error.status,
        code,
        error.message if shows else error_text(kind),
        hint=error.hint,
        details=error.details if shows else {},
        request_id=request_id,
        headers=headers,
    )


def request_id_of(request: Request) -> str:
    return str(request.scope.get("pool_request_id", ""))


async def on_pool_error(request: Request, error: Exception) -> Response:
    if isinstance(error, WriteConflictError):
        # `pool_server.http.middleware` handles the request again.
        raise error
    refusal = cast("PoolError", error)
    await record_refusal(request, refusal)
    return respond_to_pool_error(refusal, request_id_of(request))


async def on_invalid_request(request: Request, error: Exception) -> Response:
    problems = cast("RequestValidationError", error).errors()
    # The values are not repeated: one of them could be a secret in the wrong place.
    named = [
        {
            "where": ".".join(str(step) for step in problem["loc"]),
            "problem": problem_words(problem, with_value=False),
        }
        for problem in problems[:MOST_FIELDS_NAMED]
    ]
    message = "; ".join(f"{field['where']}: {field['problem']}" for field in named)
    if len(problems) > MOST_FIELDS_NAMED:
        message += f"; and {len(problems) - MOST_FIELDS_NAMED} more"
    refusal = InvalidRequestError(
        message.encode("utf-8", "replace").decode(),
        hint="/openapi.json describes the requests.",
        details={"fields": named},
    )
    return respond_to_pool_error(refusal, request_id_of(request))


async def on_http_error(request: Request, error: Exception) -> Response:
    refusal = cast("HTTPException", error)
    codes = {
        HTTPStatus.NOT_FOUND: ("no_such_route", "the pool has nothing at this address"),
        HTTPStatus.METHOD_NOT_ALLOWED: (
            "method_not_allowed",
            f"{request.method} is not possible here",
        ),
        HTTPStatus.BAD_REQUEST: ("invalid_request", "the body cannot be read"),
    }
    status = HTTPStatus(refusal.status_code)
    code, message = codes.get(status, ("refused", status.phrase))
    return error_response(
        refusal.status_code,
        code,
        message,
        hint="/openapi.json lists the pool's addresses.",
        request_id=request_id_of(request),
        headers=refusal.headers,
    )


def install_error_handlers(app: FastAPI) -> None:
    app.add_exception_handler(PoolError, on_pool_error)
    app.add_exception_handler(RequestValidationError, on_invalid_request)
    app.add_exception_handler(HTTPException, on_http_error)


def error_text(kind: type[PoolError]) -> str:
    """Return the meaning of an error, for the documentation."""
    return inspect.getdoc(kind) or ""


USUAL_RESPONSES: dict[int | str, dict[str, object]] = {
    kind.status: {"model": ErrorResponse, "description": error_text(kind)}
    for kind in (
        NotAuthenticatedError,
        NotAllowedError,
        MissingError,
        ConflictError,
        DatabaseUnavailableError,
        InvalidRequestError,
        InternalError,
    )
}
"""The errors that a route of the API may have."""
