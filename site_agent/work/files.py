"""Files on every system: their pieces, names, identity, state and removal."""

import hashlib
import re
import stat
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

from aggregators.formats import file_digest
from site_agent.errors import InvalidInputError, NotFoundError

CHUNK_BYTES = 1 << 20


def chunks(file: BinaryIO, offset: int, size_bytes: int) -> Iterator[bytes]:
    """Yield `size_bytes` bytes from `offset` on, a megabyte at a time.

    Each piece is looked up by its position: the caller may use the file in between.
    """
    position, end = offset, offset + size_bytes
    while position < end:
        file.seek(position)
        chunk = file.read(min(CHUNK_BYTES, end - position))
        if not chunk:
            raise NotFoundError(
                f"{file.name}: ends at byte {position}, expected {end}: was it changed meanwhile?"
            )
        yield chunk
        position += len(chunk)


def remove_file(path: Path) -> None:
    """Remove a file if it exists, also where its read-only flag protects it (Windows)."""
    with suppress(FileNotFoundError):
        try:
            path.unlink()
        except PermissionError:
            path.chmod(stat.S_IREAD | stat.S_IWRITE)
            path.unlink()


def file_identity(path: Path) -> tuple[int, int] | None:
    """Return the identity of the file at a path; None if there is no file.

    Links and names that differ in case have the same one. For many paths at once; two are compared
    by `Path.samefile`.
    """
    try:
        status = path.stat()
    except OSError:
        return None
    return status.st_dev, status.st_ino


def require_in_place(path: Path) -> tuple[int, int]:
    """Return the identity of a file or folder that lies at its real path, behind no link.

    Raises `InvalidInputError` where a link or a device has come into its place.
    """
    status = path.lstat()
    if not (stat.S_ISREG(status.st_mode) or stat.S_ISDIR(status.st_mode)) or path.resolve() != path:
        raise InvalidInputError(
            f"{path}: a link or a device lies where a file was added, expected the file itself",
            hint="add the folder in which the file lies",
        )
    return status.st_dev, status.st_ino


def ends_digest(path: Path) -> str:
    """Return the SHA-256 of the size, and of the first and the last MiB of a file."""
    with path.open("rb") as file:
        size = file.seek(0, 2)
        digest = hashlib.sha256(f"{size} ".encode())
        for offset in (0, max(0, size - CHUNK_BYTES)):
            file.seek(offset)
            digest.update(file.read(CHUNK_BYTES))
    return digest.hexdigest()


@dataclass(frozen=True)
class FileState:
    """A file that a record depends on; `size` and `mtime_ns` save reading it again."""

    name: str
    """Of the file or folder; in a record of a folder, the path from there on."""
    size: int
    mtime_ns: int
    sha256: str = ""
    """Empty while it is not known, and for a folder."""

    def is_unchanged(self, path: Path) -> bool:
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
    """Return size and time of a file, or of all files in a folder together; without a digest."""
    stats = [path.stat()]
    if path.is_dir():
        stats = [entry.stat() for entry in path.iterdir() if entry.is_file()] or stats
    return FileState(
        path.name, sum(entry.st_size for entry in stats), max(entry.st_mtime_ns for entry in stats)
    )


_REFUSED_CHARACTERS = re.compile(r'[<>:"/\\|?*\x00-\x1f]')
_DEVICES = {"con", "prn", "aux", "nul"} | {
    f"{port}{number}" for port in ("com", "lpt") for number in "0123456789¹²³"
}


def portable_name(name: str) -> str:
    """Return a name for a file or folder that every system accepts.

    Windows refuses some characters, trailing dots and spaces, and the names of devices.

    >>> [portable_name(name) for name in ("eyes.dat", "a:b", "con.svm", "end.")]
    ['eyes.dat', 'a-b', 'con_.svm', 'end']
    """
    name = _REFUSED_CHARACTERS.sub("-", name).rstrip(". ") or "_"
    stem, dot, suffix = name.partition(".")
    if stem.rstrip().lower() in _DEVICES:
        return f"{stem.rstrip()}_{dot}{suffix}"
    return name
