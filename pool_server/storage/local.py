"""Model files in a local folder.

::

    uploads/<upload id>/000001              a part that has arrived
    uploads/<upload id>/000002.<random>.tmp a part that is arriving
    uploads/<upload id>/assembled           the whole file, its digest verified
    uploads/<upload id>/assembled.<...>.tmp the parts, while they are joined
    uploads/<digest>.<random>.tmp           a file of this machine that is being stored
    blobs/ab/ab12...                        a published file, named by its digest

Every file is written under a temporary name, flushed to the disk, and renamed: a name without
``.tmp`` stands for a whole file. A published file is a second name (hard link) of the assembled
one, so that publishing copies nothing.
"""

import errno
import hashlib
import os
import re
import secrets
import shutil
from collections.abc import Collection, Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import BinaryIO

from pool_server import errors
from pool_server.storage import contract
from pool_server.storage.scratch import write_all

ASSEMBLED = "assembled"
PROBE_BYTES = 4096
_PART = re.compile(r"^[0-9]{6}$")


class LocalStorage:
    """Keeps model files below one folder; see the module and the contract."""

    def __init__(self, folder: Path) -> None:
        self.uploads = folder / "uploads"
        self.blobs = folder / "blobs"
        with translate_errors("prepare the folder"):
            for place in (self.uploads, self.blobs):
                place.mkdir(parents=True, exist_ok=True, mode=0o700)

    @property
    def takes_parts(self) -> bool:
        return False

    def begin(self, upload_id: str, *, size_bytes: int, part_bytes: int) -> str:  # noqa: ARG002
        with translate_errors("begin an upload"):
            free = shutil.disk_usage(self.uploads).free
            # The parts and the file that is assembled from them are there at the same time.
            if free < 2 * size_bytes:
                raise errors.StorageFullError(
                    f"a file of {size_bytes:,} bytes needs {2 * size_bytes:,} bytes of room "
                    f"while it is uploaded; {free:,} are free",
                    hint="Ask the pool's admin to make room.",
                )
            self._upload_folder(upload_id).mkdir(exist_ok=True, mode=0o700)
            flush_folder(self.uploads)
        return upload_id

    def part_checksum(self, handle: str) -> contract.Checksum | None:  # noqa: ARG002
        return None

    def part_address(
        self,
        handle: str,  # noqa: ARG002
        number: int,  # noqa: ARG002
        size_bytes: int,  # noqa: ARG002
        checksum: str | None = None,  # noqa: ARG002
    ) -> contract.PartAddress:
        raise errors.StorageFailedError("a folder takes parts through the server only")

    def open_part(self, handle: str, number: int, size_bytes: int) -> "LocalPartWriter":
        folder = self._upload_folder(handle)
        with translate_errors("open a part"), treat_missing_as_given_up():
            return LocalPartWriter(part_file(folder, number), number, size_bytes)

    def received_parts(self, handle: str) -> Mapping[int, int]:
        folder = self._upload_folder(handle)
        sizes: dict[int, int] = {}
        with (
            translate_errors("list parts"),
            treat_missing_as_given_up(),
            os.scandir(folder) as entries,
        ):
            for entry in entries:
                if _PART.fullmatch(entry.name):
                    sizes[int(entry.name)] = entry.stat().st_size
        return sizes

    @contextmanager
    def assembled(self, handle: str, part_count: int, digest: str) -> Iterator[Path]:
        folder = self._upload_folder(handle)
        parts = [part_file(folder, number) for number in range(1, part_count + 1)]
        target = folder / ASSEMBLED
        temporary = temporary_name(target)
        with translate_errors("assemble a file"), treat_missing_as_given_up():
            contract.require_all_parts(
                [int(part.name) for part in parts if part.exists()], part_count
            )
            try:
                contract.require_digest(copy_and_hash(parts, temporary), digest)
                temporary.replace(target)
                flush_folder(folder)
            finally:
                temporary.unlink(missing_ok=True)
        yield target

    def publish(self, handle: str, digest: str) -> None:
        blob = self._blob(digest)
        with translate_errors("publish a file"):
            if blob.exists():
                return
            blob.parent.mkdir(exist_ok=True, mode=0o700)
            with suppress(FileExistsError):
                # Hard links are refused by some file systems; there a rename does it, and a
                # repeated completion assembles again.
                link_or_rename(self._upload_folder(handle) / ASSEMBLED, blob)
            flush_folder(blob.parent)
            flush_folder(self.blobs)

    def discard(self, handle: str) -> None:
        with translate_errors("discard an upload"), suppress(FileNotFoundError):
            shutil.rmtree(self._upload_folder(handle))

    def store(self, source: Path, digest: str) -> None:
        blob = self._blob(digest)
        temporary = temporary_name(self.uploads / digest)
        with translate_errors("store a file"):
            if blob.exists():
                return
            blob.parent.mkdir(exist_ok=True, mode=0o700)
            try:
                contract.require_digest(copy_and_hash([source], temporary), digest)
                temporary.replace(blob)
            finally:
                temporary.unlink(missing_ok=True)
            flush_folder(blob.parent)
            flush_folder(self.blobs)

    def has_content(self, digest: str) -> bool:
        return self._blob(digest).exists()

    def content_source(self, digest: str, file_name: str) -> Path:  # noqa: ARG002
        if not self.has_content(digest):
            raise contract.content_missing(digest)
        return self._blob(digest)

    def open_content(self, digest: str) -> BinaryIO:
        with translate_errors("open a model file"):
            try:
                return self._blob(digest).open("rb", buffering=0)
            except FileNotFoundError as error:
                raise contract.content_missing(digest) from error

    @contextmanager
    def content_file(self, digest: str) -> Iterator[Path]:
        with self.open_content(digest):
            yield self._blob(digest)

    def place_of(self, digest: str) -> str | None:
        return f"the file {self._blob(digest)}"

    def published_digests(self) -> Iterator[str]:
        with translate_errors("list the model files"):
            for folder in sorted(self.blobs.iterdir()):
                for blob in sorted(folder.iterdir()):
                    if contract.DIGEST.fullmatch(blob.name):
                        yield blob.name

    def remove_content(self, digest: str) -> None:
        with translate_errors("remove a model file"):
            self._blob(digest).unlink(missing_ok=True)

    def sweep(self, live_handles: Collection[str], older_than: datetime) -> int:
        swept = 0
        with translate_errors("sweep stale uploads"):
            for folder in list(self.uploads.iterdir()):
                with suppress(FileNotFoundError):
                    if not folder.is_dir() or folder.name in live_handles:
                        self._sweep_half_written(folder, older_than)
                    elif is_older(folder, older_than):
                        shutil.rmtree(folder)
                        swept += 1
        return swept

    def _sweep_half_written(self, place: Path, older_than: datetime) -> None:
        """Remove half-written files of killed processes; those of live ones are younger."""
        for file in place.glob("*.tmp") if place.is_dir() else [place]:
            with suppress(FileNotFoundError):
                if file.suffix == ".tmp" and is_older(file, older_than):
                    file.unlink()

    def recover(self) -> None:
        with translate_errors("remove half-written files"):
            for half_written in self.uploads.rglob("*.tmp"):
                half_written.unlink(missing_ok=True)

    def check(self) -> None:
        with translate_errors("write to the storage"):
            probe = temporary_name(self.uploads / "probe")
            try:
                # A full disk takes an empty file, but no bytes.
                probe.write_bytes(bytes(PROBE_BYTES))
            finally:
                probe.unlink(missing_ok=True)

    def _upload_folder(self, handle: str) -> Path:
        return self.uploads / contract.require_match(contract.UPLOAD_ID, handle)

    def _blob(self, digest: str) -> Path:
        return self.blobs / contract.require_match(contract.DIGEST, digest)[:2] / digest


