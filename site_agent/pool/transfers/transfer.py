"""Model files to and from a pool: in parts, resumed, verified.

Both directions hold a few megabytes in memory whatever the size of the file.
"""

from __future__ import annotations

import hashlib
import os
import time
from dataclasses import dataclass, field
from pathlib import Path

from pydantic import BaseModel

from aggregators.whole_file import name_full_disk
from pool_server.wire.models.models import ModelVersionResponse
from pool_server.wire.transfers.uploads import UploadRequest, UploadResponse
from site_agent.errors import (
    ConflictError,
    DigestMismatchError,
    PoolAnswerError,
)
from site_agent.pool.answers import require_field
from site_agent.pool.cache import ModelCache
from site_agent.pool.connection import PoolConnection
from site_agent.pool.transfers.content_receiving import ContentReceiver, RemoteFile
from site_agent.pool.transfers.part_sending import PartSender
from site_agent.pool.trust.verification import Verification
from site_agent.runs.file_chunks import CHUNK_BYTES
from site_agent.runs.progress import Progress

__all__ = [
    "MODELS",
    "Downloaded",
    "RemoteFile",
    "UploadPlace",
    "Uploaded",
    "hash_file",
    "receive_content",
    "receive_file",
    "send_file",
    "send_upload",
]

# The pool reads and checks the whole file before it answers.
_COMPLETE_TIMEOUT_S = 900.0
_ANOTHER_ROUND = frozenset({"upload_busy", "upload_closed", "upload_incomplete"})
_ROUND_WAIT_S = 0.5


@dataclass(frozen=True)
class Uploaded:
    """A model version that the pool now has.

    Attributes
    ----------
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
    path : Path
        The file in the cache: read-only, and named by its digest.
    received_bytes : int
        What this call received: 0 for a model that was here already.
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
        while chunk := file.read(CHUNK_BYTES):
            hasher.update(chunk)
            done_bytes += len(chunk)
            progress(share * done_bytes / max(size_bytes, 1), "computing the digest")
    return hasher.hexdigest()


@dataclass(frozen=True)
class UploadPlace:
    """Where a file of some sort is announced, and where its upload is completed."""

    announce: str
    complete: str


MODELS = UploadPlace("/api/v1/uploads", "/api/v1/uploads/{upload_id}/complete")


def send_file(
    connection: PoolConnection,
    path: Path,
    request: UploadRequest,
    progress: Progress,
    *,
    start: int = 0,
) -> Uploaded:
    """Upload a model file as a version; see `send_upload`."""
    upload, sent_bytes = send_upload(connection, path, MODELS, request, progress, start=start)
    if upload.version is None:
        raise PoolAnswerError(f"{connection.endpoint} completed an upload without a version")
    for each in ("site", "name", "digest"):
        require_field(upload.version, each, getattr(request, each))
    return Uploaded(upload.version, sent_bytes)


def send_upload(
    connection: PoolConnection,
    path: Path,
    place: UploadPlace,
    request: BaseModel,
    progress: Progress,
    *,
    start: int = 0,
) -> tuple[UploadResponse, int]:
    """Upload a file: announce it, send the parts that the pool does not have, complete.

    Announced again, an upload goes on where it was; so whatever came between (another process
    with the same file, a part that got lost) is cured by another round.

    Parameters
    ----------
    start : int
        Byte of the file at `path` with which the upload begins.

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
        sender = PartSender(connection, path, upload, progress, start)
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
        with cache.open_part(remote.digest) as file:
            receiver = ContentReceiver(connection, remote, file, progress)
            try:
                receiver.resume()
                receiver.receive()
            except OSError as error:
                name_full_disk(
                    error,
                    cache.part_file(remote.digest),
                    f"{remote.label} has {remote.size_bytes:,} bytes",
                )
                raise
            if (found := receiver.digest) != remote.digest:
                cache.part_file(remote.digest).unlink()
                raise DigestMismatchError(
                    f"{remote.label}: expected the digest {remote.digest}, "
                    f"received bytes with {found}; nothing was kept",
                    hint="run the same command again; if it stays so, tell the pool's admin",
                )
            os.fsync(file.fileno())
        return cache.adopt(remote.digest), receiver.received_bytes
