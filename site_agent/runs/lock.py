"""Locks on files that end with the process that holds them."""

from __future__ import annotations

import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


@contextmanager
def locked(path: Path, *, busy: Exception | None = None) -> Iterator[None]:
    """Hold the lock of a file, which is created if necessary.

    The lock excludes other processes and other threads, and ends with the process, even when that
    is killed.

    Parameters
    ----------
    busy : Exception, optional
        Raised when somebody else holds the lock; by default this waits.

    Raises
    ------
    OSError
        The file cannot be opened or locked.
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
