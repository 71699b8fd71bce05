"""Receive files: the one way into the pool, for files of every purpose.

How an upload works, step by step:

1. `announce_upload` (`POST /uploads`, `.../contributions`, `.../files`): the uploader describes
   the file. `Admit` decides whether it may come at all; nothing is sent that the pool has already.
   A record with the parts to send is the answer; the same announcement again gives the same
   record, so that an interrupted client goes on, and a second uploader of the file joins in.
2. `transfers.endpoints.send_part`: the parts arrive, in any order, at the server or straight at its
   storage. Only the storage knows for certain which are there, and it alone is asked.
3. `complete_upload` (`POST .../complete`): one process claims the upload; the storage joins the
   parts and computes the digest; `Check` looks at the file in a limited child process; the storage
   publishes the bytes under their digest; one transaction writes their records (`Accept`).

A file that the pool itself has made comes without parts (`store_result`).

Lies and deaths, and the steps that find them:

- The uploader about the size: each part is held to the announced plan, and quota and largest size
  are judged by the announcement. About the digest: it is computed from the bytes that the storage
  gives back. About the kind of file: `Check` reads the file itself. About its owner: `Admit` asks
  at the announcement, and `Accept` again in the last transaction.
- A slow or dying uploader holds nothing but its record, which expires (`sweep_uploads`);
  the number of those is limited for each site.
- A second uploader of the same file to the same place: one record by a unique index, one check
  by the claim, and the last transaction finds the records of the first.
- A full disk is found when the storage prepares for the file, and again at each part; the upload
  stays open, and goes on once there is room.
- A server killed between any two steps: everything before the last transaction can be done again,
  and that transaction happens wholly or not at all. The claim is a lease and runs out.
"""

import logging
import secrets
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from datetime import timedelta
from pathlib import Path
from typing import Protocol, TypeVar, cast

import anyio.to_thread
from sqlalchemy.orm import Session

from pool_server import errors
from pool_server.database.engine import wait_for_turn, write_with_retry
from pool_server.database.records import (
    OPEN_UPLOADS,
    ModelVersionRecord,
    SiteRecord,
    UploadRecord,
    now_utc,
)
from pool_server.http.audit import record_act
from pool_server.http.identity import Caller
from pool_server.http.session import ServerParts
from pool_server.jobs.background import keep_renewed, lease_end
from pool_server.jobs.check_slots import CheckSlots
from pool_server.people.sites import get_site, require_room
from pool_server.registry.access import PRIVATE
from pool_server.registry.responses import describe_version
from pool_server.storage import Checksum, PartWriter
from pool_server.storage.contract import PartPlan
from pool_server.storage.scratch import ScratchFolder
from pool_server.transfers import repository
from pool_server.wire import uploads

log = logging.getLogger("pool_server.uploads")

MOST_NAMED_PARTS = 20
_ACTIONS = {
    "version": "version.publish",
    "contribution": "round.contribute",
    "secure": "secure.send",
}
"""The audit's name for the arrival of a file, by its purpose."""

CheckedT = TypeVar("CheckedT")


class Offer(Protocol):
    """The claims about a file that every announcement contains; none is believed."""

    @property
    def site(self) -> str: ...
    @property
    def digest(self) -> str: ...
    @property
    def size_bytes(self) -> int: ...


Admit = Callable[[Session, Caller, UploadRecord], bool]
"""Fills in the record of an announced file: its purpose, its name there, and all else.

Raises unless the file may come; returns True where it is here and nothing need be sent.
"""
Copy = Callable[[Session, Caller, UploadRecord], bool]
"""Accepts a file from bytes that the pool has elsewhere; returns False where they must be sent."""
Check = Callable[[UploadRecord, Path], CheckedT]
"""Looks at an assembled file, in a limited child process."""
Accept = Callable[[Session, Caller, UploadRecord, CheckedT], ModelVersionRecord | None]
"""Writes the records of a checked file, in a transaction; returns the version, if any.

Called again, also for a file that somebody else was faster with, it changes nothing.
"""


