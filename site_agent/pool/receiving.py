"""Receiving files from a pool: resumed where an earlier download stopped, and verified.

A download of a version goes these steps:

1. `PoolClient.version` asks for the record of the version (`client`).
2. `PoolClient.fetch` refuses withdrawn versions, and verifies the signature of the whole record
   of the version (`verification`), before any byte is requested.
3. A file that is in the cache under the signed digest is done (`cache`).
4. `receive_file` hashes the start of the file in ``<digest>.part``, if there is one, asks for the
   rest from the pool or, by several ranges at once, from its storage (`storage_connection`), and
   reconnects when the line breaks. Few megabytes are in memory at a time.
5. A file with another digest is deleted; the right one is moved into place as a whole.
"""

import hashlib
import os
import queue
import threading
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import BinaryIO

from aggregators.whole_file import name_full_disk
from pool_server.wire.models import ModelVersionResponse
from site_agent.errors import DigestMismatchError, PoolAnswerError, PoolUnreachableError
from site_agent.pool.cache import ModelCache
from site_agent.pool.connection import PoolConnection
from site_agent.pool.storage_connection import BlockThreads, StorageConnection
from site_agent.pool.verification import Verification
from site_agent.wording import size_words
from site_agent.work import Progress
from site_agent.work.files import CHUNK_BYTES, chunks


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
        self, connection: PoolConnection, remote: RemoteFile, file: BinaryIO, progress: Progress
    ) -> None:
        self._connection = connection
        self._remote = remote
        self._file = file
        self._progress = progress
        self._hasher = hashlib.sha256()
        self._position = 0
        self._reported_bytes = 0
        self.received_bytes = 0

    @property
    def digest(self) -> str:
        return self._hasher.hexdigest()

    def resume(self) -> None:
        """Hash the part of the file that an earlier download stored."""
        size_bytes = self._file.seek(0, os.SEEK_END)
        if size_bytes > self._remote.size_bytes:
            self._restart()
            return
        # A part file may be of a download that crashed: only its digest shows what it is worth.
        for chunk in chunks(self._file, 0, size_bytes):
            self._hasher.update(chunk)
            self._position += len(chunk)
            self._report("checking what is here already:")

    def receive(self) -> None:
        """Receive the rest, reconnecting when the line breaks or an address expires."""
        patience = self._connection.patience()
        while self._position < self._remote.size_bytes:
            before = self._position
            try:
                self._receive_once()
            except PoolUnreachableError as error:
                # A slow line that breaks every few megabytes gets there in the end.
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
            # Content at such an address never changes, so a range of it is enough.
            with fetch_ranges(
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
            self._report("received")

    def _restart(self) -> None:
        self._file.truncate(0)
        self._hasher = hashlib.sha256()
        self._position = 0

    def _report(self, text_: str) -> None:
        total = self._remote.size_bytes
        if abs(self._position - self._reported_bytes) < CHUNK_BYTES and self._position < total:
            return  # a progress bar for each network packet would cost more than the packet
        self._reported_bytes = self._position
        text = f"{text_} {size_words(self._position)} of {size_words(total)}"
        self._progress(self._position / max(total, 1), text)


# Blocks fetched ahead wait in memory: their product bounds it.
RANGE_BYTES = 8 << 20
AT_ONCE = 4

_Arrivals = queue.SimpleQueue[bytes | BaseException | None]
"""The chunks of one range as they come; at last None, or the error."""


@contextmanager
def fetch_ranges(
    storage: StorageConnection, url: str, position: int, size_bytes: int
) -> Iterator[Iterator[bytes]]:
    """Yield the bytes from `position` to the end in order.

    Several connections to an object store are several times as fast as one. The first range is
    passed on while it arrives, so that a broken line loses only the ranges fetched ahead.
    """
    with BlockThreads("download") as threads:

        def start(first: int) -> _Arrivals:
            arrivals: _Arrivals = queue.SimpleQueue()
            end = min(first + RANGE_BYTES, size_bytes)
            stream = storage.stream(url, first, end - 1)
            threads.start(lambda: _fetch(stream, end - first, arrivals, threads.stopped))
            return arrivals

        yield _in_order(deque(range(position, size_bytes, RANGE_BYTES)), start)


def _in_order(firsts: deque[int], start: Callable[[int], _Arrivals]) -> Iterator[bytes]:
    under_way: deque[_Arrivals] = deque()
    while firsts or under_way:
        while firsts and len(under_way) < AT_ONCE:
            under_way.append(start(firsts.popleft()))
        arrivals = under_way[0]
        while (chunk := arrivals.get()) is not None:
            if isinstance(chunk, BaseException):
                raise chunk
            yield chunk
        under_way.popleft()


def _fetch(
    stream: AbstractContextManager[Iterator[bytes]],
    size_bytes: int,
    arrivals: _Arrivals,
    stopped: threading.Event,
) -> None:
    left = size_bytes
    try:
        with stream as arriving:
            for chunk in arriving:
                if stopped.is_set():
                    return
                # A server that knows no ranges gives the whole file for the first.
                arrivals.put(chunk[:left])
                left -= min(len(chunk), left)
                if left == 0:
                    break
        if left:
            raise PoolUnreachableError(f"the line broke {left} bytes early")
        arrivals.put(None)
    except BaseException as error:
        arrivals.put(error)


@dataclass(frozen=True)
class Downloaded:
    """A model version that is now in the cache, as a read-only file named by its digest.

    `received_bytes` is 0 for a model that was here already.
    """

    version: ModelVersionResponse
    path: Path
    received_bytes: int
    signature: Verification = field(default_factory=lambda: Verification("unchecked"))


def receive_version(
    connection: PoolConnection, cache: ModelCache, version: ModelVersionResponse, progress: Progress
) -> tuple[Path, int]:
    """Bring a version's file into the cache; return its path and the bytes this call received."""
    url = f"/api/v1/models/{version.site}/{version.name}/versions/{version.version}/content"
    remote = RemoteFile(version.address, url, version.digest, version.size_bytes)
    with cache.locked(remote.digest):
        if (path := cache.find(remote.digest)) is not None:
            return path, 0
        part = cache.part_file(remote.digest)
        with cache.open_part(remote.digest) as file:
            received_bytes = receive_file(connection, remote, part, file, progress)
        return cache.adopt(remote.digest), received_bytes


def receive_file(
    connection: PoolConnection, remote: RemoteFile, path: Path, file: BinaryIO, progress: Progress
) -> int:
    """Complete a file that is open at `path`, and return how many bytes this call received.

    Nothing is kept of bytes with another digest (`DigestMismatchError`). After
    `PoolUnreachableError` the same call goes on where it stopped.
    """
    receiver = ContentReceiver(connection, remote, file, progress)
    try:
        receiver.resume()
        receiver.receive()
    except OSError as error:
        name_full_disk(error, path, f"{remote.label} has {remote.size_bytes:,} bytes")
        raise
    if (digest := receiver.digest) != remote.digest:
        path.unlink()
        raise DigestMismatchError(
            f"{remote.label}: received bytes with SHA-256 {digest}, expected {remote.digest}; "
            "nothing was kept",
            hint="run the same command again; if it happens again, notify the pool's admin",
        )
    os.fsync(file.fileno())
    return receiver.received_bytes
