"""The audit in the database: only ever read here."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime

from sqlalchemy import ColumnElement, and_, or_, select
from sqlalchemy.orm import Session

from pool_server.database.records import AuditRecord


@dataclass(frozen=True)
class AuditQuery:
    """What a listing is narrowed to; an act must pass every filter.

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


# They follow a family to models of other sites, which need not be for the actor to see.
FOLLOWING = ("version.flag", "version.replace")


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
