"""The contract of storages for model files, and the checks that all of them make.

A file comes in parts, is assembled aside where it cannot be seen, checked, and then published
under its digest. A storage takes the bytes itself (a folder), or sends clients to an object store
with addresses of limited life; the rest of the server does not know which.
"""

import errno
import hashlib
import re
from abc import ABC, abstractmethod
from collections.abc import Collection, Iterator, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import BinaryIO, Literal, Protocol

from pool_server import errors
from pool_server.settings import MIB

Checksum = Literal["md5", "sha256"]
"""The digest by which a part is checked on arrival."""
FILE_DAMAGED = "file_damaged"
"""The code of a `StorageFailedError` that does not pass: the file itself has other bytes."""


@dataclass(frozen=True)
class PartAddress:
    """An address to which a client sends one part, with these headers, past the server.

    It is good for this part, this size and this checksum only, until it expires; to be kept secret.
    """

    url: str
    headers: Mapping[str, str]
    expires_at: datetime


class Storage(Protocol):
    """A place for model files.

    A *handle* is the storage's own word for one upload; the server keeps it and gives it back.
    `takes_parts`: clients send parts straight to the storage (`part_address`).

    Laws
    ----
    - A published file is whole and has the digest that it is published under, even if
      processes were killed at any moment. It never changes, and cannot be changed from outside.
    - `received_parts` is the truth about parts, also after a restart.
    - Sending a part again replaces it. `assembled`, `publish`, `discard` may be repeated.
    - Memory does not grow with the size of a file.
    - Keys and paths are made here, from digests and identifiers that the server chose; nothing
      that a client says becomes a path.
    - Any number of processes may use one place at once.
    """

    @property
    def takes_parts(self) -> bool: ...

    def begin(self, upload_id: str, *, size_bytes: int, part_bytes: int) -> str:
        """Prepare for an upload in parts of `part_bytes`, the last one shorter; return its handle.

        Raises `StorageFullError` where there is no room for a file of that size.
        """

    def part_checksum(self, handle: str) -> Checksum | None:
        """Return which checksum of a part an address for it asks for; None: none."""

    def part_address(
        self, handle: str, number: int, size_bytes: int, checksum: str | None = None
    ) -> PartAddress:
        """Return where a client sends a part itself; only where `takes_parts`.

        `checksum` is that of the part's bytes, by `part_checksum`, in hexadecimal
        (`PartMismatchError`).
        """

    def open_part(self, handle: str, number: int, size_bytes: int) -> "PartWriter":
        """Open one part for writing; `UploadClosedError` where the upload was given up."""

    def received_parts(self, handle: str) -> Mapping[int, int]:
        """Return the sizes of the received parts, by number; `UploadClosedError` as above."""

    def assembled(self, handle: str, part_count: int, digest: str) -> AbstractContextManager[Path]:
        """Join the parts 1 to `part_count`, check the whole file's SHA-256, and give the file.

        The SHA-256 is that of the bytes that the storage gives back, computed here. The path is
        to look at before the file is published, and lasts as long as the block. Raises
        `DigestMismatchError`, or `UploadIncompleteError` where a part is missing.
        """

    def publish(self, handle: str, digest: str) -> None:
        """Put the file that `assembled` verified where `open_content` finds it, once."""

    def discard(self, handle: str) -> None:
        """Remove all that is left of an upload. A published file stays."""

    def store(self, source: Path, digest: str) -> None:
        """Publish a copy of a file of this machine, once.

        The SHA-256 is computed as the bytes are copied (`DigestMismatchError`).
        """

    def has_content(self, digest: str) -> bool:
        """Return whether a file of that digest is published."""

    def content_source(self, digest: str, file_name: str) -> Path | str:
        """Return the file that the server sends, or the address where a client fetches it.

        `ContentMissingError` where no such file is published, as of the two below.
        """

    def open_content(self, digest: str) -> BinaryIO:
        """Open a published file for reading from any position."""

    def content_file(self, digest: str) -> AbstractContextManager[Path]:
        """Provide a published file as a local, read-only path."""

    def place_of(self, digest: str) -> str | None:
        """Return the place of a published file, present or lost, for repairs by hand.

        None where a file of that digest has no place before it is uploaded.
        """

    def published_digests(self) -> Iterator[str]:
        """Yield the digests of all published files, in their order."""

    def remove_content(self, digest: str) -> None:
        """Remove a published file, if it is there.

        The caller makes sure that nothing refers to it, and that it is not published meanwhile.
        """

    def sweep(self, live_handles: Collection[str], older_than: datetime) -> int:
        """Discard uploads without a record; return their number.

        Those in `live_handles`, and those younger than `older_than`, stay. Half-written
        files of killed processes, untouched since `older_than`, are removed too.
        """

    def recover(self) -> None:
        """Before serving alone, remove half-written files of a killed process."""

    def check(self) -> None:
        """Raise `StorageFailedError` when files cannot be written at this moment."""


FEW_PARTS = 16
MOST_GROWTH = 4
MOST_PARTS = 1000


