"""Reading the audit: who did what in the pool, and when. Nothing here writes it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Annotated, Any

from fastapi import APIRouter, Query
from sqlalchemy import ColumnElement, and_, or_, select
from sqlalchemy.orm import Session

from pool_server.database.records import AuditRecord
from pool_server.http.identity import Caller, SiteAdmin, needs
from pool_server.http.parameters import BeforeId, Limit, cut_page
from pool_server.http.session import ReadingSession
from pool_server.wire.activity import AuditEntry, AuditPage, Moment
from pool_server.wire.names import Line, Name

# A withdrawal writes these entries for models of other sites, which the actor may not see.
FOLLOWING = ("version.flag", "version.replace")


@dataclass(frozen=True)
class AuditQuery:
    """The filters of a listing; an act must pass every one.

    Attributes
    ----------
    site : str or None
        Only acts of this site, and acts on what belongs to it.
    subject : str or None
        This subject, or a model's versions, or what begins with a site's name and a slash.
    action : str or None
        This action, or all of a noun (``"version"``).
    actor : str or None
        A site, or site and token; site and user, too, with `knows_users`.
    since, until : datetime or None
        From this moment on; before this moment.
    for_site : str or None
        Whose admin reads it: what an act of theirs led to at other sites is left out, and what
        their people who look after the whole pool did there.
    """

    site: str | None = None
    subject: str | None = None
    action: str | None = None
    actor: str | None = None
    since: datetime | None = None
    until: datetime | None = None
    before_id: int | None = None
    limit: int = 50
    for_site: str | None = None
    knows_users: bool = False


def list_entries(session: Session, query: AuditQuery) -> Sequence[AuditRecord]:
    """Return acts newest first, one more than `query.limit` where there are more."""
    conditions: list[ColumnElement[bool]] = []
    if query.site is not None:
        conditions.append(
            or_(
                AuditRecord.actor_site == query.site,
                AuditRecord.subject == query.site,
                AuditRecord.subject.startswith(f"{query.site}/", autoescape=True),
            )
        )
    if query.for_site is not None:
        conditions.append(
            or_(
                and_(AuditRecord.action.not_in(FOLLOWING), AuditRecord.pool_wide.is_(False)),
                AuditRecord.subject == query.for_site,
                AuditRecord.subject.startswith(f"{query.for_site}/", autoescape=True),
            )
        )
    if query.subject is not None:
        conditions.append(_is_about(query.subject))
    if query.action is not None:
        conditions.append(
            or_(
                AuditRecord.action == query.action,
                AuditRecord.action.startswith(f"{query.action}.", autoescape=True),
            )
        )
    if query.actor is not None:
        site, _slash, token = query.actor.partition("/")
        conditions.append(AuditRecord.actor_site == site)
        if token:
            is_actor = AuditRecord.actor_token == token
            if query.knows_users:
                is_actor |= AuditRecord.actor_user == token
            conditions.append(is_actor)
    if query.since is not None:
        conditions.append(AuditRecord.at >= query.since)
    if query.until is not None:
        conditions.append(AuditRecord.at < query.until)
    if query.before_id is not None:
        conditions.append(AuditRecord.id < query.before_id)
    return session.scalars(
        select(AuditRecord)
        .where(*conditions)
        .order_by(AuditRecord.id.desc())
        .limit(query.limit + 1)
    ).all()


def _is_about(subject: str) -> ColumnElement[bool]:
    if subject.endswith("/"):
        return AuditRecord.subject.startswith(subject, autoescape=True)
    return or_(
        AuditRecord.subject == subject,
        AuditRecord.subject.startswith(f"{subject}@", autoescape=True),
    )


def read_audit(session: Session, caller: Caller, query: AuditQuery) -> AuditPage:
    """Return one page of acts, newest first.

    Admins of the whole pool see all; those of a site see what their site did, and what others
    did to things of their site.

    Raises
    ------
    NotAllowedError
        The caller is not an admin, or asks for another site's acts.
    """
    if not caller.has_role("admin"):
        site = query.site or caller.site
        caller.require_role("admin", site)
        query = replace(query, site=site, for_site=site)
    if query.actor is not None:
        actor_site = query.actor.partition("/")[0]
        query = replace(query, knows_users=caller.has_role("admin", actor_site))
    found = list_entries(session, query)
    page, next_cursor = cut_page(found, query.limit)
    return AuditPage(
        items=[describe_entry(entry, caller) for entry in page], next_cursor=next_cursor
    )


def describe_entry(entry: AuditRecord, caller: Caller) -> AuditEntry:
    # Where people of other sites sit and which token they use is not for everybody.
    knows_actor = caller.has_role("admin", entry.actor_site)
    return AuditEntry(
        entry_id=entry.id,
        at=entry.at,
        actor=f"{entry.actor_site}/{entry.actor_token}",
        user=entry.actor_user if knows_actor else "",
        action=entry.action,
        subject=entry.subject,
        outcome=entry.outcome,
        details=entry.details
        if caller.has_role("admin")
        else _drop_names_of_others(caller.site, entry.details),
        token_id=entry.token_id if knows_actor else "",
        address=entry.address if knows_actor else "",
        request_id=entry.request_id,
    )


def _drop_names_of_others(site: str, details: Mapping[str, Any]) -> dict[str, Any]:
    """Return details without the names of other sites' models that a withdrawal has flagged."""
    if "flagged" not in details:
        return dict(details)
    own = [name for name in details["flagged"] if name.startswith(f"{site}/")]
    return {**details, "flagged": own}


router = APIRouter(tags=["audit"], dependencies=[needs("audit:read")])


@router.get("/audit", summary="Read the audit")
def list_audit(  # noqa: PLR0917 - FastAPI gives them by name
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
        Moment | None, Query(description="From this moment on.", examples=["2026-03-01T12:00:00Z"])
    ] = None,
    until: Annotated[
        Moment | None, Query(description="Before this moment.", examples=["2026-03-02T12:00:00Z"])
    ] = None,
    limit: Limit = 50,
    before_id: BeforeId = None,
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
        before_id=before_id,
        limit=limit,
    )
    return read_audit(session, caller, query)
