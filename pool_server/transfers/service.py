"""Uploads under way: show, list and abort them, and clear away stale ones."""

import logging
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from datetime import timedelta
from typing import cast

from sqlalchemy.orm import Session

from pool_server import errors
from pool_server.database.records import UploadRecord, now_utc
from pool_server.http.identity import Caller
from pool_server.http.session import ServerParts
from pool_server.jobs.background import keep_renewed, lease_end
from pool_server.registry.responses import describe_version
from pool_server.storage import Checksum, PartWriter
from pool_server.storage.contract import PartPlan
from pool_server.storage.scratch import ScratchFolder
from pool_server.transfers import repository
from pool_server.wire import uploads

log = logging.getLogger("pool_server.uploads")


def get_upload(
    session: Session, caller: Caller, upload_id: str, *, lock: bool = False
) -> UploadRecord:
    """Return an upload that the caller may see: one of the own site, or any for an admin.

    With `lock` no other transaction changes it until this one ends.
    """
    upload = repository.find_upload(session, upload_id, lock=lock)
    if upload is None or not caller.may_upload_to(upload.site.name):
        raise errors.MissingError(
            f"the pool has no upload {upload_id}",
            code="upload_not_found",
            hint="Announce the file again.",
        )
    return upload


def get_receiving_upload(parts: ServerParts, caller: Caller, upload_id: str) -> UploadRecord:
    """Return an upload that takes parts, and put off its end."""
    with parts.database.read() as session:
        upload = get_upload(session, caller, upload_id)
    require_open(upload)
    if upload.state == repository.CHECKING:
        raise busy()
    _keep_alive(parts, upload)
    return upload


def open_part(parts: ServerParts, caller: Caller, upload_id: str, number: int) -> PartWriter:
    """Open one part for writing.

    Browsers send parts of files in a bucket this way, too; programs send them to the storage.
    """
    upload = get_receiving_upload(parts, caller, upload_id)
    size_bytes = PartPlan(upload.size_bytes, upload.part_bytes).size_of(number)
    return parts.storage.open_part(upload.storage_handle, number, size_bytes)


def describe_upload(parts: ServerParts, upload: UploadRecord) -> uploads.UploadResponse:
    """Return an upload as clients see it, with the parts that the storage has."""
    version = None
    if upload.version_id is not None:
        with parts.database.read() as session:
            version = describe_version(session, upload.version_id, upload.site_id)
    plan = PartPlan(upload.size_bytes, upload.part_bytes)
    received: Mapping[int, int] = {}
    checksum: Checksum | None = None if parts.storage.takes_parts else "sha256"
    if upload.state in repository.OPEN:
        received = parts.storage.received_parts(upload.storage_handle)
        checksum = parts.storage.part_checksum(upload.storage_handle) or checksum

    def describe_part(number: int) -> uploads.UploadPart:
        size_bytes = plan.size_of(number)
        return uploads.UploadPart(
            number=number,
            offset=plan.offset_of(number),
            size_bytes=size_bytes,
            received=upload.state == repository.COMPLETE or received.get(number) == size_bytes,
            url=None
            if parts.storage.takes_parts
            else f"/api/v1/uploads/{upload.id}/parts/{number}",
        )

    return uploads.UploadResponse(
        upload_id=upload.id,
        state=cast("uploads.UploadState", upload.state),
        size_bytes=upload.size_bytes,
        digest=upload.digest,
        part_size_bytes=upload.part_bytes,
        part_checksum=checksum,
        parts=[describe_part(number) for number in range(1, plan.count + 1)],
        expires_at=upload.expires_at,
        version=version,
    )


