"""Sending files to a pool: model files, contributions to rounds, files of the secure sum.

An upload of a model goes these steps, and each may be repeated after an interruption:

1. `PoolClient.upload` computes the digest, builds the request and signs it (`signing`).
2. `send_upload` announces the file. The pool answers with the version, if it has the file, or with
   the missing parts; it refuses an invalid upload here, before any byte is sent.
3. `PartSender` sends the parts, three at a time, to the addresses that the pool gives: its own, or
   those of its storage (`storage_connection`). Few megabytes are in memory at a time.
4. `send_upload` completes the upload; the pool reads and checks the whole file and publishes it.

Contributions and files of the secure sum go the same way under other addresses (`send_file`).
"""

import hashlib
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, BinaryIO
from urllib.parse import urlsplit

from pydantic import BaseModel

from pool_server.wire.models import ModelVersionResponse
from pool_server.wire.uploads import (
    OfferedPart,
    PartAddressesRequest,
    PartAddressList,
    PartAddressResponse,
    UploadPart,
    UploadRequest,
    UploadResponse,
)
from site_agent import errors
from site_agent.pool import sent
from site_agent.pool.connection import PoolConnection
from site_agent.pool.requests import build_request, require_field
from site_agent.pool.storage_connection import BlockThreads
from site_agent.wording import size_words
from site_agent.work import Progress
from site_agent.work.files import CHUNK_BYTES, chunks

# Hashing reads from the disk, sending goes over the line: the shares of one progress bar.
HASHING_SHARE = 0.1
_AT_ONCE = 3
_DAMAGED_ATTEMPTS = 3
# The pool reads and checks the whole file before it answers.
_COMPLETE_TIMEOUT_S = 900.0
_ANOTHER_ROUND = frozenset({"upload_busy", "upload_closed", "upload_incomplete"})
_ROUND_WAIT_S = 0.5
MODELS = "/api/v1/uploads"


@dataclass
class PartSender:
    """Sends parts, a few at a time; the first failure stops the others."""

    connection: PoolConnection
    path: Path
    upload: UploadResponse
    progress: Progress
    sent_bytes: int = 0
    _there_bytes: int = 0
    _lock: threading.Lock = field(default_factory=threading.Lock)
    # One at a time, so that some parts are on their way while the next is looked at.
    _hashing: threading.Lock = field(default_factory=threading.Lock)
    _threads: BlockThreads = field(default_factory=lambda: BlockThreads("upload"))

    def send(self, parts: list[UploadPart]) -> None:
        """Send `parts`; `ConflictError` with code ``upload_closed`` means: announce it again."""
        self._there_bytes = self.upload.size_bytes - sum(part.size_bytes for part in parts)
        with self._threads as threads:
            threads.run(self._send_part, parts, _AT_ONCE, self._report)

    def _send_part(self, part: UploadPart) -> None:
        with self.path.open("rb") as file:
            with self._hashing:
                offer = OfferedPart(number=part.number, checksum=self._checksum(file, part))
            address = self._ask_for_address(offer)
            if urlsplit(address.url).netloc:
                self._send_to_storage(address, offer, file, part)
            else:
                self._send_to_pool(address, file, part)

    def _ask_for_address(self, offer: OfferedPart) -> PartAddressResponse:
        answer = self.connection.post(
            f"/api/v1/uploads/{self.upload.upload_id}/parts",
            PartAddressList,
            PartAddressesRequest(parts=[offer]),
            repeatable=True,
        )
        return answer.items[0]

    def _send_to_storage(
        self, address: PartAddressResponse, offer: OfferedPart, file: BinaryIO, part: UploadPart
    ) -> None:
        patience = self.connection.patience()
        while True:
            try:
                self.connection.storage.put(
                    address.url, address.headers, lambda: self._outgoing(file, part)
                )
                return
            except errors.AddressGoneError as error:
                raise errors.ConflictError(str(error), code="upload_closed") from error
            except errors.PoolUnreachableError as error:
                patience.wait_or_raise(error)
            # They are good for minutes only, and this one may have been refused for that.
            address = self._ask_for_address(offer)

    def _send_to_pool(self, address: PartAddressResponse, file: BinaryIO, part: UploadPart) -> None:
        headers = {"Content-Type": "application/octet-stream"} | address.headers
        for attempt in range(_DAMAGED_ATTEMPTS):
            try:
                self.connection.send(
                    "PUT", address.url, content=lambda: self._outgoing(file, part), headers=headers
                )
                return
            except errors.PoolRefusedRequestError as error:
                # Damaged on the way: the same bytes may well arrive the next time.
                if error.code != "part_mismatch" or attempt + 1 == _DAMAGED_ATTEMPTS:
                    raise

    def _checksum(self, file: BinaryIO, part: UploadPart) -> str | None:
        """Return the part's checksum if the pool requires it before it gives an address."""
        if self.upload.part_checksum is None:
            return None
        if self.upload.part_checksum == "sha256" and part.size_bytes == self.upload.size_bytes:
            return self.upload.digest
        # It finds damage on the way; the digest of the whole file makes it the right one.
        digest = hashlib.new(self.upload.part_checksum, usedforsecurity=False)
        for chunk in self._pieces(file, part):
            digest.update(chunk)
        return digest.hexdigest()

    def _pieces(self, file: BinaryIO, part: UploadPart) -> Iterator[bytes]:
        return chunks(file, part.offset, part.size_bytes)

    def _outgoing(self, file: BinaryIO, part: UploadPart) -> Iterator[bytes]:
        for chunk in self._pieces(file, part):
            if self._threads.stopped.is_set():
                raise _StoppedError
            yield chunk
            with self._lock:
                self.sent_bytes += len(chunk)

    def _report(self) -> None:
        total = self.upload.size_bytes
        sent = min(self._there_bytes + self.sent_bytes, total)
        fraction = HASHING_SHARE + (1 - HASHING_SHARE) * (sent / total)
        self.progress(fraction, f"sent {size_words(sent)} of {size_words(total)}")


