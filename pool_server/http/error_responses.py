"""Refusals as `ErrorResponse`, and their description in the API's schema.

Its examples of requests and answers are made from the schemas.
"""

import inspect
from collections.abc import Mapping
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
from pool_server.wire.names import DIGEST_PATTERN

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
        hint="/docs describes the requests.",
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
        hint="/docs lists the pool's addresses.",
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


def document_errors(*errors: type[PoolError]) -> dict[int | str, dict[str, object]]:
    """Return the `responses` of a route with errors that few other routes have."""
    responses: dict[int | str, dict[str, object]] = {}
    for kind in errors:
        text = error_text(kind)
        example = {"error": {"code": kind.code, "message": text, "hint": "", "details": {}}}
        responses[kind.status] = {
            "model": ErrorResponse,
            "description": text,
            "content": {"application/json": {"example": example}},
        }
    return responses


USUAL_RESPONSES = document_errors(
    NotAuthenticatedError,
    NotAllowedError,
    MissingError,
    ConflictError,
    DatabaseUnavailableError,
    InvalidRequestError,
    InternalError,
)
"""The errors that a route of the API may have without documenting them itself."""


_DIGEST = "9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08"
_ADDRESS = "pool://site-a/face-68@2"
_KEY = "11qYAYKxCrfVS/7TyWQHOg7hcvPapiMlrwIaaPcHURo="
_BY_NAME: dict[str, object] = {
    "address": _ADDRESS,
    "addresses": [_ADDRESS],
    "attacks": [{"name": "membership", "measure": "AUC", "found": {"value": 0.81}}],
    "base": _ADDRESS,
    "charter": _DIGEST,
    "checksum": _DIGEST,
    "code": "DUO:0000042",
    "created_by": "site-a/laptop",
    "dataset": "ward-2026",
    "deadline": "2026-03-08T12:00:00Z",
    "email": "ada@lab.example",
    "envelope": '{"payloadType": "...", "payload": "...", "signatures": []}',
    "file_name": "siteA.dat",
    "kind": "ert",
    "labels": {"population": "infant"},
    "metrics": {"mean_error": 0.0727},
    "model": _ADDRESS,
    "name": "face-68",
    "next_cursor": "djE6YmVmb3JlPTQy",
    "number": 1,
    "origin": "site-a@pool.example.org",
    "phase": "share",
    "public_key": _KEY,
    "reason": "quality",
    "recipe": {
        "schema": "poolctl-recipe/1",
        "method": {"name": "wba-cascade", "version": 1},
        "options": {"step": 1.1},
        "inputs": [{"digest": _DIGEST, "weight": 1.5, "address": _ADDRESS}],
    },
    "round_id": "4f1d2c3b4a596877",
    "scores": {"mean_error": {"value": 0.0727, "low": 0.0701, "high": 0.0755}},
    "sender": "site-a",
    "servers": ["server-1", "server-2"],
    "site": "site-a",
    "sites": ["site-a", "site-b"],
    "size_bytes": 123_456_789,
    "token_id": "4f1d2c3b4a596877",
    "url": "/api/v1/uploads/0123456789abcdef0123456789abcdef/parts/1",
}
"""Examples of fields by their names, which mean the same in all requests and answers."""
_OF_TYPE = {"number": 0.5, "boolean": False, "string": "...", "null": None}


def add_examples(schema: dict[str, Any]) -> dict[str, Any]:
    """Add an example to each type of the schema; that of a request has its required fields."""
    types = schema["components"]["schemas"]
    for name, described in types.items():
        described.setdefault("examples", [_example(described, types, name.endswith("Request"))])
    return schema


def _example(described: Mapping[str, Any], types: Mapping[str, Any], is_request: bool) -> Any:
    said = [*described.get("examples", ()), *described.get("enum", ())]
    said += [described[word] for word in ("const", "default") if described.get(word) is not None]
    if said:
        return said[0]
    for word in ("anyOf", "allOf", "oneOf"):
        if word in described:
            return _example(described[word][0], types, is_request)
    if "$ref" in described:
        return _example(types[described["$ref"].rsplit("/", 1)[-1]], types, is_request)
    kind = described.get("type", "object")
    if kind == "array":
        return [_example(described.get("items", {}), types, is_request)]
    if kind == "object":
        fields = described.get("properties", {})
        shown = described.get("required") or fields if is_request else fields
        return {name: _of_field(name, fields[name], types, is_request) for name in shown}
    return _plain_example(kind, described)


def _plain_example(kind: str, described: Mapping[str, Any]) -> Any:
    if described.get("pattern") == DIGEST_PATTERN:
        return _DIGEST
    if described.get("format") == "date-time":
        return "2026-03-01T12:00:00Z"
    if described.get("format") == "date":
        return "2026-03-01"
    return int(described.get("minimum", 1)) if kind == "integer" else _OF_TYPE[kind]


def _of_field(
    name: str, described: Mapping[str, object], types: Mapping[str, object], is_request: bool
) -> object:
    example = _example(described, types, is_request)
    known = _BY_NAME.get(name, example)
    # A field that is text in one type may be an object in another.
    return known if type(known) is type(example) and not described.get("enum") else example
