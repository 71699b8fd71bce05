"""Files of long work: read in pieces, recognised under any name, locked."""

import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO

from site_agent.errors import NotFoundError

CHUNK_BYTES = 1 << 20


def chunks(file: BinaryIO, offset: int, size_bytes: int) -> Iterator[bytes]:
    """Give `size_bytes` bytes from `offset` on, a megabyte at a time."""
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


def file_identity(path: Path) -> tuple[int, int] | None:
    """Return the identity of the file at a path; None where no file is.

    Links and names that differ in case lead to the same one. For many paths at once; two are
    compared by `Path.samefile`.
    """
    try:
        found = path.stat()
    except OSError:
        return None
    return found.st_dev, found.st_ino


@contextmanager
def locked(path: Path, *, busy: Exception | None = None) -> Iterator[None]:
    """Hold the lock of a file, which is created if necessary.

    The lock excludes other processes and other threads, and ends with the process, even when that
    is killed.

    `busy`: raised when somebody else holds the lock; by default this waits.
    """
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT, 0o600)
    try:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | (fcntl.LOCK_NB if busy else 0))
        except BlockingIOError:
            assert busy is not None
            raise busy from None
        yield
    finally:
        os.close(descriptor)
