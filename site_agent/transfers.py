"""Model files to and from a pool: in parts, resumed, verified.

Both directions hold a few megabytes in memory whatever the size of the file.
"""

from __future__ import annotations

import hashlib
import os
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import FIRST_EXCEPTION, ThreadPoolExecutor, wait
from dataclasses import dataclass, field
from pathlib import Path
from typing import BinaryIO

from pydantic import BaseModel

from pool_server.wire.models import ModelVersionResponse
from pool_server.wire.uploads import UploadPart, UploadRequest, UploadResponse
from site_agent.cache import ModelCache
from site_agent.errors import (
    ConflictError,
    DigestMismatchError,
    NotFoundError,
    PoolAnswerError,
    PoolRefusedRequestError,
    PoolUnreachableError,
)
from site_agent.pool_connection import PoolConnection
from site_agent.verification import Verification

Progress = Callable[[float, str], None]
"""Told how far the work is: a fraction from 0 to 1 and a few words."""

_CHUNK_BYTES = 1 << 20
_WORKERS = 3
# The pool reads and checks the whole file before it answers.
_COMPLETE_TIMEOUT_S = 900.0
# Hashing reads from the disk, sending goes over the line: the shares of one progress bar.
_HASHING_SHARE = 0.1
_ANOTHER_ROUND = frozenset({"upload_busy", "upload_closed", "upload_incomplete"})
_ROUND_WAIT_S = 0.5
_PART_ATTEMPTS = 3


@dataclass(frozen=True)
class Uploaded:
    """A model version that the pool now has.

    Attributes
    ----------
    version : ModelVersionResponse
    sent_bytes : int
        What this call sent: less than the file where an earlier one was interrupted, 0 where
        the pool had it all.
    """

    version: ModelVersionResponse
    sent_bytes: int


@dataclass(frozen=True)
class Downloaded:
    """A model version that is now in the cache.

    Attributes
    ----------
    version : ModelVersionResponse
    path : Path
        The file in the cache: read-only, and named by its digest.
    received_bytes : int
        What this call received: 0 for a model that was here already.
    signature : Verification
        What was found of its signature.
    """

    version: ModelVersionResponse
    path: Path
    received_bytes: int
    signature: Verification = field(default_factory=lambda: Verification("unchecked"))


def hash_file(path: Path, progress: Progress, share: float = 1.0) -> str:
    """Return the SHA-256 of a file, telling how far it is as fractions from 0 to `share`."""
    hasher = hashlib.sha256()
    size_bytes = path.stat().st_size
    done_bytes = 0
    with path.open("rb") as file:
        while chunk := file.read(_CHUNK_BYTES):
            hasher.update(chunk)
            done_bytes += len(chunk)
            progress(share * done_bytes / max(size_bytes, 1), "computing the digest")
    return hasher.hexdigest()


@dataclass(frozen=True)
class UploadPlace:
    """Where a file of some sort is announced, and where its upload is completed.

    Attributes
    ----------
    announce : str
    complete : str
        With ``{upload_id}`` in it.
    """

    announce: str
    complete: str


MODELS = UploadPlace("/api/v1/uploads", "/api/v1/uploads/{upload_id}/complete")


@dataclass(frozen=True)
class RemoteFile:
    """A file that the pool has.

    Attributes
    ----------
    label : str
        What to call it in messages.
    url : str
    digest : str
    size_bytes : int
    """

    label: str
    url: str
    digest: str
    size_bytes: int


def send_file(
    connection: PoolConnection, path: Path, request: UploadRequest, progress: Progress
) -> Uploaded:
    """Upload a model file as a version; see `send_upload`."""
    upload, sent_bytes = send_upload(connection, path, MODELS, request, progress)
    if upload.version is None:
        raise PoolAnswerError(f"{connection.endpoint} completed an upload without a version")
    return Uploaded(upload.version, sent_bytes)


