"""Reading files in pieces, and saying how much of them is done."""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import BinaryIO

from site_agent.errors import NotFoundError

CHUNK_BYTES = 1 << 20


def chunks(file: BinaryIO, offset: int, size_bytes: int) -> Iterator[bytes]:
    """Give `size_bytes` bytes from `offset` on, a megabyte at a time.

    Raises
    ------
    NotFoundError
        When the file has become shorter meanwhile.
    """
    position, end = offset, offset + size_bytes
    while position < end:
        chunk = os.pread(file.fileno(), min(CHUNK_BYTES, end - position), position)
        if not chunk:
            raise NotFoundError(
                f"{file.name}: ends at byte {position}, expected {end}: was it changed meanwhile?"
            )
        yield chunk
        position += len(chunk)


def megabytes(count: int) -> str:
    return f"{count / 1e6:.1f} MB"
