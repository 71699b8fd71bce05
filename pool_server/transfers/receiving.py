"""Streaming one part from the network to the storage."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import suppress

from pool_server.storage import PartWriter

# The network's small pieces are handed on in larger ones: each change of thread costs.
BATCH_BYTES = 256 * 1024


async def receive_part(
    pieces: AsyncIterator[bytes], writer: PartWriter, digest: str | None
) -> None:
    """Write all of `pieces` and make the part count.

    While a thread hashes and writes one batch, the next is received; memory stays at two
    batches. Whatever goes wrong, a client that vanishes included, leaves no part behind.

    Raises
    ------
    PartMismatchError, StorageFullError, StorageFailedError
        As the writer says.
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
