"""Parts of files: where clients send them, and how the server writes them to the storage."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import suppress

from pool_server.database.records import UploadRecord
from pool_server.http.identity import Caller
from pool_server.http.session import ServerParts
from pool_server.storage import PartWriter
from pool_server.storage.contract import PartPlan
from pool_server.transfers.service import get_receiving_upload
from pool_server.wire import uploads

SHA256_DIGITS = 64
# The network's small pieces are handed on in larger ones: each change of thread costs.
BATCH_BYTES = 256 * 1024


def address_parts(
    parts: ServerParts, caller: Caller, upload_id: str, request: uploads.PartAddressesRequest
) -> uploads.PartAddressList:
    """Return where some parts of an upload go."""
    upload = get_receiving_upload(parts, caller, upload_id)
    plan = PartPlan(upload.size_bytes, upload.part_bytes)
    find = _address_in_storage if parts.storage.takes_parts else _address_at_server
    return uploads.PartAddressList(
        items=[find(parts, upload, part, plan.size_of(part.number)) for part in request.parts]
    )


def _address_in_storage(
    parts: ServerParts, upload: UploadRecord, part: uploads.OfferedPart, size_bytes: int
) -> uploads.PartAddressResponse:
    address = parts.storage.part_address(
        upload.storage_handle, part.number, size_bytes, part.checksum
    )
    return uploads.PartAddressResponse(
        number=part.number,
        url=address.url,
        headers=dict(address.headers),
        expires_at=address.expires_at,
    )


def _address_at_server(
    _parts: ServerParts, upload: UploadRecord, part: uploads.OfferedPart, size_bytes: int
) -> uploads.PartAddressResponse:
    headers = {"Content-Length": str(size_bytes)}
    if part.checksum is not None and len(part.checksum) == SHA256_DIGITS:
        headers["X-Part-SHA256"] = part.checksum
    return uploads.PartAddressResponse(
        number=part.number, url=f"/api/v1/uploads/{upload.id}/parts/{part.number}", headers=headers
    )


async def receive_part(
    pieces: AsyncIterator[bytes], writer: PartWriter, digest: str | None
) -> None:
    """Write all of `pieces` and make the part count.

    While a thread hashes and writes one batch, the next is received; memory stays at two
    batches. Whatever goes wrong, a client that vanishes included, leaves no part behind.
    """
    writing: asyncio.Task[None] | None = None
    try:
        async for batch in in_batches(pieces):
            if writing is not None:
                await asyncio.shield(writing)
            writing = asyncio.create_task(asyncio.to_thread(writer.write, batch))
        if writing is not None:
            await asyncio.shield(writing)
        writing = asyncio.create_task(asyncio.to_thread(writer.finish, digest))
        await asyncio.shield(writing)
    finally:
        # A thread cannot be stopped; its file is closed only after it has ended.
        if writing is not None and not writing.done():
            with suppress(Exception):
                await asyncio.shield(writing)
        await asyncio.to_thread(writer.discard)


async def in_batches(pieces: AsyncIterator[bytes]) -> AsyncIterator[bytes]:
    """Join small pieces to batches of about `BATCH_BYTES`."""
    waiting: list[bytes] = []
    waiting_bytes = 0
    async for piece in pieces:
        waiting.append(piece)
        waiting_bytes += len(piece)
        if waiting_bytes >= BATCH_BYTES:
            yield b"".join(waiting)
            waiting, waiting_bytes = [], 0
    if waiting_bytes:
        yield b"".join(waiting)
