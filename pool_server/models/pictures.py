"""Pictures of models, drawn from their files on first request.

A file never changes, so each is drawn once, in a limited child process as for its check, and the
picture is stored by the file's digest. Backups leave pictures out: they can be drawn again.
"""

import base64
from typing import Annotated, Literal

import anyio.to_thread
from anyio.lowlevel import RunVar
from fastapi import APIRouter, Path
from sqlalchemy.orm import Session
from starlette.responses import Response

from pool_server.database.engine import write_with_retry
from pool_server.database.records import PictureRecord
from pool_server.errors import FormatRefusedError, MissingError
from pool_server.http.identity import Caller, SignedIn, needs
from pool_server.http.session import Parts, ServerParts
from pool_server.jobs.limited import MEMORY_FACTOR, Limits, run_limited
from pool_server.registry.repository import bare_versions, find_anywhere
from pool_server.wire.names import Digest

router = APIRouter(tags=["models"], dependencies=[needs("models:read")])
Size = Literal["thumb", "large"]
CONCURRENT_DRAWINGS = 2
"""Pictures drawn at once by one process; further requests wait without a thread."""
HEADERS = {
    "cache-control": "private, max-age=31536000, immutable",
    "content-security-policy": "default-src 'none'; sandbox",
    "content-disposition": "inline",
}
TRY_AGAIN = {"cache-control": "private, max-age=3600"}
NO_PICTURE = (
    b'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 100 100"><path d="M25 25 75 75M75 25 25 '
    b'75" stroke="#808080" stroke-width="3"/></svg>'
)
"""The picture of a file that cannot be drawn."""

_limiter: RunVar[anyio.CapacityLimiter] = RunVar("pool_picture_limiter")


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
    digest: Annotated[
        Digest, Path(description="SHA-256 of the model's file.", examples=["60ab" * 16])
    ],
    size: Annotated[Size, Path(description="`thumb` or `large`.", examples=["thumb"])],
) -> Response:
    """Return a drawing: filters of a detector, the mean shape of landmarks, layers of a network.

    For users with access to a version of the file.
    """
    drawing = await anyio.to_thread.run_sync(find_picture, parts, caller, digest, size)
    if drawing is None:
        drawing = await anyio.to_thread.run_sync(
            draw_picture, parts, digest, size, limiter=_draw_limiter()
        )
    if drawing is None:
        return Response(NO_PICTURE, headers=HEADERS | TRY_AGAIN, media_type="image/svg+xml")
    return Response(drawing.content, headers=HEADERS, media_type=drawing.media_type)


def _draw_limiter() -> anyio.CapacityLimiter:
    try:
        return _limiter.get()
    except LookupError:
        limiter = anyio.CapacityLimiter(CONCURRENT_DRAWINGS)
        _limiter.set(limiter)
        return limiter


def find_picture(
    parts: ServerParts, caller: Caller, digest: str, size: Size
) -> PictureRecord | None:
    """Return a stored picture; None if it has not been drawn yet."""
    with parts.database.read() as session:
        if find_anywhere(session, caller, digest, bare_versions) is None:
            raise MissingError(
                f"the pool has no model with digest {digest}",
                code="version_not_found",
                hint="`poolctl models ls` lists those that you may see.",
            )
        return session.get(PictureRecord, (digest, size))


def draw_picture(parts: ServerParts, digest: str, size: Size) -> PictureRecord | None:
    """Draw a file and store the picture; return None if it cannot be drawn."""
    with parts.database.read() as session:
        drawn = session.get(PictureRecord, (digest, size))
    if drawn is not None:
        # Another request was first.
        return drawn
    answer = _draw(parts, digest, size)
    if answer is None:
        return None
    media_type, content = answer["media_type"], base64.b64decode(answer["content"])

    def keep(session: Session) -> PictureRecord:
        record = PictureRecord(digest=digest, size=size, media_type=media_type, content=content)
        return session.merge(record)

    return write_with_retry(parts.database, keep)


def _draw(parts: ServerParts, digest: str, size: Size) -> dict[str, str] | None:
    settings = parts.settings
    with parts.storage.content_file(digest) as path:
        memory_bytes = settings.check_memory_bytes + MEMORY_FACTOR * path.stat().st_size
        try:
            return run_limited(
                "pool_server.jobs.drawing",
                {"path": str(path), "size": size},
                Limits(memory_bytes, settings.check_time_s),
                activity=f"drawing {digest}",
            )
        except FormatRefusedError:
            return None
