"""From the last part to the version: assembled, checked, published."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Generic, TypeVar

from sqlalchemy.orm import Session

from pool_server.database.engine import write_with_retry
from pool_server.database.records import ModelVersionRecord, UploadRecord, now_utc
from pool_server.errors import (
    ConflictError,
    MissingError,
    PoolError,
    RefusedError,
    TransactionError,
    UploadClosedError,
    UploadIncompleteError,
)
from pool_server.http.audit import record_act
from pool_server.http.error_table import entry_of
from pool_server.http.identity import Caller
from pool_server.http.session import ServerParts
from pool_server.jobs.lease import lease_end, renewing
from pool_server.models.registry.repository import oldest_elsewhere
from pool_server.transfers import repository
from pool_server.transfers.checking import CheckedModel, run_check
from pool_server.transfers.notifying import tell_curators
from pool_server.transfers.plan import PartPlan
from pool_server.transfers.publishing import add_version
from pool_server.transfers.remaking import remake
from pool_server.transfers.service import (
    busy,
    describe_upload,
    discard_quietly,
    get_upload,
    require_open,
    subject_of,
    version_of,
)
from pool_server.wire.transfers.uploads import UploadResponse

log = logging.getLogger("pool_server.uploads")

MOST_NAMED_PARTS = 20
CheckedT = TypeVar("CheckedT")


@dataclass(frozen=True)
class Destination(Generic[CheckedT]):
    """How a file is checked and written down.

    Attributes
    ----------
    purpose : str
        The `purpose` of the uploads that come here.
    action : str
        What the audit calls it.
    check : callable
        Looks at the assembled file, in another process; raises a leaf of `RefusedError`.
    settle : callable
        Writes what the file became, within a transaction, and returns the version that it is,
        if it is one. A leaf of `ConflictError` raised here ends the upload as a refusal does.
    """

    purpose: str
    action: str
    check: Callable[[ServerParts, UploadRecord, Path], CheckedT]
    settle: Callable[[Session, Caller, UploadRecord, CheckedT], ModelVersionRecord | None]


def check_version(parts: ServerParts, upload: UploadRecord, path: Path) -> CheckedModel:
    """Check a file; make it again where it is the file of another site, and has a recipe."""
    checked = run_check(path, upload.file_name, upload.size_bytes, parts.settings)
    if upload.recipe is None:
        return checked
    with parts.database.read() as session:
        elsewhere = oldest_elsewhere(session, upload.site_id, upload.digest)
    return checked if elsewhere is None else replace(checked, remade=remake(parts, upload))


def check_merged(parts: ServerParts, upload: UploadRecord, path: Path) -> CheckedModel:
    """Check a file that the pool itself has made by the recipe."""
    checked = run_check(path, upload.file_name, upload.size_bytes, parts.settings)
    return replace(checked, remade=True)


def settle_version(
    session: Session, caller: Caller, upload: UploadRecord, checked: CheckedModel
) -> ModelVersionRecord:
    return add_version(session, caller, upload, upload.site.name, checked)


VERSION = Destination("version", "version.publish", check_version, settle_version)
MERGED = replace(VERSION, check=check_merged)


def complete_upload(
    parts: ServerParts,
    caller: Caller,
    upload_id: str,
    destination: Destination[Any] = VERSION,
) -> UploadResponse:
    """Assemble, check and publish a file whose parts are all there.

    The steps, each of which may be the last that this process lives to do: claim the upload;
    join the parts aside and verify the digest; check the format in another process; publish the
    file under its digest; write what it became in one transaction; discard the parts. Only the
    transaction makes the file visible, and everything before it can be done again.

    Raises
    ------
    MissingError, UploadClosedError, UploadBusyError, UploadIncompleteError
        It cannot be completed now.
    DigestMismatchError, FormatRefusedError, ConflictError
        The file is refused for good; so it is by whatever else the destination raises.
    """
    with parts.database.read() as session:
        upload = get_upload(session, caller, upload_id)
        _require_purpose(upload, destination)
        if upload.state == repository.COMPLETE:
            return describe_upload(parts, upload, version_of(session, upload))
    require_open(upload)
    if upload.state == repository.RECEIVING:
        _require_all_parts(parts, upload)
    with leased(parts, upload.id):
        try:
            response = _publish(parts, caller, upload, destination)
        except (UploadClosedError, UploadIncompleteError):
            raise
        except (RefusedError, ConflictError) as error:
            _refuse(parts, caller, upload, destination.action, error)
            raise
    discard_quietly(parts, upload)
    return response


@contextmanager
def leased(parts: ServerParts, upload_id: str) -> Iterator[None]:
    """Hold an upload while it is checked, and release it if the block fails."""
    with parts.database.write() as session:
        if not repository.claim(session, upload_id, now_utc(), lease_end(parts.settings)):
            raise busy()

    def renew() -> None:
        with parts.database.write() as session:
            repository.renew_claim(session, upload_id, lease_end(parts.settings))

    with renewing(parts.settings, f"upload {upload_id}", renew):
        try:
            yield
        except BaseException:
            try:
                with parts.database.write() as session:
                    repository.release(session, upload_id)
            except TransactionError:
                log.exception("upload %s stays leased until its lease ends", upload_id)
            raise


def _publish(
    parts: ServerParts, caller: Caller, upload: UploadRecord, destination: Destination[Any]
) -> UploadResponse:
    storage, handle = parts.storage, upload.storage_handle
    plan = PartPlan(upload.size_bytes, upload.part_bytes)
    with storage.assembled(handle, plan.count, upload.digest) as path:
        checked = destination.check(parts, upload, path)
    storage.publish(handle, upload.digest)

    def act(session: Session) -> UploadResponse:
        current = repository.find_upload(session, upload.id, lock=True)
        if current is not None and current.state == repository.COMPLETE:
            return describe_upload(parts, current, version_of(session, current))
        if current is None or current.state not in repository.OPEN:
            raise UploadClosedError("the upload was given up while it was checked")
        version = destination.settle(session, caller, current, checked)
        current.state = repository.COMPLETE
        current.claim_expires_at = None
        current.version_id = None if version is None else version.id
        if version is not None:
            tell_curators(session, parts.settings, version)
        response = describe_upload(parts, current, version)
        # What cannot be written as JSON must not be published: no listing could show it.
        response.model_dump_json()
        return response

    return write_with_retry(parts.database, act)


def _require_purpose(upload: UploadRecord, destination: Destination[Any]) -> None:
    if upload.purpose != destination.purpose:
        raise MissingError(
            f"upload {upload.id} is no {destination.purpose} but a {upload.purpose}",
            code="upload_not_found",
            hint="Complete it where it was announced: a contribution or result at its round.",
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
        raise UploadIncompleteError(
            f"{len(missing)} of {plan.count} parts are missing: {named}"
            + (" ..." if len(missing) > MOST_NAMED_PARTS else ""),
            hint="Send them, then complete the upload again.",
            details={"missing": missing},
        )


def _refuse(
    parts: ServerParts, caller: Caller, upload: UploadRecord, action: str, error: PoolError
) -> None:
    code = entry_of(error).code
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
            subject_of(upload),
            outcome="refused",
            code=code,
            digest=upload.digest,
        )
    parts.metrics.count_refused_upload(code)
    discard_quietly(parts, upload)
