"""The parts of an upload on their way: to the pool, or straight to its storage."""

from __future__ import annotations

import hashlib
import threading
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import BinaryIO
from urllib.parse import urlsplit

from pool_server.wire.transfers.parts import (
    OfferedPart,
    PartAddressesRequest,
    PartAddressList,
    PartAddressResponse,
)
from pool_server.wire.transfers.uploads import UploadPart, UploadResponse
from site_agent.errors import (
    AddressGoneError,
    ConflictError,
    PoolRefusedRequestError,
    PoolUnreachableError,
)
from site_agent.pool.connection import PoolConnection
from site_agent.runs.block_threads import BlockThreads
from site_agent.runs.file_chunks import chunks, megabytes
from site_agent.runs.progress import Progress

# Hashing reads from the disk, sending goes over the line: the shares of one progress bar.
HASHING_SHARE = 0.1
_AT_ONCE = 3
_DAMAGED_ATTEMPTS = 3


@dataclass
class PartSender:
    """Sends parts, a few at a time; the first failure stops the others.

    What is sent begins at byte `start` of the file at `path`: a file may hold several others.
    """

    connection: PoolConnection
    path: Path
    upload: UploadResponse
    progress: Progress
    start: int = 0
    sent_bytes: int = 0
    _there_bytes: int = 0
    _lock: threading.Lock = field(default_factory=threading.Lock)
    # One at a time, so that some parts are on their way while the next is looked at.
    _hashing: threading.Lock = field(default_factory=threading.Lock)
    _threads: BlockThreads = field(default_factory=lambda: BlockThreads("upload"))

    def send(self, parts: list[UploadPart]) -> None:
        """Send `parts`.

        Raises
        ------
        PoolClientError
            One of its leaves. `ConflictError` with the code ``upload_closed`` when the upload
            was given up meanwhile: announced again, it begins anew.
        """
        self._there_bytes = self.upload.size_bytes - sum(part.size_bytes for part in parts)
        with self._threads as threads:
            threads.run(self._send_part, parts, _AT_ONCE, self._tell)

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
            except AddressGoneError as error:
                raise ConflictError(str(error), code="upload_closed") from error
            except PoolUnreachableError as error:
                patience.wait_or_raise(error)
            # They are good for minutes only, and this one may have been refused for that.
            address = self._ask_for_address(offer)

    def _send_to_pool(self, address: PartAddressResponse, file: BinaryIO, part: UploadPart) -> None:
        headers = {"Content-Type": "application/octet-stream"} | address.headers
        for attempt in range(_DAMAGED_ATTEMPTS):
            try:
                self.connection.send(
                    "PUT",
                    address.url,
                    content=lambda: self._outgoing(file, part),
                    headers=headers,
                )
                return
            except PoolRefusedRequestError as error:
                # Damaged on the way: the same bytes may well arrive the next time.
                if error.code != "part_mismatch" or attempt + 1 == _DAMAGED_ATTEMPTS:
                    raise

    def _checksum(self, file: BinaryIO, part: UploadPart) -> str | None:
        """Return what the pool wants to know of the part's bytes before it gives an address."""
        if self.upload.part_checksum is None:
            return None
        if self.upload.part_checksum == "sha256" and part.size_bytes == self.upload.size_bytes:
            return self.upload.digest
        # MD5 only finds damage on the way; what makes a file the right one is its SHA-256.
        digest = hashlib.new(self.upload.part_checksum, usedforsecurity=False)
        for chunk in self._pieces(file, part):
            digest.update(chunk)
        return digest.hexdigest()

    def _pieces(self, file: BinaryIO, part: UploadPart) -> Iterator[bytes]:
        return chunks(file, self.start + part.offset, part.size_bytes)

    def _outgoing(self, file: BinaryIO, part: UploadPart) -> Iterator[bytes]:
        for chunk in self._pieces(file, part):
            if self._threads.stopped.is_set():
                raise _StoppedError
            yield chunk
            with self._lock:
                self.sent_bytes += len(chunk)

    def _tell(self) -> None:
        total = self.upload.size_bytes
        done = min(self._there_bytes + self.sent_bytes, total)
        fraction = HASHING_SHARE + (1 - HASHING_SHARE) * (done / total)
        self.progress(fraction, f"sent {megabytes(done)} of {megabytes(total)}")


class _StoppedError(Exception):
    """Another part failed, or the user interrupted: this part need not be finished."""