def announce_upload(
    parts: ServerParts, caller: Caller, offer: Offer, admit: Admit, copy: Copy | None = None
) -> tuple[UploadRecord, bool]:
    """Begin an upload, or find the one under way, or find that nothing need be sent.

    The record is complete where nothing need be sent; True when something new was made.
    """
    caller.require_upload_to(offer.site)

    def settle(session: Session) -> tuple[UploadRecord, bool]:
        upload = _new_upload(parts, caller, get_site(session, offer.site), offer)
        is_here = admit(session, caller, upload)
        _require_size(parts, upload)
        # An open upload goes on, even if the pool could copy the file by now: its client is
        # sending parts, and would be left with an upload that nobody completes.
        under_way = None if is_here else _find_resumable(parts, session, upload)
        if under_way is not None:
            under_way.expires_at = now_utc() + parts.settings.upload_lifetime
            # While it is being checked, its description must not change.
            if under_way.state == repository.RECEIVING:
                _update(under_way, upload, offer)
            return under_way, False
        if is_here or (copy is not None and copy(session, caller, upload)):
            upload.state = repository.COMPLETE
            session.add(upload)
            return upload, not is_here
        _begin(parts, session, upload)
        return upload, True

    return write_with_retry(parts.database, settle)


async def check_in_turn(
    parts: ServerParts, checks: CheckSlots, site: str, upload_id: str, act: Callable[[], CheckedT]
) -> CheckedT:
    """Run `act`, which completes an upload, in the turn of its site and size."""

    def find_size() -> int:
        with parts.database.read() as session:
            upload = repository.find_upload(session, upload_id)
            return 0 if upload is None else upload.size_bytes

    return await checks.run(site, act, await anyio.to_thread.run_sync(find_size))


def complete_upload(
    parts: ServerParts,
    caller: Caller,
    upload_id: str,
    check: Check[CheckedT],
    accept: Accept[CheckedT],
    *,
    purpose: str = "version",
    place: str | None = None,
) -> UploadRecord:
    """Assemble, check and accept a file after all parts have arrived.

    It must have been announced for this `purpose`, and for this `place` (a round, a session) if
    given. The steps (this process may die after any of them): claim the upload; join the parts
    aside and verify the digest; check the file in another process; publish it under its digest;
    write its final record in one transaction; discard the parts.
    """
    with parts.database.read() as session:
        upload = get_upload(session, caller, upload_id)
    if upload.purpose != purpose or place not in {None, upload.model_name}:
        raise errors.MissingError(
            f"upload {upload.id} was not announced here, but as a {upload.purpose} of "
            f"{upload.model_name}",
            code="upload_not_found",
            hint="Complete it where it was announced: a contribution at its round, a file at its "
            "session.",
        )
    if upload.state == repository.COMPLETE:
        return upload
    require_open(upload)
    if upload.state == repository.RECEIVING:
        _require_all_parts(parts, upload)
    with lease_upload(parts, upload.id):
        try:
            completed = _check_and_accept(parts, caller, upload, check, accept)
        except (errors.UploadClosedError, errors.UploadIncompleteError):
            # These are conflicts too, but say nothing against the file: it can be sent again.
            raise
        except (errors.RefusedError, errors.ConflictError) as error:
            _refuse(parts, caller, upload, error)
            raise
    discard_quietly(parts, upload)
    return completed