class _StoppedError(Exception):
    """Another part failed, or the user interrupted: this part need not be finished."""


@dataclass(frozen=True)
class Uploaded:
    """A model version that the pool now has; `sent_bytes` is 0 where it had all of the file."""

    version: ModelVersionResponse
    sent_bytes: int


def hash_file(path: Path, progress: Progress, share: float = 1.0) -> str:
    """Return the SHA-256 of a file; the progress goes from 0 to `share`."""
    hasher = hashlib.sha256()
    size_bytes = path.stat().st_size
    done_bytes = 0
    with path.open("rb") as file:
        while chunk := file.read(CHUNK_BYTES):
            hasher.update(chunk)
            done_bytes += len(chunk)
            progress(share * done_bytes / max(size_bytes, 1), "computing the digest")
    return hasher.hexdigest()


def send_version(
    connection: PoolConnection, path: Path, request: UploadRequest, progress: Progress
) -> Uploaded:
    """Upload a model file as a version; see `send_upload`."""
    upload, sent_bytes = send_upload(
        connection, path, request, progress, announce=MODELS, uploads=MODELS
    )
    if upload.version is None:
        raise errors.PoolAnswerError(f"{connection.endpoint} completed an upload without a version")
    # A pool that answers with another version would have the caller cite that one.
    for name in ("site", "name", "digest"):
        require_field(upload.version, name, getattr(request, name))
    return Uploaded(upload.version, sent_bytes)


def send_file(
    connection: PoolConnection,
    path: Path,
    folder: str,
    kind: type[BaseModel],
    progress: Progress,
    **fields: Any,
) -> tuple[str, int]:
    """Upload a file that a round or session keeps at the address `folder`; see `send_upload`.

    Return its SHA-256, and how many bytes this call sent. `kind` is the type of the request, and
    `fields` are its fields besides size and digest.
    """
    digest = hash_file(path, progress, share=HASHING_SHARE)
    request = build_request(kind, size_bytes=path.stat().st_size, digest=digest, **fields)
    _, sent_bytes = send_upload(
        connection, path, request, progress, announce=folder, uploads=f"{folder}/uploads"
    )
    return digest, sent_bytes


def send_upload(
    connection: PoolConnection,
    path: Path,
    request: BaseModel,
    progress: Progress,
    *,
    announce: str,
    uploads: str,
) -> tuple[UploadResponse, int]:
    """Upload a file: announce it, send the parts that the pool does not have, complete.

    Return the complete upload, and how many bytes this call sent. A repeated announcement resumes
    the upload. So another pass repairs any interruption (another process with the same file, a
    lost part, a broken line).

    `announce` is the address for the announcement, and `uploads` the address above the upload.
    """
    sent_bytes = 0
    deadline_s = time.monotonic() + _COMPLETE_TIMEOUT_S
    while True:
        # Announced again in every round: the answer names the parts that are missing now.
        upload = connection.post(announce, UploadResponse, request, repeatable=True)
        if upload.state == "complete":
            return upload, sent_bytes
        sender = PartSender(connection, path, upload, progress)
        try:
            sender.send([part for part in upload.parts if not part.received])
            progress(1.0, "the pool is checking the file")
            upload = connection.post(
                f"{uploads}/{upload.upload_id}/complete",
                UploadResponse,
                repeatable=True,
                timeout_s=_COMPLETE_TIMEOUT_S,
            )
        except errors.ConflictError as error:
            if error.code not in _ANOTHER_ROUND or time.monotonic() > deadline_s:
                raise
            time.sleep(_ROUND_WAIT_S)
        finally:
            sent.note_file(connection.endpoint, upload.digest, sender.sent_bytes)
        sent_bytes += sender.sent_bytes
        if upload.state == "complete":
            return upload, sent_bytes
