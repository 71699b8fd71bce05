"""Refusals: every answer with a status of 400 or more is an `ErrorResponse`."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from http import HTTPStatus
from typing import Any, cast

from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse
from starlette.exceptions import HTTPException
from starlette.responses import Response

from pool_server.errors import (
    ConflictError,
    DatabaseUnavailableError,
    MissingError,
    NotAllowedError,
    NotAuthenticatedError,
    PoolError,
    WriteConflictError,
)
from pool_server.http.audit import record_refusal
from pool_server.http.error_table import ERROR_TABLE, ErrorEntry, entry_of
from pool_server.wire.errors import ErrorBody, ErrorResponse, problem_words

MOST_FIELDS_NAMED = 5
# Faults that pass by themselves, and the seconds after which they may have.
RETRY_AFTER_S = {"upload_busy": "1", "write_conflict": "1", "database_unavailable": "2"}
INVALID_REQUEST = ErrorEntry(
    422, "invalid_request", "A field of the request is missing, unknown or not as described."
)
INTERNAL_ERROR = ErrorEntry(
    500, "internal_error", "Something unexpected happened; the pool's log has the details."
)
REQUEST_TIMEOUT = ErrorEntry(
    408, "request_timeout", "The rest of the request did not come in time."
)
BODY_TOO_LARGE = ErrorEntry(413, "too_large", "The request's body is larger than allowed.")


def error_response(
    status: int,
    code: str,
    message: str,
    *,
    hint: str = "",
    details: Mapping[str, Any] | None = None,
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
    entry = entry_of(error)
    headers = {}
    if entry.status == HTTPStatus.UNAUTHORIZED:
        headers["WWW-Authenticate"] = 'Bearer realm="pool"'
    if entry.code in RETRY_AFTER_S:
        headers["Retry-After"] = RETRY_AFTER_S[entry.code]
    if "retry_after_s" in error.details:
        headers["Retry-After"] = str(error.details["retry_after_s"])
    return error_response(
        entry.status,
        entry.code,
        error.message if entry.shows_message else entry.text,
        hint=error.hint,
        details=error.details if entry.shows_message else {},
        request_id=request_id,
        headers=headers,
    )


def request_id_of(request: Request) -> str:
    return str(request.scope.get("pool_request_id", ""))


async def on_pool_error(request: Request, error: Exception) -> Response:
    if isinstance(error, WriteConflictError):
        # `pool_server.http.middleware` handles the request anew.
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
    message = "; ".join(f"{each['where']}: {each['problem']}" for each in named)
    if len(problems) > MOST_FIELDS_NAMED:
        message += f"; and {len(problems) - MOST_FIELDS_NAMED} more"
    return error_response(
        INVALID_REQUEST.status,
        INVALID_REQUEST.code,
        message.encode("utf-8", "replace").decode(),
        hint="/docs describes the requests.",
        details={"fields": named},
        request_id=request_id_of(request),
    )


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
        hint="/docs lists the pool's addresses.",
        request_id=request_id_of(request),
        headers=refusal.headers,
    )


def install_error_handlers(app: FastAPI) -> None:
    app.add_exception_handler(PoolError, on_pool_error)
    app.add_exception_handler(RequestValidationError, on_invalid_request)
    app.add_exception_handler(HTTPException, on_http_error)


def document_errors(*errors: type[PoolError]) -> dict[int | str, dict[str, Any]]:
    """Return the `responses` of a route with errors that few other routes have."""
    return _describe_entries([ERROR_TABLE[error] for error in errors])


def _describe_entries(entries: Iterable[ErrorEntry]) -> dict[int | str, dict[str, Any]]:
    responses: dict[int | str, dict[str, Any]] = {}
    for entry in entries:
        example = {"error": {"code": entry.code, "message": entry.text, "hint": "", "details": {}}}
        responses[entry.status] = {
            "model": ErrorResponse,
            "description": entry.text,
            "content": {"application/json": {"example": example}},
        }
    return responses


USUAL_RESPONSES = _describe_entries(
    [
        *(
            ERROR_TABLE[kind]
            for kind in (
                NotAuthenticatedError,
                NotAllowedError,
                MissingError,
                ConflictError,
                DatabaseUnavailableError,
            )
        ),
        INVALID_REQUEST,
        INTERNAL_ERROR,
    ]
)
"""The errors that a route of the API may have without documenting them itself."""
