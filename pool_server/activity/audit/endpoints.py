"""The address of the audit."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Query

from pool_server.activity.audit import service
from pool_server.activity.audit.repository import AuditQuery
from pool_server.http.identity import SiteAdmin
from pool_server.http.pagination import read_cursor
from pool_server.http.scopes import needs
from pool_server.http.session import ReadingSession
from pool_server.wire.audit import AuditPage, Moment
from pool_server.wire.names import Line, Name

router = APIRouter(tags=["audit"], dependencies=[needs("audit:read")])

MOST_ENTRIES = 200


@router.get("/audit", summary="Read the audit")
def read_audit(  # noqa: PLR0917 - FastAPI gives them by name
    caller: SiteAdmin,
    session: ReadingSession,
    subject: Annotated[
        Line | None,
        Query(
            description="`SITE/NAME@2`, `SITE/NAME` with its versions, `SITE/` with its models.",
            min_length=1,
            max_length=256,
            examples=["site-a/face-68@2"],
        ),
    ] = None,
    action: Annotated[
        str | None,
        Query(
            description="An action, or its noun alone for all of it.",
            max_length=64,
            pattern=r"^[a-z-]+(\.[a-z-]+)*$",
            examples=["version.withdraw", "token"],
        ),
    ] = None,
    actor: Annotated[
        Line | None,
        Query(
            description="Who did it: a site, site and token, or site and user.",
            min_length=1,
            max_length=129,
            examples=["site-a/laptop"],
        ),
    ] = None,
    site: Annotated[
        Name | None,
        Query(
            description="What this site did, and what was done to things of it.",
            examples=["site-a"],
        ),
    ] = None,
    since: Annotated[
        Moment | None,
        Query(description="From this moment on.", examples=["2026-03-01T12:00:00Z"]),
    ] = None,
    until: Annotated[
        Moment | None,
        Query(description="Before this moment.", examples=["2026-03-02T12:00:00Z"]),
    ] = None,
    limit: Annotated[
        int, Query(ge=1, le=MOST_ENTRIES, description="Most items of the page.", examples=[50])
    ] = 50,
    cursor: Annotated[
        str | None,
        Query(
            description="`next_cursor` of the page before.",
            max_length=200,
            examples=["djE6YmVmb3JlPTQy"],
        ),
    ] = None,
) -> AuditPage:
    """Return what was done in the pool, and what was refused, newest first, a page at a time.

    Admins of the pool see everything; those of a site see what their site did, and what others
    did to its things. The audit is only ever appended to: neither the pool nor its database
    changes an entry.
    """
    query = AuditQuery(
        site=site,
        subject=subject,
        action=action,
        actor=actor,
        since=since,
        until=until,
        before_id=None if cursor is None else read_cursor(cursor),
        limit=limit,
    )
    return service.read_audit(session, caller, query)