class LocalPartWriter(contract.PartWriter):
    """Writes one part to a temporary file next to its final name."""

    def __init__(self, target: Path, number: int, size_bytes: int) -> None:
        super().__init__(number, size_bytes)
        self._target = target
        self._temporary = temporary_name(target)
        self._file = self._temporary.open("xb", buffering=0)

    def write(self, chunk: bytes) -> None:
        file = self._take(chunk)
        with translate_errors("write a part"):
            write_all(file, chunk)

    def finish(self, digest: str | None = None) -> None:
        file = self._require_whole(digest)
        with translate_errors("keep a part"):
            os.fdatasync(file.fileno())
            file.close()
            self._file = None
            with treat_missing_as_given_up():
                self._temporary.replace(self._target)
                flush_folder(self._target.parent)

    def discard(self) -> None:
        if self._file is not None:
            self._file.close()
            self._file = None
            with suppress(OSError):
                self._temporary.unlink(missing_ok=True)


@contextmanager
def translate_errors(act: str) -> Iterator[None]:
    """Translate errors of the operating system into the server's own."""
    try:
        yield
    except OSError as error:
        raise contract.disk_refusal(act, error) from error


@contextmanager
def treat_missing_as_given_up() -> Iterator[None]:
    """Raise `UploadClosedError` if the upload's folder is gone: it was abandoned meanwhile."""
    try:
        yield
    except FileNotFoundError as error:
        raise contract.upload_given_up() from error


def temporary_name(target: Path) -> Path:
    """Return an unused name next to `target`, of the kind that `recover` removes."""
    return target.with_name(f"{target.name}.{secrets.token_hex(8)}.tmp")


def is_older(path: Path, moment: datetime) -> bool:
    """Return whether `path` was neither written nor linked to since `moment`."""
    return datetime.fromtimestamp(path.stat().st_ctime, UTC) < moment


def flush_folder(folder: Path) -> None:
    """Make renames in `folder` survive a loss of power."""
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def link_or_rename(source: Path, target: Path) -> None:
    """Give `source` the name `target` without copying it."""
    try:
        target.hardlink_to(source)
    except OSError as error:
        if error.errno not in {errno.EPERM, errno.EOPNOTSUPP, errno.ENOSYS, errno.EMLINK}:
            raise
        source.replace(target)


def copy_and_hash(sources: Iterable[Path], target: Path) -> str:
    """Write files one after another to a new one, flush it, and return its SHA-256."""
    digest, buffer = hashlib.sha256(), memoryview(bytearray(BUFFER_BYTES))
    with target.open("xb", buffering=0) as output:
        for source in sources:
            with source.open("rb", buffering=0) as file:
                while count := file.readinto(buffer):
                    digest.update(buffer[:count])
                    write_all(output, buffer[:count])
        os.fdatasync(output.fileno())
    return digest.hexdigest()


BUFFER_BYTES = 1024 * 1024


def part_file(folder: Path, number: int) -> Path:
    """Return where a part of an upload lies that has arrived."""
    return folder / f"{number:06d}"
