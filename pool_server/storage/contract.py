"""What a place for model files must do.

A file comes in parts, is assembled aside where nobody sees it, looked at, and then published
under its digest. A member of this family may take the bytes itself (a folder) or send clients to
an object store with addresses of limited life; the rest of the server does not know which.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from contextlib import AbstractContextManager
from datetime import datetime
from pathlib import Path
from typing import BinaryIO, Protocol


class PartWriter(Protocol):
    """Takes the bytes of one part.

    Laws: before `finish` returns, the part is not there; afterwards it is there for good, even
    if the machine loses power. `discard` leaves no trace, and may follow anything.
    """

    def write(self, chunk: bytes) -> None:
        """Append bytes.

        Raises
        ------
        PartMismatchError
            More bytes than the part has.
        StorageFullError, StorageFailedError
            The bytes cannot be kept.
        """

    def finish(self, digest: str | None = None) -> None:
        """Make the part count, after checking its size and, if given, its SHA-256.

        Raises
        ------
        PartMismatchError
            Fewer bytes than the part has, or other ones than `digest` says.
        """

    def discard(self) -> None:
        """Forget the bytes written; nothing happens after `finish`."""


class Storage(Protocol):
    """A place for model files.

    A *handle* is the storage's own word for one upload; the server keeps it and gives it back.

    Laws
    ----
    - A published file is whole and has the digest that it is published under, whatever process
      was killed at whatever moment. It never changes.
    - `received_parts` is the truth about parts, also after a restart.
    - Sending a part again replaces it. `assemble`, `publish`, `discard` may be repeated.
    - Memory does not grow with the size of a file.
    - Keys and paths are made here, from digests and identifiers that the server chose; nothing
      that a client says becomes a path.
    """

    def begin(self, upload_id: str, size_bytes: int) -> str:
        """Prepare for an upload and return its handle.

        Raises
        ------
        StorageFullError
            There is no room for a file of that size.
        """

    def part_url(self, handle: str, number: int, size_bytes: int) -> str | None:
        """Return where a client sends the part itself; None: through the server."""

    def open_part(self, handle: str, number: int, size_bytes: int) -> PartWriter:
        """Open one part for writing; only where `part_url` gives None."""

    def received_parts(self, handle: str) -> Mapping[int, int]:
        """Return the sizes of the parts that are there, by part number."""

    def assemble(self, handle: str, part_count: int, digest: str) -> None:
        """Join the parts 1 to `part_count` and check the whole file's SHA-256.

        Raises
        ------
        DigestMismatchError
            The joined file has another digest.
        """

    def staged_file(self, handle: str) -> AbstractContextManager[Path]:
        """Give the assembled file as a local path, to look at before it is published."""

    def publish(self, handle: str, digest: str) -> None:
        """Put the assembled file where `open_content` finds it."""

    def discard(self, handle: str) -> None:
        """Remove all that is left of an upload. A published file stays."""

    def has_content(self, digest: str) -> bool:
        """Tell whether a file of that digest is published."""

    def content_url(self, digest: str, file_name: str) -> str | None:
        """Return where a client fetches the file itself; None: through the server."""

    def open_content(self, digest: str) -> BinaryIO:
        """Open a published file for reading from any position.

        Raises
        ------
        ContentMissingError
            No such file is published.
        """

    def content_file(self, digest: str) -> AbstractContextManager[Path]:
        """Give a published file as a local path, for programs that want one; not to be written.

        Raises
        ------
        ContentMissingError
            No such file is published.
        """

    def sweep(self, live_handles: Collection[str], older_than: datetime) -> int:
        """Discard uploads that nobody knows of any more; return how many.

        Those in `live_handles`, and those younger than `older_than`, stay.
        """

    def recover(self) -> None:
        """Remove what a killed process left half-written; called before serving begins."""

    def check(self) -> None:
        """Raise `StorageFailedError` when files cannot be written at this moment."""