def store_result(
    parts: ServerParts,
    refresh_caller: Callable[[], Caller],
    offer: Offer,
    file: Path,
    *,
    admit: Admit,
    check: Check[CheckedT],
    accept: Accept[CheckedT],
) -> UploadRecord:
    """Keep a file that the pool itself has made; return the complete record.

    Nothing is sent, so the record itself is not kept. If the process dies on the way, the file
    may be left without a record, and the work that made it is done again. Storing a large file
    takes long: `refresh_caller` returns the caller with the rights of that moment.
    """
    caller = refresh_caller()
    caller.require_upload_to(offer.site)

    def begin(session: Session) -> tuple[UploadRecord, bool]:
        upload = _new_upload(parts, caller, get_site(session, offer.site), offer)
        is_here = admit(session, caller, upload)
        _require_size(parts, upload)
        if not is_here:
            require_room(session, upload.site_id, upload.digest, upload.size_bytes, announced=True)
        return upload, is_here

    upload, is_here = write_with_retry(parts.database, begin)
    if is_here:
        return upload
    checked = check(upload, file)
    parts.storage.store(file, offer.digest)
    caller = refresh_caller()

    def finish(session: Session) -> UploadRecord:
        upload.site = get_site(session, offer.site)
        version = accept(session, caller, upload, checked)
        upload.version_id = None if version is None else version.id
        session.flush()
        # A garbage collection may have come before the record, and waits for it from now on.
        parts.storage.store(file, offer.digest)
        return upload

    return write_with_retry(parts.database, finish)


_DESCRIPTION = (
    "file_name", "description", "labels", "metrics", "card", "terms", "recipe", "statement",
    "as_draft", "least_others",
)  # fmt: skip


def _update(under_way: UploadRecord, announced: UploadRecord, offer: Offer) -> None:
    """Update an open upload from a repeated announcement."""
    for name in _DESCRIPTION:
        setattr(under_way, name, getattr(announced, name))
    # It widens the visibility only if it states one.
    if getattr(offer, "visibility", None) is not None or announced.visibility == PRIVATE:
        under_way.visibility = announced.visibility


def _new_upload(parts: ServerParts, caller: Caller, site: SiteRecord, offer: Offer) -> UploadRecord:
    """Return a record that is not stored yet."""
    settings = parts.settings
    return UploadRecord(
        id=secrets.token_hex(16),
        site=site,
        site_id=site.id,
        token_id=caller.token_id,
        purpose="version",
        digest=offer.digest,
        size_bytes=offer.size_bytes,
        part_bytes=PartPlan.choose(offer.size_bytes, settings.part_bytes).part_bytes,
        model_name="",
        file_name="",
        description="",
        labels={},
        metrics={},
        card="",
        terms=[],
        as_draft=False,
        visibility=settings.default_visibility,
        rights=settings.rights_of_new_models,
        storage_handle="",
        state=repository.RECEIVING,
        created_at=now_utc(),
        expires_at=now_utc() + settings.upload_lifetime,
    )


def _require_size(parts: ServerParts, upload: UploadRecord) -> None:
    largest = parts.settings.max_model_bytes
    if upload.size_bytes > largest:
        raise errors.TooLargeError(
            f"{upload.file_name} has {upload.size_bytes:,} bytes; this pool takes models of up "
            f"to {largest:,}",
            hint="The pool's admin sets POOL_SERVER_MAX_MODEL_BYTES.",
        )


def _find_resumable(
    parts: ServerParts, session: Session, announced: UploadRecord
) -> UploadRecord | None:
    """Return the resumable upload of this file to this place.

    One that cannot is over: of two sizes only one can be that of a file with this digest, and
    the admin of the storage may have cleared away parts that lay there for long.
    """
    upload = repository.find_open(
        session, announced.site_id, announced.model_name, announced.digest, announced.purpose
    )
    if upload is None:
        return None
    goes_on = upload.size_bytes == announced.size_bytes
    if goes_on and upload.state == repository.RECEIVING:
        try:
            parts.storage.received_parts(upload.storage_handle)
        except errors.UploadClosedError:
            goes_on = False
    if not goes_on:
        upload.state = repository.EXPIRED
        session.flush()
        return None
    return upload


