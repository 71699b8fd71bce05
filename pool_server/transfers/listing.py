"""Telling what is on its way into the pool."""

from __future__ import annotations

from datetime import datetime
from typing import cast

from sqlalchemy.orm import Session

from pool_server.database.records import UploadRecord
from pool_server.http.identity import Caller
from pool_server.http.pagination import write_moment_cursor
from pool_server.people.sites.repository import get_site
from pool_server.transfers import repository
from pool_server.wire.transfers.open_uploads import OpenState, OpenUpload, OpenUploadPage, Purpose


def list_uploads(
    session: Session,
    caller: Caller,
    site: str | None,
    before: tuple[datetime, str] | None,
    limit: int,
) -> OpenUploadPage:
    """Return uploads under way, newest first: to a site, or all that the caller may see.

    Raises
    ------
    NotAllowedError
        Another site's are not for the caller.
    """
    if site is not None:
        caller.require_upload_to(site)
        get_site(session, site)
    elif not caller.is_admin:
        site = caller.site
    found = repository.list_open(session, site, before, limit)
    page = found[:limit]
    last = page[-1][0] if page else None
    return OpenUploadPage(
        items=[_describe(upload, created_by) for upload, created_by in page],
        next_cursor=write_moment_cursor(last.created_at, last.id)
        if last is not None and len(found) > limit
        else None,
    )


def _describe(upload: UploadRecord, created_by: str) -> OpenUpload:
    return OpenUpload(
        upload_id=upload.id,
        site=upload.site.name,
        name=upload.model_name,
        purpose=cast("Purpose", upload.purpose),
        file_name=upload.file_name,
        size_bytes=upload.size_bytes,
        digest=upload.digest,
        state=cast("OpenState", upload.state),
        created_at=upload.created_at,
        created_by=created_by,
        expires_at=upload.expires_at,
    )
