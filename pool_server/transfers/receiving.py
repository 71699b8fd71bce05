"""Receive files: the one way into the pool, for files of every purpose.

How an upload works, step by step:

1. `announce_upload` (`POST /uploads`, `.../contributions`, `.../files`): the uploader describes
   the file. The destination decides whether it may come at all; nothing is sent that the pool has
   already. A record with the parts to send is the answer; the same announcement again gives the
   same record, so that an interrupted client goes on, and a second uploader of the file joins in.
2. `transfers.endpoints.send_part`: the parts arrive, in any order, at the server or straight at its
   storage. Only the storage knows for certain which are there, and it alone is asked.
3. `complete_upload` (`POST .../complete`): one process claims the upload; the storage joins the
   parts and computes the digest; the destination checks the file in a limited child process; the
   storage publishes the bytes under their digest; one transaction writes their records.

A file that the pool itself has made goes to its destination without parts (`store_result`).

Lies and deaths, and the steps that find them:

- The uploader about the size: each part is held to the announced plan, and quota and largest size
  are judged by the announcement. About the digest: it is computed from the bytes that the storage
  gives back. About the kind of file: the destination reads the file itself. About its owner:
  the destination, at the announcement and again in the last transaction.
- A slow or dying uploader holds nothing but its record, which expires (`service.sweep_uploads`);
  the number of those is limited for each site.
- A second uploader of the same file to the same place: one record by a unique index, one check
  by the claim, and the last transaction finds the records of the first.
- A full disk is found when the storage prepares for the file, and again at each part; the upload
  stays open, and goes on once there is room.
- A server killed between any two steps: everything before the last transaction can be done again,
  and that transaction happens wholly or not at all. The claim is a lease and runs out.
"""

import secrets
from collections.abc import Callable
from pathlib import Path
from typing import Any

from sqlalchemy.orm import Session

from pool_server import errors
from pool_server.database.engine import wait_for_turn, write_with_retry
from pool_server.database.records import SiteRecord, UploadRecord, now_utc
from pool_server.http.audit import record_act
from pool_server.http.identity import Caller
from pool_server.http.session import ServerParts
from pool_server.people.sites import get_site
from pool_server.people.usage import require_room
from pool_server.storage.contract import PartPlan
from pool_server.transfers import repository, service
from pool_server.transfers.destination import Announcement, Arrival, Destination, Offer, OfferT

MOST_NAMED_PARTS = 20


def announce_upload(
    destination: Destination[OfferT, Any], caller: Caller, offer: OfferT
) -> tuple[UploadRecord, bool]:
    """Begin an upload, or find the one under way, or find that nothing need be sent.

    The record is complete where nothing need be sent; True when something new was made.
    """
    parts = destination.parts
    caller.require_upload_to(offer.site)

    def settle(session: Session) -> tuple[UploadRecord, bool]:
        upload = _new_upload(parts, caller, get_site(session, offer.site), destination, offer)
        announced = Announcement(caller, offer, upload)
        destination.fill_in(announced)
        _require_size(parts, upload)
        is_here = destination.admit(session, announced)
        # An open upload goes on, even if the pool could copy the file by now: its client is
        # sending parts, and would be left with an upload that nobody completes.
        under_way = None if is_here else _find_resumable(parts, session, upload)
        if under_way is not None:
            under_way.expires_at = now_utc() + parts.settings.upload_lifetime
            # While it is being checked, its description must not change.
            if under_way.state == repository.RECEIVING:
                destination.renew(under_way, announced)
            return under_way, False
        if is_here or destination.accept_copy(session, announced):
            upload.state = repository.COMPLETE
            session.add(upload)
            return upload, not is_here
        _begin(parts, session, upload)
        return upload, True

    return write_with_retry(parts.database, settle)


def complete_upload(
    destination: Destination[Any, Any], caller: Caller, upload_id: str
) -> UploadRecord:
    """Assemble, check and accept a file after all parts have arrived.

    The steps (this process may die after any of them): claim the upload;
    join the parts aside and verify the digest; check the file in another process; publish it
    under its digest; write its final record in one transaction; discard the parts.
    """
    parts = destination.parts
    with parts.database.read() as session:
        upload = service.get_upload(session, caller, upload_id)
    _require_belonging(upload, destination)
    if upload.state == repository.COMPLETE:
        return upload
    service.require_open(upload)
    if upload.state == repository.RECEIVING:
        _require_all_parts(parts, upload)
    with service.lease_upload(parts, upload.id):
        try:
            completed = _check_and_accept(destination, caller, upload)
        except (errors.UploadClosedError, errors.UploadIncompleteError):
            # These are conflicts too, but say nothing against the file: it can be sent again.
            raise
        except (errors.RefusedError, errors.ConflictError) as error:
            _refuse(parts, caller, upload, destination.action, error)
            raise
    service.discard_quietly(parts, upload)
    return completed


