"""Files of long work: read in pieces, recognised under any name, locked."""

import contextlib
import fcntl
import json
import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO

from aggregators.formats import file_digest
from aggregators.whole_file import sync_folder
from site_agent.errors import InvalidInputError, NotFoundError

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


@dataclass(frozen=True)
class FileState:
    """A file that a record depends on; `size` and `mtime_ns` save reading it again."""

    name: str
    """Of the file or folder; in a record of a folder, the path from there on."""
    size: int
    mtime_ns: int
    sha256: str = ""
    """Empty while it is not known, and for a folder."""

    def is_still(self, path: Path) -> bool:
        """Return whether `path` still has the content of the digest."""
        try:
            now = file_state(path)
        except OSError:
            return False
        if not self.sha256 or now.size != self.size:
            return False
        return now.mtime_ns == self.mtime_ns or (
            path.is_file() and file_digest(path) == self.sha256
        )


def file_state(path: Path) -> FileState:
    """Return size and time of a file, of all files in a folder together; without a digest."""
    stats = [path.stat()]
    if path.is_dir():
        stats = [entry.stat() for entry in path.iterdir() if entry.is_file()] or stats
    return FileState(
        path.name, sum(stat.st_size for stat in stats), max(stat.st_mtime_ns for stat in stats)
    )


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


Entry = dict[str, Any]


class Ledger:
    """An append-only file of JSON objects, one a line; each is on disk when `append` returns.

    Only the process that holds `at_work` may append. A last line without its end was never
    acknowledged and is dropped.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        self.entries: list[Entry] = []

    @contextmanager
    def at_work(self) -> Iterator[None]:
        """Exclude other processes of this party, and read what they wrote."""
        with locked(self.path.with_name(f".{self.path.name}.lock")):
            self._read()
            yield

    def append(self, entry: Entry) -> None:
        """Write an entry and wait until it is on disk."""
        line = json.dumps(entry, sort_keys=True).encode() + b"\n"
        new = not self.path.exists()
        descriptor = os.open(self.path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
        with os.fdopen(descriptor, "ab") as file:
            file.write(line)
            file.flush()
            os.fsync(file.fileno())
        if new:
            sync_folder(self.path.parent)
        self.entries.append(entry)

    def find(self, kind: str, **fields: str) -> list[Entry]:
        """Return the entries of a kind in which all of `fields` are as given."""
        return [
            entry
            for entry in self.entries
            if entry["kind"] == kind and all(entry.get(name) == fields[name] for name in fields)
        ]

    def _read(self) -> None:
        content = b""
        with contextlib.suppress(FileNotFoundError):
            content = self.path.read_bytes()
        whole = content[: content.rfind(b"\n") + 1]
        if len(whole) < len(content):
            os.truncate(self.path, len(whole))
        try:
            self.entries = [json.loads(line) for line in whole.splitlines()]
        except ValueError as error:
            raise InvalidInputError(
                f"{self.path}: the ledger is damaged: {error}",
                hint="what it counted is lost: take part under a new key, and with other data",
            ) from error
