"""Pictures of models, drawn from their files on first request.

A file never changes, so each is drawn once, in a limited child process as for its check, and the
picture is stored by the file's digest. Backups leave pictures out: they can be drawn again. Files
come from other sites, so a drawing's cost is bounded, and a failed one is not repeated soon.
"""

import base64
import time
from collections import OrderedDict
from functools import partial
from typing import Annotated, Any, Literal

import anyio.to_thread
from fastapi import APIRouter, Path
from sqlalchemy.orm import Session
from starlette.responses import Response

from pool_server.database.engine import write_with_retry
from pool_server.database.records import PictureRecord
from pool_server.errors import FormatRefusedError, MissingError
from pool_server.http.identity import Caller, SignedIn, needs
from pool_server.http.session import Parts, ServerParts, of_app
from pool_server.jobs.check_slots import CheckSlots
from pool_server.jobs.limited import MEMORY_FACTOR, Limits, run_limited
from pool_server.registry.repository import bare_versions, find_anywhere
from pool_server.wire.names import Digest

router = APIRouter(tags=["models"], dependencies=[needs("models:read")])
Size = Literal["thumb", "large"]
CONCURRENT_DRAWINGS = 2
"""Pictures drawn at once by one process, at most one of them from any site's files."""
MOST_TIME_S = 5.0
MOST_MEMORY_BYTES = 512 * 1024 * 1024
"""Memory of a drawing, besides `MEMORY_FACTOR` times the file."""
MOST_BYTES = 256 * 1024
"""The most bytes of a picture: they count towards no quota."""
MOST_FAILURES = 10_000
FAILED_FOR_S = 3600.0
HEADERS = {
    "cache-control": "private, max-age=31536000, immutable",
    "content-security-policy": "default-src 'none'; sandbox",
    "content-disposition": "inline",
}
TRY_AGAIN = {"cache-control": f"private, max-age={FAILED_FOR_S:.0f}"}
NO_PICTURE = (
    b'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 100 100"><path d="M25 25 75 75M75 25 25 '
    b'75" stroke="#808080" stroke-width="3"/></svg>'
)
"""The picture of a file that cannot be drawn."""

Key = tuple[str, Size]
"""Digest and size."""


class Drawings:
    """The drawings of one process: their order, and recent failures."""

    def __init__(self) -> None:
        self.slots = CheckSlots(CONCURRENT_DRAWINGS)
        self._failed_until_s: OrderedDict[Key, float] = OrderedDict()

    def has_failed(self, key: Key) -> bool:
        return self._failed_until_s.get(key, 0.0) > time.monotonic()

    def remember_failure(self, key: Key) -> None:
        self._failed_until_s[key] = time.monotonic() + FAILED_FOR_S
        self._failed_until_s.move_to_end(key)
        if len(self._failed_until_s) > MOST_FAILURES:
            self._failed_until_s.popitem(last=False)


@router.get(
    "/pictures/{digest}/{size}",
    summary="Show a picture of a model",
    response_class=Response,
    responses={
        200: {"description": "SVG, or PNG of a detector.", "content": {"image/svg+xml": {}}}
    },
)
async def picture(
    caller: SignedIn,
    parts: Parts,
    drawings: Annotated[Drawings, of_app("drawings")],
    digest: Annotated[Digest, Path(description="SHA-256 of the model's file.")],
    size: Annotated[Size, Path(description="`thumb` or `large`.")],
) -> Response:
    """Return a drawing: filters of a detector, the mean shape of landmarks, layers of a network.

    For users with access to a version of the file.
    """
    owner, drawn = await anyio.to_thread.run_sync(find_picture, parts, caller, digest, size)
    if drawn is None and not drawings.has_failed((digest, size)):
        drawn = await drawings.slots.run(
            owner, partial(draw_picture, parts, drawings, (digest, size))
        )
    if drawn is None:
        return Response(NO_PICTURE, headers=HEADERS | TRY_AGAIN, media_type="image/svg+xml")
    return Response(drawn.content, headers=HEADERS, media_type=drawn.media_type)


def find_picture(
    parts: ServerParts, caller: Caller, digest: str, size: Size
) -> tuple[str, PictureRecord | None]:
    """Return the site of a file, and its stored picture; None if it has not been drawn yet."""
    with parts.database.read() as session:
        version = find_anywhere(session, caller, digest, bare_versions)
        if version is None:
            raise MissingError(
                f"the pool has no model with digest {digest}",
                code="version_not_found",
                hint="`poolctl models ls` lists those that you may see.",
            )
        return version.model.site.name, session.get(PictureRecord, (digest, size))


def draw_picture(parts: ServerParts, drawings: Drawings, key: Key) -> PictureRecord | None:
    """Draw a file and store the picture; return None if it cannot be drawn."""
    digest, size = key
    with parts.database.read() as session:
        drawn = session.get(PictureRecord, key)
    # Another request may have been first.
    if drawn is not None or drawings.has_failed(key):
        return drawn
    answer = _draw(parts, digest, size)
    if answer is None or answer["content"] is None:
        drawings.remember_failure(key)
        return None
    media_type, content = answer["media_type"], base64.b64decode(answer["content"])

    def keep(session: Session) -> PictureRecord:
        record = PictureRecord(digest=digest, size=size, media_type=media_type, content=content)
        return session.merge(record)

    return write_with_retry(parts.database, keep)


def _draw(parts: ServerParts, digest: str, size: Size) -> dict[str, Any] | None:
    settings = parts.settings
    with parts.storage.content_file(digest) as path:
        most_memory_bytes = min(settings.check_memory_bytes, MOST_MEMORY_BYTES)
        try:
            return run_limited(
                "pool_server.jobs.drawing",
                {"path": str(path), "size": size, "most_bytes": MOST_BYTES},
                Limits(
                    most_memory_bytes + MEMORY_FACTOR * path.stat().st_size,
                    min(settings.check_time_s, MOST_TIME_S),
                ),
                activity=f"drawing {digest}",
            )
        except FormatRefusedError:
            return None
