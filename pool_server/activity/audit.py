"""Reading the audit: who did what in the pool, and when. Nothing here writes it."""

from collections.abc import Mapping
from typing import Annotated, Any

from fastapi import APIRouter, Query
from pydantic import BaseModel, Field
from sqlalchemy import ColumnElement, Select, and_, or_, select

from pool_server.database.records import AuditRecord
from pool_server.http.identity import Caller, SiteAdmin, needs
from pool_server.http.parameters import Cursor, Limit, describe, find_page, read_cursor
from pool_server.http.session import ReadingSession
from pool_server.wire.activity import AuditEntry, AuditPage, Moment
from pool_server.wire.names import Line, Name

# A withdrawal writes these entries for models of other sites, which the actor may not see.
FOLLOWING = ("version.flag", "version.replace")


class AuditQuery(BaseModel):
    """The filters of a listing; an act must pass every one."""

    subject: Annotated[Line, Field(min_length=1, max_length=256)] | None = Field(
        default=None,
        description="`SITE/NAME@2`, `SITE/NAME` with its versions, `SITE/` with its models.",
        examples=["site-a/face-68@2"],
    )
    action: str | None = Field(
        default=None,
        description="An action, or its noun alone for all of it.",
        max_length=64,
        pattern=r"^[a-z-]+(\.[a-z-]+)*$",
        examples=["version.withdraw", "token"],
    )
    site: Name | None = Field(
        default=None,
        description="What this site did, and what was done to things of it.",
        examples=["site-a"],
    )
    since: Moment | None = Field(
        default=None, description="From this moment on.", examples=["2026-03-01T12:00:00Z"]
    )
    limit: Limit = 50
    cursor: Cursor = None


def select_entries(query: AuditQuery, caller: Caller) -> Select[AuditRecord]:
    """Select the acts that pass every filter, as far as the caller may read them.

    Of a site's admin, what an act of theirs led to at other sites is left out, and what their
    people who look after the whole pool did there.
    """
    site, conditions = query.site, list[ColumnElement[bool]]()
    if not caller.has_role("admin"):
        site = query.site or caller.site
        caller.require_role("admin", site)
        seen = and_(AuditRecord.action.not_in(FOLLOWING), AuditRecord.pool_wide.is_(False))
        conditions.append(or_(seen, _is_of(site)))
    if site is not None:
        conditions.append(or_(AuditRecord.actor_site == site, _is_of(site)))
    if query.subject is not None:
        conditions.append(_is_about(query.subject))
    if query.action is not None:
        of_noun = AuditRecord.action.startswith(f"{query.action}.", autoescape=True)
        conditions.append(or_(AuditRecord.action == query.action, of_noun))
    if query.since is not None:
        conditions.append(AuditRecord.at >= query.since)
    return select(AuditRecord).where(*conditions)


def _is_of(site: str) -> ColumnElement[bool]:
    belongs = AuditRecord.subject.startswith(f"{site}/", autoescape=True)
    return or_(AuditRecord.subject == site, belongs)


def _is_about(subject: str) -> ColumnElement[bool]:
    if subject.endswith("/"):
        return AuditRecord.subject.startswith(subject, autoescape=True)
    return or_(
        AuditRecord.subject == subject,
        AuditRecord.subject.startswith(f"{subject}@", autoescape=True),
    )


def describe_entry(entry: AuditRecord, caller: Caller) -> AuditEntry:
    # Where people of other sites sit and which token they use is not for everybody.
    knows_actor = caller.has_role("admin", entry.actor_site)
    return describe(
        AuditEntry,
        entry,
        entry_id=entry.id,
        actor=f"{entry.actor_site}/{entry.actor_token}",
        user=entry.actor_user if knows_actor else "",
        details=entry.details
        if caller.has_role("admin")
        else _drop_names_of_others(caller.site, entry.details),
        token_id=entry.token_id if knows_actor else "",
        address=entry.address if knows_actor else "",
    )


def _drop_names_of_others(site: str, details: Mapping[str, Any]) -> dict[str, Any]:
    """Return details without the names of other sites' models that a withdrawal has flagged."""
    if "flagged" not in details:
        return dict(details)
    own = [name for name in details["flagged"] if name.startswith(f"{site}/")]
    return {**details, "flagged": own}


router = APIRouter(tags=["audit"], dependencies=[needs("audit:read")])


@router.get("/audit", summary="Read the audit")
def list_audit(
    caller: SiteAdmin, session: ReadingSession, query: Annotated[AuditQuery, Query()]
) -> AuditPage:
    """Return what was done in the pool, and what was refused, newest first, a page at a time.

    Admins of the pool see everything; those of a site see what their site did, and what others
    did to its things. The audit is only ever appended to: neither the pool nor its database
    changes an entry.
    """
    before_id = None if query.cursor is None else read_cursor(query.cursor)
    found = select_entries(query, caller)
    page, next_cursor = find_page(session, found, AuditRecord.id, before_id, query.limit)
    items = [describe_entry(entry, caller) for entry in page]
    return AuditPage(items=items, next_cursor=next_cursor)
