"""Temporary files and folders that are removed even if their process is killed."""

import fcntl
import os
import secrets
import shutil
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import BinaryIO

from pool_server.errors import StorageFullError

_SUFFIX = ".scratch"
# A folder lies next to the lock file that keeps it.
_FOLDER_SUFFIX = ".folder"


class ScratchFolder:
    """A folder of temporary files that several processes may share.

    Each file is locked by the process that made it. The lock is the system's and ends with the
    process, so a file without one can be removed.
    """

    def __init__(self, folder: Path) -> None:
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        self.folder = folder

    @contextmanager
    def file(self, size_bytes: int) -> Iterator[tuple[Path, BinaryIO]]:
        """Create an empty file for reading and writing that will grow to `size_bytes`."""
        free = shutil.disk_usage(self.folder).free
        if free < size_bytes:
            raise StorageFullError(
                f"looking at a file of {size_bytes:,} bytes needs the same room in the server's "
                f"data folder; {free:,} are free",
                hint="Ask the pool's admin to make room there; the upload can go on afterwards.",
            )
        path, file = self._create()
        try:
            with file:
                yield path, file
        finally:
            path.unlink(missing_ok=True)

    @contextmanager
    def room(self) -> Iterator[Path]:
        """Create an empty folder for files of unknown size."""
        path, lock = self._create()
        folder = path.with_suffix(_FOLDER_SUFFIX)
        with lock:
            try:
                folder.mkdir(mode=0o700)
                yield folder
            finally:
                _remove(path)

    def clear(self) -> None:
        """Remove leftovers of ended processes; those in use stay for another time."""
        for path in self.folder.glob(f"*{_SUFFIX}"):
            with suppress(OSError), path.open("rb") as file:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                _remove(path)

    def _create(self) -> tuple[Path, BinaryIO]:
        while True:
            path = self.folder / f"{secrets.token_hex(8)}{_SUFFIX}"
            file = path.open("x+b", buffering=0)
            fcntl.flock(file, fcntl.LOCK_EX)
            with suppress(FileNotFoundError):
                # Between the two lines above, another process may have taken it for a leftover.
                if os.fstat(file.fileno()).st_ino == path.stat().st_ino:
                    return path, file
            file.close()


def _remove(path: Path) -> None:
    """Remove the folder of a locked file, then the file: a leftover folder is found by its file."""
    folder = path.with_suffix(_FOLDER_SUFFIX)
    # A child of a killed process may be writing there for another moment.
    shutil.rmtree(folder, ignore_errors=True)
    if not folder.exists():
        path.unlink(missing_ok=True)


def write_all(file: BinaryIO, chunk: bytes | memoryview) -> None:
    """Write all of `chunk` to an unbuffered file, which may take less at a time."""
    rest = memoryview(chunk)
    while rest:
        rest = rest[file.write(rest) :]
