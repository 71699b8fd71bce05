"""Locks between processes."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from filelock import FileLock, Timeout

_POLL_INTERVAL_S = 0.02


@contextmanager
def locked(path: Path, *, busy: Exception | None = None) -> Iterator[None]:
    """Hold the lock of a file that serves as nothing else; it is created if necessary.

    The lock excludes other processes and other threads, and ends with the process, even if that is
    killed.

    `busy`: Raised if another process or thread holds the lock; by default this waits.
    """
    lock = FileLock(path, mode=0o600)
    try:
        lock.acquire(timeout=0 if busy else -1, poll_interval=_POLL_INTERVAL_S)
    except Timeout:
        assert busy is not None
        raise busy from None
    try:
        yield
    finally:
        lock.release()
