"""Sending a published file, from here or from where the storage keeps it."""

from __future__ import annotations

import base64
from collections.abc import Mapping
from urllib.parse import quote

from starlette.datastructures import Headers
from starlette.responses import RedirectResponse, Response
from starlette.types import Receive, Scope, Send

from pool_server.http.file_response import OpenFileResponse, names_this
from pool_server.http.session import ServerParts


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
    """Leads to where the storage keeps a file; what is only asked about is answered here.

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
