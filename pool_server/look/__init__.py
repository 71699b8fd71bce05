"""The common look of a pool's pages and of a lab's own app: style sheet, icons, static files."""

import gzip
import hashlib
from pathlib import Path
from typing import NamedTuple

from jinja2 import Environment, FileSystemLoader, StrictUndefined
from starlette.requests import Request
from starlette.responses import Response

FOLDER = Path(__file__).parent
_TYPES = {".css": "text/css", ".js": "text/javascript", ".svg": "image/svg+xml"}


class StaticFile(NamedTuple):
    """One file, also compressed."""

    address: str
    content: bytes
    compressed: bytes
    media_type: str

    def respond(self, request: Request) -> Response:
        """Return the file, compressed where the browser takes that; it may be kept for ever."""
        headers = {
            "cache-control": "public, max-age=31536000, immutable",
            "vary": "accept-encoding",
        }
        content = self.content
        if "gzip" in request.headers.get("accept-encoding", ""):
            content, headers["content-encoding"] = self.compressed, "gzip"
        return Response(content, headers=headers, media_type=self.media_type)


def read_static(folder: Path) -> dict[str, StaticFile]:
    """Return the files of the look and of a folder, each under the digest of its bytes."""
    return {
        path.name: _read(path)
        for place in (FOLDER, folder)
        for path in sorted(place.iterdir())
        if path.suffix in _TYPES
    }


def _read(path: Path) -> StaticFile:
    content = path.read_bytes()
    address = f"/static/{hashlib.sha256(content).hexdigest()[:16]}/{path.name}"
    return StaticFile(address, content, gzip.compress(content, 9, mtime=0), _TYPES[path.suffix])


def page_environment(templates: Path) -> Environment:
    """Return an environment of templates that escapes every value and knows the look's icons."""
    return Environment(
        loader=FileSystemLoader([templates, FOLDER]),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
