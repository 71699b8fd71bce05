"""Telling what was done, to those whom it concerns."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from sqlalchemy.orm import Session

from pool_server.activity.audit import repository
from pool_server.activity.audit.repository import AuditQuery
from pool_server.database.records import AuditRecord
from pool_server.http.identity import Caller
from pool_server.http.pagination import write_cursor
from pool_server.wire.audit import AuditEntry, AuditPage


def read_audit(session: Session, caller: Caller, query: AuditQuery) -> AuditPage:
    """Return one page of acts, newest first.

    Admins of the whole pool see all; those of a site see what their site did, and what others
    did to things of their site.

    Raises
    ------
    NotAllowedError
        The caller is no admin, or asks for another site's acts.
    """
    if not caller.has_role("admin"):
        site = query.site or caller.site
        caller.require_role("admin", site)
        query = replace(query, site=site, for_site=site)
    if query.actor is not None:
        actor_site = query.actor.partition("/")[0]
        query = replace(query, knows_users=caller.has_role("admin", actor_site))
    found = repository.list_entries(session, query)
    page = found[: query.limit]
    return AuditPage(
        items=[describe_entry(entry, caller) for entry in page],
        next_cursor=write_cursor(page[-1].id) if len(found) > len(page) else None,
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
        details=entry.details if caller.has_role("admin") else _told_to(caller.site, entry.details),
        token_id=entry.token_id if knows_actor else "",
        address=entry.address if knows_actor else "",
        request_id=entry.request_id,
    )


def _told_to(site: str, details: Mapping[str, Any]) -> dict[str, Any]:
    """Return details without the names of other sites' models that a withdrawal has flagged."""
    if "flagged" not in details:
        return dict(details)
    own = [name for name in details["flagged"] if name.startswith(f"{site}/")]
    return {**details, "flagged": own}
