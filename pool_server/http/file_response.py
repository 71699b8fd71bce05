"""Answers that hold a file or a range of it, in constant memory, or lead to where it is stored.

How a download works: the client asks for a version (`registry.endpoints.download`), and the pool
checks its state and the client's rights; a download is recorded once for each site, so that the
owner sees the sites that have the file. `send_content` then answers with the bytes from the
storage, or, where an object store can send them itself, leads there by an address that is good for
some minutes. The client asks for large files in ranges, several at once, goes on with `Range` and
`If-Range` after an interruption, and compares the SHA-256 of the whole file in the end: nobody on
the way must be trusted.
"""

import re
from collections.abc import Mapping
from pathlib import Path
from urllib.parse import quote

from starlette.datastructures import Headers
from starlette.responses import FileResponse, RedirectResponse, Response
from starlette.types import Receive, Scope, Send

from pool_server.http.error_responses import error_response
from pool_server.http.session import ServerParts
from pool_server.wire.errors import ErrorResponse

CHUNK_BYTES = 1024 * 1024
_ONE_RANGE = re.compile("bytes=(?:([0-9]{1,18})-([0-9]{1,18})?|-0*[1-9][0-9]{0,17})")

CONTENT_RESPONSES: dict[int | str, dict[str, object]] = {
    200: {
        "description": "The whole file.",
        "content": {"application/octet-stream": {"schema": {"type": "string", "format": "binary"}}},
    },
    206: {
        "description": "The range asked for.",
        "content": {"application/octet-stream": {"schema": {"type": "string", "format": "binary"}}},
    },
    307: {"description": "The file lies elsewhere; follow `Location` without the token."},
    416: {"model": ErrorResponse, "description": "There is no such byte in the file."},
}


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
        "cache-control": "private, no-cache",
        "etag": f'"{digest}"',
        **(more_headers or {}),
    }
    return ContentResponse(parts.storage.content_source(digest, file_name), size_bytes, headers)


class ContentResponse(Response):
    """Sends a file or a range of it, or redirects to where it is stored.

    The `etag` names the content itself (a digest), so that a client that goes on with an
    interrupted download can never join bytes of two different files.
    """

    def __init__(self, source: Path | str, size_bytes: int, headers: Mapping[str, str]) -> None:
        self.source = source
        self.size_bytes = size_bytes
        self.plain_headers = headers
        self.background = None

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        request, etag = Headers(scope=scope), self.plain_headers["etag"]
        if isinstance(self.source, str):
            response = self._lead_to(self.source, scope["method"])
        else:
            response = FileResponse(self.source, headers=self.plain_headers)
            response.chunk_size = CHUNK_BYTES
            match = _ONE_RANGE.fullmatch(request.get("range", ""))
            backwards = match and match[2] and int(match[2]) < int(match[1])
            if match is None or backwards or request.get("if-range", etag) != etag:
                # RFC 9110 section 14: invalid ones are passed over, and several may be.
                others = [(name, value) for name, value in scope["headers"] if name != b"range"]
                scope = {**scope, "headers": others}
            elif match[1] and int(match[1]) >= self.size_bytes:
                response = error_response(
                    416,
                    "range_not_satisfiable",
                    f"the file has {self.size_bytes:,} bytes; asked for {match[0]!r}",
                    request_id=str(scope.get("pool_request_id", "")),
                    headers={"Content-Range": f"bytes */{self.size_bytes}"},
                )
        await response(scope, receive, send)

    def _lead_to(self, address: str, method: str) -> Response:
        """Redirect to the file in the storage; answer `HEAD` here.

        The address is good for reading and nothing else, and for some minutes, so nobody may keep
        this answer.
        """
        if method == "HEAD":
            length = {"content-length": str(self.size_bytes), "accept-ranges": "bytes"}
            return Response(headers={**self.plain_headers, **length})
        headers = {**self.plain_headers, "cache-control": "no-store"}
        del headers["content-type"], headers["content-disposition"]
        return RedirectResponse(address, status_code=307, headers=headers)