def store_result(
    destination: Destination[OfferT, Any],
    refresh_caller: Callable[[], Caller],
    offer: OfferT,
    file: Path,
) -> UploadRecord:
    """Bring a file that the pool itself has made to its destination; return the complete record.

    Nothing is sent, so the record itself is not kept. If the process dies on the way, the file
    may be left without a record, and the work that made it is done again. Storing a large file
    takes long: `refresh_caller` returns the caller with the rights of that moment.
    """
    parts, caller = destination.parts, refresh_caller()
    caller.require_upload_to(offer.site)

    def admit(session: Session) -> tuple[UploadRecord, bool]:
        upload = _new_upload(parts, caller, get_site(session, offer.site), destination, offer)
        announced = Announcement(caller, offer, upload)
        destination.fill_in(announced)
        _require_size(parts, upload)
        if destination.admit(session, announced):
            return upload, True
        require_room(session, upload.site_id, upload.digest, upload.size_bytes, announced=True)
        return upload, False

    upload, is_complete = write_with_retry(parts.database, admit)
    if is_complete:
        return upload
    checked = destination.check(upload, file)
    parts.storage.store(file, offer.digest)
    caller = refresh_caller()

    def accept(session: Session) -> UploadRecord:
        upload.site = get_site(session, offer.site)
        version = destination.accept(session, Arrival(caller, upload, checked))
        upload.version_id = None if version is None else version.id
        session.flush()
        # A garbage collection may have come before the record, and waits for it from now on.
        parts.storage.store(file, offer.digest)
        return upload

    return write_with_retry(parts.database, accept)


def _new_upload(
    parts: ServerParts,
    caller: Caller,
    site: SiteRecord,
    destination: Destination[Any, Any],
    offer: Offer,
) -> UploadRecord:
    """Return a record that is not stored yet."""
    settings = parts.settings
    return UploadRecord(
        id=secrets.token_hex(16),
        site=site,
        site_id=site.id,
        token_id=caller.token_id,
        purpose=destination.purpose,
        digest=offer.digest,
        size_bytes=offer.size_bytes,
        part_bytes=PartPlan.choose(offer.size_bytes, settings.part_bytes).part_bytes,
        description="",
        labels={},
        metrics={},
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


def _require_belonging(upload: UploadRecord, destination: Destination[Any, Any]) -> None:
    if not destination.belongs(upload):
        raise errors.MissingError(
            f"upload {upload.id} was not announced here, but as a {upload.purpose} of "
            f"{upload.model_name}",
            code="upload_not_found",
            hint="Complete it where it was announced: a contribution at its round, a file at its "
            "session.",
        )


def _require_all_parts(parts: ServerParts, upload: UploadRecord) -> None:
    plan = PartPlan(upload.size_bytes, upload.part_bytes)
    received = parts.storage.received_parts(upload.storage_handle)
    missing = [
        number
        for number in range(1, plan.count + 1)
        if received.get(number) != plan.size_of(number)
    ]
    if missing:
        named = ", ".join(str(number) for number in missing[:MOST_NAMED_PARTS])
        raise errors.UploadIncompleteError(
            f"{len(missing)} of {plan.count} parts are missing: {named}"
            + (" ..." if len(missing) > MOST_NAMED_PARTS else ""),
            hint="Send them, then complete the upload again.",
            details={"missing": missing},
        )


def _check_and_accept(
    destination: Destination[Any, Any], caller: Caller, upload: UploadRecord
) -> UploadRecord:
    parts, handle = destination.parts, upload.storage_handle
    plan = PartPlan(upload.size_bytes, upload.part_bytes)
    with parts.storage.assembled(handle, plan.count, upload.digest) as path:
        checked = destination.check(upload, path)
    # Before the record, for a version must never lack its bytes; bytes that are left without a
    # record are found by the garbage collection.
    parts.storage.publish(handle, upload.digest)

    def act(session: Session) -> UploadRecord:
        current = repository.find_upload(session, upload.id, lock=True)
        if current is not None and current.state == repository.COMPLETE:
            return current
        if current is None or current.state not in repository.OPEN:
            raise errors.UploadClosedError("the upload was given up while it was checked")
        version = destination.accept(session, Arrival(caller, current, checked))
        current.state = repository.COMPLETE
        current.claim_expires_at = None
        current.version_id = None if version is None else version.id
        return current

    return write_with_retry(parts.database, act)


def _refuse(
    parts: ServerParts, caller: Caller, upload: UploadRecord, action: str, error: errors.PoolError
) -> None:
    code = error.code
    with parts.database.write() as session:
        current = repository.find_upload(session, upload.id, lock=True)
        if current is not None and current.state in repository.OPEN:
            current.state = repository.REFUSED
            current.claim_expires_at = None
            current.refusal = {"code": code, "message": error.message}
        record_act(
            session,
            caller,
            action,
            service.subject_of(upload),
            outcome="refused",
            code=code,
            digest=upload.digest,
        )
    parts.metrics.count_refused_upload(code)
    service.discard_quietly(parts, upload)
