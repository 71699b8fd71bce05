"""What every member of the family checks and refuses in the same words."""

from __future__ import annotations

import errno
import hashlib

from pool_server.errors import (
    ContentMissingError,
    DigestMismatchError,
    PartMismatchError,
    StorageError,
    StorageFailedError,
    StorageFullError,
    UploadClosedError,
)


class PartCheck:
    """Counts and hashes the bytes of one part as they come.

    Parameters
    ----------
    number : int
    size_bytes : int
        What the part has to have in the end.
    """

    def __init__(self, number: int, size_bytes: int) -> None:
        self.number = number
        self.size_bytes = size_bytes
        self._taken_bytes = 0
        self._hash = hashlib.sha256()

    def take(self, chunk: bytes) -> None:
        """Count bytes in, before they are kept.

        Raises
        ------
        PartMismatchError
            They are too many.
        """
        self._taken_bytes += len(chunk)
        if self._taken_bytes > self.size_bytes:
            raise self._refusal(f"more than {self.size_bytes:,} bytes")
        self._hash.update(chunk)

    def require_whole(self, digest: str | None) -> None:
        """Raise `PartMismatchError` for too few bytes, or for other ones than `digest` says."""
        if self._taken_bytes != self.size_bytes:
            raise self._refusal(f"{self._taken_bytes:,} bytes")
        if digest is not None and digest != self.digest:
            raise self._refusal(f"SHA-256 {self.digest}", f"SHA-256 {digest}")

    @property
    def digest(self) -> str:
        """SHA-256 of the bytes so far."""
        return self._hash.hexdigest()

    def _refusal(self, found: str, expected: str = "") -> PartMismatchError:
        return PartMismatchError(
            f"part {self.number} has {found}, expected {expected or f'{self.size_bytes:,} bytes'}",
            hint="Send the part again.",
        )


def require_digest(found: str, expected: str) -> None:
    """Raise `DigestMismatchError` for an assembled file with another SHA-256."""
    if found != expected:
        raise DigestMismatchError(
            f"the uploaded bytes have SHA-256 {found}, announced was {expected}",
            hint="The file changed while it was sent, or was damaged on the way; upload it again.",
            details={"found": found, "expected": expected},
        )


def content_missing(digest: str) -> ContentMissingError:
    return ContentMissingError(
        f"the file with digest {digest} is not in the pool's storage",
        hint="Tell the pool's admin: the storage has lost a file, or a backup of the "
        "database was put back without its files.",
    )


def upload_given_up() -> UploadClosedError:
    return UploadClosedError("the upload was given up meanwhile", hint="Announce the file again.")


def disk_refusal(act: str, error: OSError) -> StorageError:
    """Tell a full disk from a broken one."""
    if error.errno in {errno.ENOSPC, errno.EDQUOT, errno.EFBIG}:
        return no_room()
    return StorageFailedError(f"cannot {act}: {error.strerror or error}")


def no_room() -> StorageFullError:
    return StorageFullError(
        "the pool has no room for more files",
        hint="Ask the pool's admin to make room; the upload can go on afterwards.",
    )