def send_upload(
    connection: PoolConnection,
    path: Path,
    place: UploadPlace,
    request: BaseModel,
    progress: Progress,
) -> tuple[UploadResponse, int]:
    """Upload a file: announce it, send the parts that the pool does not have, complete.

    Announced again, an upload goes on where it was; so whatever came between (another process
    with the same file, a part that got lost) is cured by another round.

    Returns
    -------
    UploadResponse
        Of the complete upload.
    int
        Bytes that this call sent.

    Raises
    ------
    PoolClientError
        One of its leaves. After `PoolUnreachableError` the same call goes on where it stopped.
    """
    sent_bytes = 0
    deadline_s = time.monotonic() + _COMPLETE_TIMEOUT_S
    while True:
        upload = connection.post(place.announce, UploadResponse, request, repeatable=True)
        if upload.state == "complete":
            return upload, sent_bytes
        sender = _PartSender(connection, path, upload, progress)
        try:
            sender.send([part for part in upload.parts if not part.received])
            progress(1.0, "the pool is checking the file")
            upload = connection.post(
                place.complete.format(upload_id=upload.upload_id),
                UploadResponse,
                repeatable=True,
                timeout_s=_COMPLETE_TIMEOUT_S,
            )
        except ConflictError as error:
            if error.code not in _ANOTHER_ROUND or time.monotonic() > deadline_s:
                raise
            time.sleep(_ROUND_WAIT_S)
        sent_bytes += sender.sent_bytes
        if upload.state == "complete":
            return upload, sent_bytes


@dataclass
class _PartSender:
    """Sends parts, a few at a time; the first failure stops the others."""

    connection: PoolConnection
    path: Path
    upload: UploadResponse
    progress: Progress
    sent_bytes: int = 0
    _lock: threading.Lock = field(default_factory=threading.Lock)
    _stopped: threading.Event = field(default_factory=threading.Event)

    def send(self, parts: list[UploadPart]) -> None:
        self._there_bytes = self.upload.size_bytes - sum(part.size_bytes for part in parts)
        with ThreadPoolExecutor(_WORKERS, thread_name_prefix="upload") as workers:
            futures = [workers.submit(self._send_part, part) for part in parts]
            try:
                # In slices, so that Ctrl-C is heard while parts are on their way.
                while wait(futures, timeout=0.2, return_when=FIRST_EXCEPTION).not_done:
                    if any(future.done() and future.exception() for future in futures):
                        break
                    self._tell()
            finally:
                self._stopped.set()
                workers.shutdown(wait=True, cancel_futures=True)
        errors = [future.exception() for future in futures if not future.cancelled()]
        for error in errors:
            if error is not None and not isinstance(error, _StoppedError):
                raise error

    def _send_part(self, part: UploadPart) -> None:
        with self.path.open("rb") as file:
            digest = hashlib.sha256()
            for chunk in _chunks(file, part.offset, part.size_bytes):
                digest.update(chunk)
            headers = {
                "Content-Type": "application/octet-stream",
                "Content-Length": str(part.size_bytes),
                "X-Part-SHA256": digest.hexdigest(),
            }
            for attempt in range(_PART_ATTEMPTS):
                try:
                    self.connection.send(
                        "PUT",
                        part.url,
                        content=lambda: self._outgoing(file, part),
                        headers=headers,
                    )
                    return
                except PoolRefusedRequestError as error:
                    # Damaged on the way: the same bytes may well arrive the next time.
                    if error.code != "part_mismatch" or attempt + 1 == _PART_ATTEMPTS:
                        raise

    def _outgoing(self, file: BinaryIO, part: UploadPart) -> Iterator[bytes]:
        for chunk in _chunks(file, part.offset, part.size_bytes):
            if self._stopped.is_set():
                raise _StoppedError
            yield chunk
            with self._lock:
                self.sent_bytes += len(chunk)

    def _tell(self) -> None:
        total = self.upload.size_bytes
        done = min(self._there_bytes + self.sent_bytes, total)
        fraction = _HASHING_SHARE + (1 - _HASHING_SHARE) * done / total
        self.progress(fraction, f"sent {_megabytes(done)} of {_megabytes(total)}")


class _StoppedError(Exception):
    """Another part failed, or the user interrupted: this part need not be finished."""


def receive_file(
    connection: PoolConnection,
    cache: ModelCache,
    version: ModelVersionResponse,
    progress: Progress,
) -> Downloaded:
    """Bring a version into the cache; see `receive_content`."""
    url = f"/api/v1/models/{version.site}/{version.name}/versions/{version.version}/content"
    file = RemoteFile(version.address, url, version.digest, version.size_bytes)
    path, received_bytes = receive_content(connection, cache, file, progress)
    return Downloaded(version, path, received_bytes)


