"""Atomic writes of files."""

from __future__ import annotations

import contextlib
import os
import secrets
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO


@contextmanager
def whole_file(path: Path, *, mode: int = 0o666) -> Iterator[BinaryIO]:
    """Open a temporary file that replaces `path` when the block ends.

    The bytes are on disk before the file is renamed, so a reader sees the old file or the new
    one. When the block raises, the old file stays.

    Parameters
    ----------
    mode : int
        Permissions, less the umask.
    """
    temporary = path.with_name(f".{path.name[:40]}.{secrets.token_hex(6)}.partial")
    descriptor = os.open(temporary, os.O_RDWR | os.O_CREAT | os.O_EXCL, mode)
    try:
        with os.fdopen(descriptor, "wb") as file:
            yield file
            file.flush()
            os.fsync(file.fileno())
        temporary.replace(path)
    except BaseException:
        with contextlib.suppress(OSError):
            temporary.unlink(missing_ok=True)
        raise
    sync_folder(path.parent)


def write_whole(path: Path, content: bytes | str, *, mode: int = 0o666) -> None:
    """Write a file whole or not at all; text as UTF-8."""
    with whole_file(path, mode=mode) as file:
        file.write(content.encode() if isinstance(content, str) else content)


def sync_folder(folder: Path) -> None:
    """Flush a folder's entries to disk, where the file system supports it."""
    with contextlib.suppress(OSError):
        descriptor = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
