"""Recording which sites downloaded a version, so that they can be notified of its withdrawal."""

from __future__ import annotations

from datetime import timedelta

from pool_server.activity.events import write_event
from pool_server.database.records import DownloadRecord, ModelVersionRecord, now_utc
from pool_server.errors import WriteConflictError
from pool_server.http.identity import Caller
from pool_server.http.session import ServerParts
from pool_server.models.registry.repository import hold_families
from pool_server.models.registry.standing import address_of

DOWNLOADED_EVENT = "version.downloaded"
# Writing at every download would make every reader a writer.
REMEMBER_STEP = timedelta(days=1)


def note_download(parts: ServerParts, caller: Caller, version: ModelVersionRecord) -> bool:
    """Remember that the caller's site fetches a version; the owner hears of the first time.

    A site's own models need no note, for it hears of them anyway.

    Returns
    -------
    bool
        True when something was written. A withdrawal that ended before then did not know of the
        site, so that the version has to be looked at once more before it is given out.
    """
    if caller.site_id == version.model.site_id:
        return False
    now = now_utc()
    key = (version.id, caller.site_id)
    with parts.database.read() as session:
        known = session.get(DownloadRecord, key)
    if known is not None and now - known.last_at < REMEMBER_STEP:
        return False
    try:
        with parts.database.write() as session:
            hold_families(session)
            found = session.get(DownloadRecord, key)
            if found is None:
                session.add(DownloadRecord(version_id=version.id, site_id=caller.site_id))
                session.flush()
                owner = version.model.site_id
                write_event(session, owner, DOWNLOADED_EVENT, address_of(version), by=caller.site)
            else:
                found.last_at = now
    except WriteConflictError:
        # Another request of the same site has written it at this moment.
        pass
    return True
