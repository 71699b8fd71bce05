"""The state of a server optimiser, which the next round is combined with.

It is kept as the result is, but before it: a round that has ended has its state. One that was
kept and whose round did not end is kept again, or replaced, by whoever finishes the round.
"""

from __future__ import annotations

from pathlib import Path

from sqlalchemy.orm import Session

from pool_server.database.engine import write_with_retry
from pool_server.database.records import RoundRecord, UploadRecord, now_utc
from pool_server.http.identity import Caller
from pool_server.http.session import ServerParts
from pool_server.people.sites.repository import get_site
from pool_server.rounds import repository
from pool_server.rounds.contributing import round_of
from pool_server.transfers.announcing import (
    AnnouncedFile,
    begin_upload,
    find_resumable,
    new_upload,
    require_size,
)
from pool_server.transfers.completing import Destination, complete_upload
from pool_server.transfers.parts import store_parts
from pool_server.transfers.service import describe_upload
from pool_server.wire.transfers.uploads import UploadResponse

PURPOSE = "state"


def keep_state(
    parts: ServerParts,
    caller: Caller,
    found: RoundRecord,
    path: Path,
    *,
    digest: str,
    site: str,
) -> None:
    """Keep the state that was made with the result of a round, and note it with the round.

    Parameters
    ----------
    site : str
        Where the result is published; its quota is used.

    Raises
    ------
    TooLargeError, ConflictError
        The pool takes no file of this size, or has no room for it.
    """
    size_bytes = path.stat().st_size
    file = AnnouncedFile(found.key, digest, size_bytes, f"{found.key}.state", PURPOSE)
    require_size(parts.settings, file.file_name, size_bytes)

    def begin(session: Session) -> UploadResponse | None:
        current = repository.lock_round(session, found.id)
        is_kept = current.state_digest == digest and parts.storage.has_content(digest)
        if is_kept or current.state != repository.OPEN:
            return None
        owner = get_site(session, site)
        upload = find_resumable(parts, session, owner.id, file)
        if upload is not None:
            upload.expires_at = now_utc() + parts.settings.upload_lifetime
            return describe_upload(parts, upload)
        upload = new_upload(parts, caller, owner, file, "receiving")
        upload.round_id = current.id
        return begin_upload(parts, session, upload)

    upload = write_with_retry(parts.database, begin)
    if upload is None:
        return
    if upload.state == "receiving":
        store_parts(parts, caller, upload, path)
    complete_upload(parts, caller, upload.upload_id, STATE)


def settle_state(session: Session, _caller: Caller, upload: UploadRecord, _checked: None) -> None:
    """Note a state with its round, unless the round has ended meanwhile."""
    current = repository.lock_round(session, round_of(upload))
    if current.state == repository.OPEN:
        current.state_digest, current.state_size_bytes = upload.digest, upload.size_bytes
        session.flush()


# The pool has made the file itself, and the storage compares its digest.
STATE: Destination[None] = Destination(
    PURPOSE, "round.keep-state", lambda _parts, _upload, _path: None, settle_state
)