def receive_content(
    connection: PoolConnection, cache: ModelCache, remote: RemoteFile, progress: Progress
) -> tuple[Path, int]:
    """Bring a file into the cache: from where an earlier download stopped, and verified.

    Returns
    -------
    Path
        In the cache.
    int
        Bytes that this call received.

    Raises
    ------
    DigestMismatchError
        When the bytes are not those that the pool announced; nothing is kept.
    PoolClientError
        Other leaves. After `PoolUnreachableError` the same call goes on where it stopped.
    """
    with cache.locked(remote.digest):
        if (path := cache.find(remote.digest)) is not None:
            return path, 0
        part = cache.part_file(remote.digest)
        with part.open("a+b") as file:
            receiver = _Receiver(connection, remote, file, progress)
            receiver.resume()
            receiver.receive()
            if (found := receiver.digest) != remote.digest:
                part.unlink()
                raise DigestMismatchError(
                    f"{remote.label}: expected the digest {remote.digest}, "
                    f"received bytes with {found}; nothing was kept",
                    hint="run the same command again; if it stays so, tell the pool's admin",
                )
            os.fsync(file.fileno())
        return cache.adopt(remote.digest), receiver.received_bytes


class _Receiver:
    """Writes the bytes of one remote file to a local one, hashing them on the way."""

    def __init__(
        self,
        connection: PoolConnection,
        remote: RemoteFile,
        file: BinaryIO,
        progress: Progress,
    ) -> None:
        self._connection = connection
        self._remote = remote
        self._file = file
        self._progress = progress
        self._hasher = hashlib.sha256()
        self._position = 0
        self._told_bytes = 0
        self.received_bytes = 0

    @property
    def digest(self) -> str:
        return self._hasher.hexdigest()

    def resume(self) -> None:
        """Hash what an earlier download left."""
        size_bytes = self._file.seek(0, os.SEEK_END)
        if size_bytes > self._remote.size_bytes:
            self._restart()
            return
        for chunk in _chunks(self._file, 0, size_bytes):
            self._hasher.update(chunk)
            self._position += len(chunk)
            self._tell("checking what is here already:")

    def receive(self) -> None:
        """Get the rest, reconnecting when the line breaks."""
        patience = self._connection.patience()
        while self._position < self._remote.size_bytes:
            before = self._position
            try:
                self._receive_once()
            except PoolUnreachableError as error:
                if self._position > before:
                    patience.renew()
                patience.wait_or_raise(error)

    def _receive_once(self) -> None:
        remote = self._remote
        headers = {"Accept-Encoding": "identity"}
        if self._position:
            headers |= {"Range": f"bytes={self._position}-", "If-Range": f'"{remote.digest}"'}
        with self._connection.stream(remote.url, headers) as response:
            if self._position and response.status_code != 206:
                self._restart()
            # As they come: what waits to fill a larger chunk would be lost with the line.
            for chunk in response.iter_raw():
                if self._position + len(chunk) > remote.size_bytes:
                    raise PoolAnswerError(
                        f"{remote.label}: more bytes than the announced {remote.size_bytes}"
                    )
                self._file.write(chunk)
                self._hasher.update(chunk)
                self._position += len(chunk)
                self.received_bytes += len(chunk)
                self._tell("received")
        self._file.flush()
        if self._position < remote.size_bytes:
            raise PoolUnreachableError(
                f"{remote.label}: the line broke after {self._position} "
                f"of {remote.size_bytes} bytes"
            )

    def _restart(self) -> None:
        self._file.truncate(0)
        self._hasher = hashlib.sha256()
        self._position = 0

    def _tell(self, words: str) -> None:
        total = self._remote.size_bytes
        if abs(self._position - self._told_bytes) < _CHUNK_BYTES and self._position < total:
            return  # a progress bar for each network packet would cost more than the packet
        self._told_bytes = self._position
        text = f"{words} {_megabytes(self._position)} of {_megabytes(total)}"
        self._progress(self._position / max(total, 1), text)


def _chunks(file: BinaryIO, offset: int, size_bytes: int) -> Iterator[bytes]:
    """Give `size_bytes` bytes from `offset` on, a megabyte at a time.

    Raises
    ------
    PoolClientError
        When the file has become shorter meanwhile.
    """
    position, end = offset, offset + size_bytes
    while position < end:
        chunk = os.pread(file.fileno(), min(_CHUNK_BYTES, end - position), position)
        if not chunk:
            raise NotFoundError(
                f"{file.name}: ends at byte {position}, expected {end}: was it changed meanwhile?"
            )
        yield chunk
        position += len(chunk)


def _megabytes(count: int) -> str:
    return f"{count / 1e6:.1f} MB"
