"""Files of a session: received as models are, given to its sites, deleted after its end."""

from __future__ import annotations

import threading
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import timedelta
from pathlib import Path

from sqlalchemy.orm import Session
from starlette.responses import Response

from pool_server.database.engine import write_with_retry
from pool_server.database.records import SecureFileRecord, UploadRecord, now_utc
from pool_server.errors import ConflictError, MissingError
from pool_server.http.audit import record_act
from pool_server.http.content import send_content
from pool_server.http.identity import Caller
from pool_server.http.session import ServerParts
from pool_server.jobs.worker import working
from pool_server.people.sites.quotas import require_room
from pool_server.people.sites.repository import get_site
from pool_server.rounds.repository import is_needed
from pool_server.secure import repository, service
from pool_server.transfers.announcing import (
    AnnouncedFile,
    begin_upload,
    find_resumable,
    new_upload,
    require_size,
)
from pool_server.transfers.completing import Destination, complete_upload
from pool_server.transfers.service import describe_upload, get_upload
from pool_server.wire.secure import SecureFileRequest
from pool_server.wire.transfers.uploads import UploadResponse

PURPOSE = "secure"
MOST_FILES = 64
"""Files of one site in one session; the protocol has one or two."""
KEPT = timedelta(days=30)
"""How long a session is kept after its end."""
SWEEP_INTERVAL_S = 3600.0
LONGEST_STOP_S = 10.0


def announce_file(
    parts: ServerParts, caller: Caller, key: str, request: SecureFileRequest
) -> tuple[UploadResponse, bool]:
    """Begin to receive a file, or find the upload under way, or find that the file is there.

    Returns
    -------
    UploadResponse
    bool
        True when something new was made.

    Raises
    ------
    ConflictError
        The site has sent too many files.
    """
    file_name = f"{request.site}-{request.digest[:16]}.bin"
    require_size(parts.settings, file_name, request.size_bytes)

    def settle(session: Session) -> tuple[UploadResponse, bool]:
        found = service.get_session(session, caller, key)
        service.require_participant(caller, found, request.site)
        site = get_site(session, request.site)
        file = AnnouncedFile(key, request.digest, request.size_bytes, file_name, PURPOSE)
        known = session.get(SecureFileRecord, (found.id, site.id, request.digest))
        if known is not None and parts.storage.has_content(known.digest):
            upload = new_upload(parts, caller, site, file, "complete")
            upload.secure_session_id = found.id
            session.add(upload)
            session.flush()
            return describe_upload(parts, upload), False
        under_way = find_resumable(parts, session, site.id, file)
        if under_way is not None:
            under_way.expires_at = now_utc() + parts.settings.upload_lifetime
            return describe_upload(parts, under_way), False
        if repository.count_files(session, found.id, site.id) >= MOST_FILES:
            raise ConflictError(
                f"site {site.name!r} has sent {MOST_FILES} files to session {key}, which is the "
                "most allowed",
                code="too_many_files",
            )
        upload = new_upload(parts, caller, site, file, "receiving")
        upload.secure_session_id = found.id
        return begin_upload(parts, session, upload), True

    return write_with_retry(parts.database, settle)


def complete_file(parts: ServerParts, caller: Caller, key: str, upload_id: str) -> UploadResponse:
    """Verify the digest of a file whose parts are all there, and give it to the session."""
    with parts.database.read() as session:
        found = service.get_session(session, caller, key)
        if get_upload(session, caller, upload_id).secure_session_id != found.id:
            raise MissingError(
                f"session {key} has no upload {upload_id}",
                code="upload_not_found",
                hint="Announce the file again.",
            )
    return complete_upload(parts, caller, upload_id, FILE)


def send_file(parts: ServerParts, caller: Caller, key: str, digest: str) -> Response:
    """Return the answer with a file of a session."""
    with parts.database.read() as session:
        found = service.get_session(session, caller, key)
        file = repository.find_file(session, found.id, digest)
    if file is None:
        raise MissingError(f"session {key} has no file {digest}", code="file_not_found")
    return send_content(parts, digest, file.size_bytes, f"{digest[:16]}.bin")


def accept_ciphertext(_parts: ServerParts, _upload: UploadRecord, _path: Path) -> None:
    """Accept any bytes with the announced digest: only the receivers can read them."""


def settle_file(session: Session, caller: Caller, upload: UploadRecord, _checked: None) -> None:
    """Give a received file to its session."""
    if upload.secure_session_id is None:
        raise ConflictError("the session of this file was deleted", code="session_not_found")
    repository.lock_session(session, upload.secure_session_id)
    key = (upload.secure_session_id, upload.site_id, upload.digest)
    if session.get(SecureFileRecord, key) is not None:
        return
    require_room(session, upload.site_id, upload.digest, upload.size_bytes, announced=False)
    session.add(
        SecureFileRecord(
            session_id=upload.secure_session_id,
            site_id=upload.site_id,
            digest=upload.digest,
            size_bytes=upload.size_bytes,
            token_id=caller.token_id,
        )
    )
    record_act(
        session,
        caller,
        FILE.action,
        upload.model_name,
        site=upload.site.name,
        digest=upload.digest,
        size_bytes=upload.size_bytes,
    )
    session.flush()


FILE = Destination(PURPOSE, "secure.send", accept_ciphertext, settle_file)


def delete_ended_sessions(parts: ServerParts) -> int:
    """Delete sessions that are over for long, and their files; return how many files went."""
    with parts.database.alone("secure sessions") as is_first:
        if not is_first:
            return 0
        with parts.database.write() as session:
            digests = repository.delete_ended(session, now_utc() - KEPT)
        with parts.database.read() as session:
            unneeded = [each for each in sorted(digests) if not is_needed(session, each)]
        for digest in unneeded:
            parts.storage.remove_content(digest)
    return len(unneeded)


@asynccontextmanager
async def deleting_ended_sessions(parts: ServerParts) -> AsyncIterator[None]:
    """Delete ended sessions from time to time while the block runs."""

    def step(_stopping: threading.Event) -> bool:
        delete_ended_sessions(parts)
        return False

    async with working(
        "secure sessions", step, interval_s=SWEEP_INTERVAL_S, longest_stop_s=LONGEST_STOP_S
    ):
        yield
