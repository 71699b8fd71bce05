"""Answers that hold a file or a range of it, in constant memory, or lead to where it is stored.

How a download works: the client asks for a version (`registry.endpoints.download`), and the pool
checks its state and the client's rights; a download is recorded once for each site, so that the
owner sees the sites that have the file. `send_content` then answers with the bytes from the
storage, or, where an object store can send them itself, leads there by an address that is good for
some minutes. The client asks for large files in ranges, several at once, goes on with `Range` and
`If-Range` after an interruption, and compares the SHA-256 of the whole file in the end: nobody on
the way has to be believed.
"""

import base64
import re
from collections.abc import Mapping
from typing import BinaryIO
from urllib.parse import quote

import anyio.to_thread
from starlette.datastructures import Headers
from starlette.responses import RedirectResponse, Response
from starlette.types import Receive, Scope, Send

from pool_server.errors import VersionWithdrawnError
from pool_server.http.error_responses import document_errors, error_response
from pool_server.http.session import ServerParts
from pool_server.wire.errors import ErrorResponse

CHUNK_BYTES = 1024 * 1024
_RANGE = re.compile(r"^bytes=(?:([0-9]{1,18})-([0-9]{0,18})|-([0-9]{1,18}))$")

CONTENT_RESPONSES = document_errors(VersionWithdrawnError) | {
    200: {
        "description": "The whole file.",
        "content": {"application/octet-stream": {"schema": {"type": "string", "format": "binary"}}},
    },
    206: {
        "description": "The range asked for.",
        "content": {"application/octet-stream": {"schema": {"type": "string", "format": "binary"}}},
    },
    304: {"description": "The client has this content already (`If-None-Match`)."},
    307: {"description": "The file lies elsewhere; follow `Location` without the token."},
    416: {"model": ErrorResponse, "description": "There is no such byte in the file."},
}


class UnsatisfiableRangeError(Exception):
    """The range begins behind the end of the file."""


def requested_range(header: str | None, size_bytes: int) -> tuple[int, int] | None:
    """Return the half-open range of bytes that a `Range` header asks for.

    None means the whole file: no header, one that cannot be read, or several ranges at once
    (RFC 9110 section 14.2 lets a server ignore those). Raises `UnsatisfiableRangeError` where the
    file ends before the range begins.
    """
    match = _RANGE.fullmatch(header.replace(" ", "")) if header else None
    if match is None:
        return None
    if match[3] is not None:
        first, end = max(0, size_bytes - int(match[3])), size_bytes
    else:
        first = int(match[1])
        end = min(size_bytes, int(match[2]) + 1) if match[2] else size_bytes
        if match[2] and int(match[2]) < first:
            return None
    if first >= size_bytes or first >= end:
        raise UnsatisfiableRangeError
    return first, end


def names_this(request: Headers, etag: str) -> bool:
    """Return whether the client has the content already, by `If-None-Match`."""
    known = [tag.strip().removeprefix("W/") for tag in request.get("if-none-match", "").split(",")]
    return etag in known or known == ["*"]


class OpenFileResponse(Response):
    """Sends an open file, honouring `Range`, `If-Range` and `If-None-Match`.

    `etag` names the content itself (a digest), so that a client that goes on with an
    interrupted download can never join bytes of two different files.
    """

    def __init__(
        self, file: BinaryIO, size_bytes: int, etag: str, headers: Mapping[str, str]
    ) -> None:
        self.file = file
        self.size_bytes = size_bytes
        self.etag = f'"{etag}"'
        self.plain_headers = {**headers, "accept-ranges": "bytes", "etag": self.etag}
        self.background = None

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        try:
            await self._respond(Headers(scope=scope), scope, receive, send)
        finally:
            with anyio.CancelScope(shield=True):
                await anyio.to_thread.run_sync(self.file.close)

    async def _respond(self, request: Headers, scope: Scope, receive: Receive, send: Send) -> None:
        if names_this(request, self.etag):
            await Response(status_code=304, headers=self.plain_headers)(scope, receive, send)
            return
        honours_range = request.get("if-range", self.etag) == self.etag
        try:
            range_ = requested_range(
                request.get("range") if honours_range else None, self.size_bytes
            )
        except UnsatisfiableRangeError:
            refusal = error_response(
                416,
                "range_not_satisfiable",
                f"the file has {self.size_bytes:,} bytes; asked for {request.get('range')!r}",
                request_id=str(scope.get("pool_request_id", "")),
                headers={"Content-Range": f"bytes */{self.size_bytes}"},
            )
            await refusal(scope, receive, send)
            return
        await self._send_range(range_, scope, send)

    async def _send_range(self, range_: tuple[int, int] | None, scope: Scope, send: Send) -> None:
        first, end = range_ or (0, self.size_bytes)
        headers = dict(self.plain_headers)
        headers["content-length"] = str(end - first)
        if range_ is not None:
            headers["content-range"] = f"bytes {first}-{end - 1}/{self.size_bytes}"
        await send(
            {
                "type": "http.response.start",
                "status": 206 if range_ is not None else 200,
                "headers": [
                    (name.lower().encode("latin-1"), value.encode("latin-1"))
                    for name, value in headers.items()
                ],
            }
        )
        if scope["method"] == "HEAD":
            await send({"type": "http.response.body", "body": b"", "more_body": False})
            return
        await anyio.to_thread.run_sync(self.file.seek, first)
        left = end - first
        while left > 0:
            chunk = await anyio.to_thread.run_sync(self.file.read, min(CHUNK_BYTES, left))
            if not chunk:
                raise OSError(f"the file ended {left:,} bytes early")
            left -= len(chunk)
            await send({"type": "http.response.body", "body": chunk, "more_body": left > 0})


def send_content(
    parts: ServerParts,
    digest: str,
    size_bytes: int,
    file_name: str,
    more_headers: Mapping[str, str] | None = None,
) -> Response:
    """Return the answer that holds a published file, or leads to it."""
    headers = {
        "content-type": "application/octet-stream",
        "content-disposition": f"attachment; filename*=UTF-8''{quote(file_name)}",
        "x-content-sha256": digest,
        # RFC 9530: of the whole file, whatever range is sent.
        "repr-digest": f"sha-256=:{base64.b64encode(bytes.fromhex(digest)).decode()}:",
        "cache-control": "private, no-cache",
        **(more_headers or {}),
    }
    address = parts.storage.content_url(digest, file_name)
    if address is not None:
        return StoredElsewhereResponse(address, size_bytes, digest, headers)
    return OpenFileResponse(parts.storage.open_content(digest), size_bytes, digest, headers)


class StoredElsewhereResponse(Response):
    """Redirects to the file in the storage; answers `HEAD` itself.

    The address is good for reading and nothing else, and for some minutes, so nobody may keep
    this answer.
    """

    def __init__(
        self, address: str, size_bytes: int, etag: str, headers: Mapping[str, str]
    ) -> None:
        self.address = address
        self.size_bytes = size_bytes
        self.etag = f'"{etag}"'
        self.plain_headers = {**headers, "etag": self.etag}
        self.background = None

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        await self._answer(Headers(scope=scope), scope["method"])(scope, receive, send)

    def _answer(self, request: Headers, method: str) -> Response:
        if names_this(request, self.etag):
            return Response(status_code=304, headers=self.plain_headers)
        if method == "HEAD":
            length = {"content-length": str(self.size_bytes), "accept-ranges": "bytes"}
            return Response(headers=self.plain_headers | length)
        headers = {**self.plain_headers, "cache-control": "no-store"}
        del headers["content-type"], headers["content-disposition"]
        return RedirectResponse(self.address, status_code=307, headers=headers)