@contextmanager
def lease_upload(parts: ServerParts, upload_id: str) -> Iterator[None]:
    """Hold an upload while it is checked, and release it if the block fails."""
    with parts.database.write() as session:
        if not repository.claim(session, upload_id, now_utc(), lease_end(parts.settings)):
            raise busy()

    def renew() -> None:
        with parts.database.write() as session:
            repository.renew_claim(session, upload_id, lease_end(parts.settings))

    with keep_renewed(parts.settings, f"upload {upload_id}", renew):
        try:
            yield
        except BaseException:
            try:
                with parts.database.write() as session:
                    repository.release(session, upload_id)
            except errors.TransactionError:
                log.exception("upload %s stays leased until its lease ends", upload_id)
            raise


def require_open(upload: UploadRecord) -> None:
    if upload.state in repository.OPEN:
        return
    refusal = upload.refusal or {}
    reasons = {
        repository.COMPLETE: "this upload is complete",
        repository.EXPIRED: "this upload expired: no part came for too long",
        repository.REFUSED: f"this upload was refused: {refusal.get('message', '')}",
    }
    raise errors.UploadClosedError(
        reasons[upload.state],
        hint="Announce the file again." if upload.state != repository.COMPLETE else "",
        details=refusal,
    )


def discard_quietly(parts: ServerParts, upload: UploadRecord) -> None:
    """Remove the parts; leftovers are swept later, and are no reason to fail now."""
    if not upload.storage_handle:
        return  # nothing was ever to be sent
    try:
        parts.storage.discard(upload.storage_handle)
    except errors.PoolError:
        log.exception("upload %s could not be discarded", upload.id)


def _keep_alive(parts: ServerParts, upload: UploadRecord) -> None:
    """Put off the end of an upload that goes on; not with every part, for that is a write."""
    now = now_utc()
    if upload.expires_at - now > parts.settings.upload_lifetime / 2:
        return
    with parts.database.write() as session:
        current = repository.find_upload(session, upload.id, lock=True)
        if current is not None and current.state == repository.RECEIVING:
            current.expires_at = now + parts.settings.upload_lifetime


def subject_of(upload: UploadRecord) -> str:
    return f"{upload.site.name}/{upload.model_name}"


def busy() -> errors.UploadBusyError:
    return errors.UploadBusyError(
        "the upload is being checked at this moment", hint="Ask for it again in a moment."
    )


sweep_log = logging.getLogger("pool_server.sweeps")

# Younger files without an upload are kept: their record may be about to be written.
ORPHAN_AGE = timedelta(hours=1)
REMEMBERED = timedelta(days=7)
"""Time after which finished uploads are forgotten."""


def sweep_uploads(parts: ServerParts) -> int:
    """Expire stale uploads, forget old ones, discard their files; return how many expired.

    Of several processes that share a pool one sweeps at a time, and the others do something else.
    The scratch folder is one of each machine: every process clears its own.
    """
    ScratchFolder(parts.settings.scratch_folder).clear()
    with parts.database.alone("sweep") as is_first:
        return _sweep(parts) if is_first else 0


def _sweep(parts: ServerParts) -> int:
    now = now_utc()
    with parts.database.write() as session:
        stale = repository.expire_stale(session, now)
        repository.forget_closed(session, now - REMEMBERED)
    for handle in stale:
        try:
            parts.storage.discard(handle)
        except errors.StorageError:
            # One that cannot be discarded, now or ever, is no reason to keep the others.
            sweep_log.exception("a stale upload could not be discarded; its files are swept later")
    with parts.database.read() as session:
        live = repository.open_handles(session)
    parts.storage.sweep(live, now - ORPHAN_AGE)
    return len(stale)


def recover_uploads(parts: ServerParts) -> None:
    """Recover from a killed server, before serving.

    If other processes may work on the same pool, their uploads cannot be distinguished at
    once: claims are left to run out, and half-written files are swept once they are old.
    """
    if not parts.database.is_shared:
        with parts.database.write() as session:
            repository.release_all(session)
    try:
        if not parts.database.is_shared:
            parts.storage.recover()
        sweep_uploads(parts)
    except errors.StorageError:
        # The server says of itself that it is not ready until the storage answers.
        sweep_log.exception("the storage does not answer; stale uploads are swept later")
