"""Sending a published file, from here or from where the storage keeps it."""

from __future__ import annotations

import base64
from urllib.parse import quote

from fastapi.responses import RedirectResponse
from starlette.responses import Response

from pool_server.http.file_response import OpenFileResponse
from pool_server.http.session import ServerParts


def send_content(parts: ServerParts, digest: str, size_bytes: int, file_name: str) -> Response:
    """Return the answer that holds a published file, or leads to it."""
    address = parts.storage.content_url(digest, file_name)
    if address is not None:
        return RedirectResponse(address, status_code=307)
    return OpenFileResponse(
        parts.storage.open_content(digest),
        size_bytes,
        etag=digest,
        headers={
            "content-type": "application/octet-stream",
            "content-disposition": f"attachment; filename*=UTF-8''{quote(file_name)}",
            "x-content-sha256": digest,
            # RFC 9530: of the whole file, whatever range is sent.
            "repr-digest": f"sha-256=:{base64.b64encode(bytes.fromhex(digest)).decode()}:",
            "cache-control": "private, no-cache",
        },
    )
