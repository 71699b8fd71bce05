"""Read the audit of acts in the pool; nothing here writes it."""

from collections.abc import Mapping
from typing import Annotated, Any

from fastapi import APIRouter, Query
from pydantic import BaseModel, Field
from sqlalchemy import ColumnElement, Select, and_, or_, select

from pool_server.database.records import AuditRecord
from pool_server.http.identity import Caller, SiteAdmin, needs
from pool_server.http.parameters import Cursor, Limit, describe, find_page
from pool_server.http.session import ReadingSession
from pool_server.wire.activity import AuditEntry, AuditPage, Moment
from pool_server.wire.names import Line, Name

# A withdrawal also writes these entries for models of other sites that the actor may not see.
FOLLOWING = ("version.flag", "version.replace")


class AuditQuery(BaseModel):
    """The filters of a listing; an act must pass every one."""

    subject: Annotated[Line, Field(min_length=1, max_length=256)] | None = Field(
        default=None,
        description="`SITE/NAME@2`, `SITE/NAME` with its versions, `SITE/` with its models.",
    )
    action: str | None = Field(
        default=None,
        description="An action, or its noun alone for all of it.",
        max_length=64,
        pattern=r"^[a-z-]+(\.[a-z-]+)*$",
    )
    site: Name | None = Field(
        default=None, description="Acts by this site, and acts on its models, tokens and users."
    )
    since: Moment | None = Field(default=None, description="From this moment on.")
    limit: Limit = 50
    cursor: Cursor = None


def select_entries(query: AuditQuery, caller: Caller) -> Select[AuditRecord]:
    """Select the acts that pass every filter and that the caller may read.

    The admin of a site cannot read its users' acts at other sites that follow from a withdrawal,
    nor the acts there of its users with pool-wide roles.
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
    # Only admins of the actor's site may read its users' addresses and tokens.
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
    names = [name for name in details["flagged"] if name.startswith(f"{site}/")]
    return {**details, "flagged": names}


router = APIRouter(tags=["audit"], dependencies=[needs("audit:read")])


@router.get("/audit", summary="Read the audit")
def list_audit(
    caller: SiteAdmin, session: ReadingSession, query: Annotated[AuditQuery, Query()]
) -> AuditPage:
    """Return the acts in the pool, refused ones included, newest first, a page at a time.

    Admins of the pool read everything; admins of a site read the acts by their site and those of
    others on its models, tokens and users. Entries are only appended: neither the pool nor its
    database changes one.
    """
    entries = select_entries(query, caller)
    page, next_cursor = find_page(session, entries, AuditRecord.id, query.cursor, query.limit)
    items = [describe_entry(entry, caller) for entry in page]
    return AuditPage(items=items, next_cursor=next_cursor)
