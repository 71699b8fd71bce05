"""Atomic writes of files."""

import contextlib
import errno
import os
import secrets
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO

_DISK_FULL = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EFBIG})


@contextmanager
def whole_file(path: Path, *, mode: int = 0o666, lasting: bool = True) -> Iterator[BinaryIO]:
    """Open a temporary file that replaces `path` when the block ends.

    The bytes are on disk before the file is renamed, so a reader sees the old file or the new
    one. When the block raises, the old file stays.

    `mode`: permissions, less the umask. `lasting`: Wait for the disk; False for content such
    as progress, or with a digest, which a loss of power may take or damage.
    """
    temporary = path.with_name(f".{path.name[:40]}.{secrets.token_hex(6)}.partial")
    try:
        with open(temporary, "x+b", opener=lambda name, flags: os.open(name, flags, mode)) as file:
            yield file
            file.flush()
            if lasting:
                os.fsync(file.fileno())
        temporary.replace(path)
    except BaseException as error:
        if isinstance(error, OSError) and is_disk_full(error):
            written_bytes = temporary.stat().st_size if temporary.exists() else 0
            name_full_disk(error, path, f"{written_bytes:,} bytes of it were written")
        with contextlib.suppress(OSError):
            temporary.unlink(missing_ok=True)
        raise
    if lasting:
        sync_folder(path.parent)


def is_disk_full(error: OSError) -> bool:
    """Return whether a disk or a quota leaves no room for a file."""
    return error.errno in _DISK_FULL


def name_full_disk(error: OSError, path: Path, size: str) -> None:
    """Add the file and its size, as far as known, to the error of a full disk."""
    if is_disk_full(error):
        free_bytes = shutil.disk_usage(path.parent).free
        error.filename = str(path)
        error.strerror = f"{error.strerror} ({size}; {free_bytes:,} are free)"


@contextmanager
def made_apart(target: Path) -> Iterator[None]:
    """Name `target` when the disk gets full while a file that becomes it is written elsewhere."""
    try:
        yield
    except OSError as error:
        if is_disk_full(error):
            error.filename, error.filename2 = str(target), None
        raise


def write_whole(
    path: Path, content: bytes | str, *, mode: int = 0o666, lasting: bool = True
) -> None:
    """Write a file whole or not at all; text as UTF-8."""
    with whole_file(path, mode=mode, lasting=lasting) as file:
        file.write(content.encode() if isinstance(content, str) else content)


def private_opener(name: str, flags: int) -> int:
    """Open a file for `open`; if it is new, nobody else can read it."""
    return os.open(name, flags, 0o600)


def sync_folder(folder: Path) -> None:
    """Flush a folder's entries to disk, where the file system supports it."""
    with contextlib.suppress(OSError):
        descriptor = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