@dataclass(frozen=True)
class PartPlan:
    """Parts 1 to `count` of `part_bytes` each, the last one shorter.

    Examples
    --------
    >>> PartPlan(size_bytes=10, part_bytes=4).count
    3
    >>> PartPlan(size_bytes=10, part_bytes=4).size_of(3)
    2
    """

    size_bytes: int
    part_bytes: int

    @classmethod
    def choose(cls, size_bytes: int, part_bytes: int, most_parts: int = MOST_PARTS) -> "PartPlan":
        """Cut a file into parts of `part_bytes`, or larger ones where they would be many.

        Each part costs a few requests, and when a transfer is interrupted some parts are sent
        again: so they grow with the file, up to `MOST_GROWTH` times, and beyond that only as far
        as `most_parts` demands.
        """
        chosen_bytes = -(-size_bytes // (FEW_PARTS * part_bytes)) * part_bytes
        part_bytes = max(part_bytes, min(chosen_bytes, MOST_GROWTH * part_bytes))
        least = -(-size_bytes // most_parts)
        if least > part_bytes:
            part_bytes = -(-least // MIB) * MIB
        return cls(size_bytes, part_bytes)

    @property
    def count(self) -> int:
        return -(-self.size_bytes // self.part_bytes)

    def offset_of(self, number: int) -> int:
        return (number - 1) * self.part_bytes

    def size_of(self, number: int) -> int:
        """Return the size of a part."""
        if not 1 <= number <= self.count:
            raise errors.PartMismatchError(
                f"the upload has parts 1 to {self.count}, not {number}",
                hint="`GET /api/v1/uploads/{id}` lists the parts that are wanted.",
            )
        return min(self.part_bytes, self.size_bytes - self.offset_of(number))


class PartWriter(ABC):
    """Takes the bytes of one part, `size_bytes` in the end; counts and hashes them as they come.

    Laws: before `finish` returns, the part is not there; afterwards it is there for good, even
    if the machine loses power. `discard` leaves no trace, and may follow anything.
    """

    def __init__(self, number: int, size_bytes: int) -> None:
        self.number = number
        self.size_bytes = size_bytes
        self._taken_bytes = 0
        self._hash = hashlib.sha256()
        self._file: BinaryIO | None = None

    @abstractmethod
    def write(self, chunk: bytes) -> None:
        """Append bytes; `PartMismatchError` if they are more than the part has."""

    @abstractmethod
    def finish(self, digest: str | None = None) -> None:
        """Make the part count, if it has its size and, where given, this SHA-256."""

    @abstractmethod
    def discard(self) -> None:
        """Forget the bytes written; nothing happens after `finish`."""

    def _take(self, chunk: bytes) -> BinaryIO:
        """Count bytes in, before they are kept; return the file that keeps them."""
        file = self._open_file()
        self._taken_bytes += len(chunk)
        if self._taken_bytes > self.size_bytes:
            raise self._refusal(f"more than {self.size_bytes:,} bytes")
        self._hash.update(chunk)
        return file

    def _require_whole(self, digest: str | None) -> BinaryIO:
        """Raise `PartMismatchError` for too few bytes, or for other ones than `digest` says."""
        file = self._open_file()
        if self._taken_bytes != self.size_bytes:
            raise self._refusal(f"{self._taken_bytes:,} bytes")
        if digest is not None and digest != self._hash.hexdigest():
            raise self._refusal(f"SHA-256 {self._hash.hexdigest()}", f"SHA-256 {digest}")
        return file

    def _open_file(self) -> BinaryIO:
        if self._file is None:
            raise errors.StorageFailedError("the part is closed already")
        return self._file

    def _refusal(self, actual: str, expected: str = "") -> errors.PartMismatchError:
        self.discard()
        return errors.PartMismatchError(
            f"part {self.number} has {actual}, expected {expected or f'{self.size_bytes:,} bytes'}",
            hint="Send the part again.",
        )


def require_all_parts(received: Collection[int], part_count: int) -> None:
    """Raise `UploadIncompleteError` where one of the parts 1 to `part_count` is missing."""
    missing = sorted(set(range(1, part_count + 1)) - set(received))
    if missing:
        raise errors.UploadIncompleteError(
            f"parts are missing: {missing[:20]}", hint="Send them, then complete the upload again."
        )


UPLOAD_ID, DIGEST = re.compile("[0-9a-f]{32}"), re.compile("[0-9a-f]{64}")


def require_match(pattern: re.Pattern[str], word: str) -> str:
    """Return an identifier or a digest that is well formed.

    They come from the database or the bucket; a wrong one must still never be a path or a key.
    """
    if not pattern.fullmatch(word):
        raise errors.StorageFailedError(f"{word!r} is no identifier or digest of the pool")
    return word


def require_digest(digest: str, expected: str) -> None:
    """Raise `DigestMismatchError` for an assembled file with another SHA-256."""
    if digest != expected:
        raise errors.DigestMismatchError(
            f"the uploaded bytes have SHA-256 {digest}, expected {expected}",
            hint="The file changed while it was sent, or was damaged on the way; upload it again.",
        )


def content_missing(digest: str) -> errors.ContentMissingError:
    return errors.ContentMissingError(
        f"the file with digest {digest} is not in the pool's storage",
        hint="Tell the pool's admin: the storage has lost a file, or a backup of the "
        "database was put back without its files.",
    )


def upload_given_up() -> errors.UploadClosedError:
    return errors.UploadClosedError(
        "the upload was given up meanwhile", hint="Announce the file again."
    )


def disk_refusal(act: str, error: OSError) -> errors.StorageError:
    """Return the error for a full disk, or for a broken one."""
    if error.errno in {errno.ENOSPC, errno.EDQUOT, errno.EFBIG}:
        return no_room()
    return errors.StorageFailedError(f"cannot {act}: {error.strerror or error}")


def no_room() -> errors.StorageFullError:
    return errors.StorageFullError(
        "the pool has no room for more files",
        hint="Ask the pool's admin to make room; the upload can go on afterwards.",
    )
