"""The bytes of a file in the pool on their way to this machine."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterable
from dataclasses import dataclass
from typing import BinaryIO

from site_agent.errors import PoolAnswerError, PoolUnreachableError
from site_agent.pool.connection import PoolConnection
from site_agent.pool.transfers.range_fetching import fetched_ranges
from site_agent.runs.file_chunks import CHUNK_BYTES, chunks, megabytes
from site_agent.runs.progress import Progress


@dataclass(frozen=True)
class RemoteFile:
    """A file that the pool has."""

    label: str
    url: str
    digest: str
    size_bytes: int


class ContentReceiver:
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
        for chunk in chunks(self._file, 0, size_bytes):
            self._hasher.update(chunk)
            self._position += len(chunk)
            self._tell("checking what is here already:")

    def receive(self) -> None:
        """Get the rest, reconnecting when the line breaks or an address expires."""
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
            elsewhere = response.headers.get("Location") if response.is_redirect else None
            if elsewhere is None:
                if self._position and response.status_code != 206:
                    self._restart()
                # As they come: what waits to fill a larger chunk would be lost with the line.
                self._take(response.iter_raw())
        if elsewhere is not None:
            # What lies under such an address never changes, so a range of it is enough.
            with fetched_ranges(
                self._connection.storage, elsewhere, self._position, remote.size_bytes
            ) as arriving:
                self._take(arriving)
        self._file.flush()
        if self._position < remote.size_bytes:
            raise PoolUnreachableError(
                f"{remote.label}: the line broke after {self._position} "
                f"of {remote.size_bytes} bytes"
            )

    def _take(self, arriving: Iterable[bytes]) -> None:
        for chunk in arriving:
            if self._position + len(chunk) > self._remote.size_bytes:
                raise PoolAnswerError(
                    f"{self._remote.label}: more bytes than the announced {self._remote.size_bytes}"
                )
            self._file.write(chunk)
            self._hasher.update(chunk)
            self._position += len(chunk)
            self.received_bytes += len(chunk)
            self._tell("received")

    def _restart(self) -> None:
        self._file.truncate(0)
        self._hasher = hashlib.sha256()
        self._position = 0

    def _tell(self, words: str) -> None:
        total = self._remote.size_bytes
        if abs(self._position - self._told_bytes) < CHUNK_BYTES and self._position < total:
            return  # a progress bar for each network packet would cost more than the packet
        self._told_bytes = self._position
        text = f"{words} {megabytes(self._position)} of {megabytes(total)}"
        self._progress(self._position / max(total, 1), text)