def _begin(parts: ServerParts, session: Session, upload: UploadRecord) -> None:
    """Store a new upload and make room for its parts."""
    most = parts.settings.max_open_uploads_per_site
    # Of several announcements at once, each counts those before it.
    wait_for_turn(session, f"uploads of site {upload.site_id}")
    if repository.count_open(session, upload.site) >= most:
        raise errors.ConflictError(
            f"site {upload.site.name!r} has {most} uploads under way, which is the most allowed",
            code="too_many_uploads",
            hint="Complete some, or give them up: `poolctl uploads` lists them, "
            "`poolctl uploads UPLOAD --cancel` ends one; stale ones are cleared away.",
        )
    require_room(session, upload.site_id, upload.digest, upload.size_bytes, announced=True)
    upload.storage_handle = parts.storage.begin(
        upload.id, size_bytes=upload.size_bytes, part_bytes=upload.part_bytes
    )
    session.add(upload)


def _require_all_parts(parts: ServerParts, upload: UploadRecord) -> None:
    plan = PartPlan(upload.size_bytes, upload.part_bytes)
    for _ in range(2):  # The client is sent for parts only if the storage lacks them twice.
        received = parts.storage.received_parts(upload.storage_handle)
        missing = [
            number
            for number in range(1, plan.count + 1)
            if received.get(number) != plan.size_of(number)
        ]
        if not missing:
            break
    if missing:
        named = ", ".join(str(number) for number in missing[:MOST_NAMED_PARTS])
        raise errors.UploadIncompleteError(
            f"{len(missing)} of {plan.count} parts are missing: {named}"
            + (" ..." if len(missing) > MOST_NAMED_PARTS else ""),
            hint="Send them, then complete the upload again.",
            details={"missing": missing},
        )


def _check_and_accept(
    parts: ServerParts,
    caller: Caller,
    upload: UploadRecord,
    check: Check[CheckedT],
    accept: Accept[CheckedT],
) -> UploadRecord:
    handle = upload.storage_handle
    plan = PartPlan(upload.size_bytes, upload.part_bytes)
    with parts.storage.assembled(handle, plan.count, upload.digest) as path:
        checked = check(upload, path)
    # Before the record, for a version must never lack its bytes; bytes that are left without a
    # record are found by the garbage collection.
    parts.storage.publish(handle, upload.digest)

    def act(session: Session) -> UploadRecord:
        current = repository.find_upload(session, upload.id, lock=True)
        if current is not None and current.state == repository.COMPLETE:
            return current
        if current is None or current.state not in OPEN_UPLOADS:
            raise errors.UploadClosedError("the upload was given up while it was checked")
        version = accept(session, caller, current, checked)
        current.state = repository.COMPLETE
        current.claim_expires_at = None
        current.version_id = None if version is None else version.id
        return current

    return write_with_retry(parts.database, act)


def _refuse(
    parts: ServerParts, caller: Caller, upload: UploadRecord, error: errors.PoolError
) -> None:
    code = error.code
    with parts.database.write() as session:
        current = repository.find_upload(session, upload.id, lock=True)
        if current is not None and current.state in OPEN_UPLOADS:
            current.state = repository.REFUSED
            current.claim_expires_at = None
            current.refusal = {"code": code, "message": error.message}
        record_act(
            session,
            caller,
            _ACTIONS[upload.purpose],
            subject_of(upload),
            outcome="refused",
            code=code,
            digest=upload.digest,
        )
    parts.metrics.count_refused_upload(code)
    discard_quietly(parts, upload)


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
    if upload.state in OPEN_UPLOADS:
        received = parts.storage.received_parts(upload.storage_handle)
        checksum = parts.storage.part_checksum(upload.storage_handle) or checksum

    def describe_part(number: int) -> uploads.UploadPart:
        size_bytes = plan.size_of(number)
        return uploads.UploadPart(
            number=number,
            offset=plan.offset_of(number),
            size_bytes=size_bytes,
            received=upload.state == repository.COMPLETE or received.get(number) == size_bytes,
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
    if upload.state in OPEN_UPLOADS:
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
            log.exception("a stale upload could not be discarded; its files are swept later")
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
        log.exception("the storage does not answer; stale uploads are swept later")
