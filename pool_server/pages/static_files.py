"""The files that pages load: a style sheet, a script and a picture, each under its digest.

An address with a digest means the same bytes for ever, so browsers need not ask again.
"""

from __future__ import annotations

import gzip
import hashlib
from pathlib import Path
from typing import NamedTuple

from fastapi import APIRouter, Request
from starlette.responses import Response

from pool_server.errors import MissingError

_FOLDER = Path(__file__).parent / "static"
_TYPES = {".css": "text/css", ".js": "text/javascript", ".svg": "image/svg+xml"}

router = APIRouter(include_in_schema=False)


class StaticFile(NamedTuple):
    """One file, also compressed."""

    address: str
    content: bytes
    compressed: bytes
    media_type: str


def _read(path: Path) -> StaticFile:
    content = path.read_bytes()
    address = f"/static/{hashlib.sha256(content).hexdigest()[:16]}/{path.name}"
    return StaticFile(address, content, gzip.compress(content, 9, mtime=0), _TYPES[path.suffix])


FILES = {path.name: _read(path) for path in sorted(_FOLDER.iterdir()) if path.suffix in _TYPES}


def static_address(name: str) -> str:
    """Return the address of a file of the folder ``static``."""
    return FILES[name].address


@router.get("/static/{digest}/{name}")
async def static_file(request: Request, digest: str, name: str) -> Response:
    """Return a file under the digest of its bytes, and under no other."""
    found = FILES.get(name)
    if found is None or found.address != f"/static/{digest}/{name}":
        raise MissingError(
            f"the pool has no file {name!r} with the digest {digest}",
            hint="Load the page anew: it names the files that belong to it.",
        )
    headers = {"cache-control": "public, max-age=31536000, immutable", "vary": "accept-encoding"}
    if "gzip" in request.headers.get("accept-encoding", ""):
        headers["content-encoding"] = "gzip"
        return Response(found.compressed, headers=headers, media_type=found.media_type)
    return Response(found.content, headers=headers, media_type=found.media_type)
