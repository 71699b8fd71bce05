"""Files of a session: received as all files are, given to its sites, deleted after its end."""

import threading
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import ClassVar

from sqlalchemy.orm import Session

from pool_server.database import records
from pool_server.errors import ConflictError
from pool_server.http.audit import record_act
from pool_server.http.identity import Caller
from pool_server.http.session import ServerParts
from pool_server.jobs.background import run_in_background
from pool_server.people.usage import require_room
from pool_server.rounds.repository import is_needed
from pool_server.secure import service
from pool_server.transfers.receiving import Announcement, Arrival, Destination
from pool_server.wire.rounds import SecureFileRequest

MOST_FILES = 64
"""Files of one site in one session; the protocol has one or two."""
KEPT = timedelta(days=30)
"""Sessions are kept for so long after their end."""
SWEEP_INTERVAL_S = 3600.0
LONGEST_STOP_S = 10.0


@dataclass(frozen=True)
class SessionFiles(Destination[SecureFileRequest, None]):
    """The files of one session."""

    purpose: ClassVar[str] = "secure"
    action: ClassVar[str] = "secure.send"

    session: records.SecureSessionRecord

    def fill_in(self, announced: Announcement[SecureFileRequest]) -> None:
        upload, offer = announced.upload, announced.offer
        upload.model_name = self.session.key
        upload.file_name = f"{offer.site}-{offer.digest[:16]}.bin"
        upload.secure_session_id = self.session.id

    def admit(self, session: Session, announced: Announcement[SecureFileRequest]) -> bool:
        upload, offer = announced.upload, announced.offer
        service.require_participant(announced.caller, self.session, offer.site)
        known = session.get(
            records.SecureFileRecord, (self.session.id, upload.site_id, upload.digest)
        )
        if known is not None:
            return self.parts.storage.has_content(known.digest)
        if service.count_files(session, self.session.id, upload.site_id) >= MOST_FILES:
            raise ConflictError(
                f"site {offer.site!r} has sent {MOST_FILES} files to session {self.session.key}, "
                "which is the most allowed",
                code="too_many_files",
            )
        return False

    def belongs(self, upload: records.UploadRecord) -> bool:
        return super().belongs(upload) and upload.secure_session_id == self.session.id

    def check(self, upload: records.UploadRecord, path: Path) -> None:
        """Accept any bytes with the announced digest: only the receivers can read them."""

    def accept(self, session: Session, arrived: Arrival[None]) -> None:
        """Give a received file to the session."""
        caller, upload = arrived.caller, arrived.upload
        if upload.secure_session_id is None:
            raise ConflictError("the session of this file was deleted", code="session_not_found")
        service.lock_session(session, upload.secure_session_id)
        key = (upload.secure_session_id, upload.site_id, upload.digest)
        if session.get(records.SecureFileRecord, key) is not None:
            return
        require_room(session, upload.site_id, upload.digest, upload.size_bytes, announced=False)
        session.add(
            records.SecureFileRecord(
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
            self.action,
            upload.model_name,
            site=upload.site.name,
            digest=upload.digest,
            size_bytes=upload.size_bytes,
        )
        session.flush()


def files_of(parts: ServerParts, caller: Caller, key: str) -> SessionFiles:
    with parts.database.read() as session:
        return SessionFiles(parts, service.get_session(session, caller, key))


def delete_ended_sessions(parts: ServerParts) -> int:
    """Delete sessions that ended long ago, and their files; return how many files were removed."""
    with parts.database.alone("secure sessions") as is_first:
        if not is_first:
            return 0
        with parts.database.write() as session:
            digests = service.delete_ended(session, records.now_utc() - KEPT)
        with parts.database.read() as session:
            unneeded = [each for each in sorted(digests) if not is_needed(session, each)]
        for digest in unneeded:
            parts.storage.remove_content(digest)
    return len(unneeded)


@asynccontextmanager
async def delete_ended_sessions_in_background(parts: ServerParts) -> AsyncIterator[None]:
    """Delete ended sessions from time to time while the block runs."""

    def step(_stopping: threading.Event) -> bool:
        delete_ended_sessions(parts)
        return False

    async with run_in_background(
        "secure sessions", step, interval_s=SWEEP_INTERVAL_S, longest_stop_s=LONGEST_STOP_S
    ):
        yield
