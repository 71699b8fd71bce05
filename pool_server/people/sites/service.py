"""What can be done with sites."""

from __future__ import annotations

from sqlalchemy.orm import Session

from pool_server.database.records import SiteRecord, now_utc
from pool_server.errors import ConflictError
from pool_server.http.audit import record_act
from pool_server.http.identity import Caller
from pool_server.people.sites import repository
from pool_server.people.sites.last_admin import keeping_an_admin
from pool_server.wire.people.sites import SiteChangeRequest, SiteRequest, SiteResponse


def describe_site(site: SiteRecord) -> SiteResponse:
    return SiteResponse(
        name=site.name,
        display_name=site.display_name,
        contact=site.contact,
        created_at=site.created_at,
        suspended=site.suspended_at is not None,
    )


def create_site(session: Session, caller: Caller, request: SiteRequest) -> SiteResponse:
    """Create a site; its name can never be changed.

    Raises
    ------
    ConflictError
        The name is taken.
    """
    if repository.find_site(session, request.name) is not None:
        raise ConflictError(f"site {request.name!r} is there already", code="site_exists")
    site = SiteRecord(
        name=request.name,
        display_name=request.display_name,
        contact=request.contact,
        quota_bytes=request.quota_bytes,
    )
    session.add(site)
    session.flush()
    record_act(session, caller, "site.create", site.name, quota_bytes=site.quota_bytes)
    return describe_site(site)


def change_site(
    session: Session, caller: Caller, name: str, request: SiteChangeRequest
) -> SiteResponse:
    """Change how a site is called and whom to ask; for the pool's admins also what it may.

    Raises
    ------
    ConflictError
        The site holds the pool's last admin and is not suspended.
    """
    caller.require_role("admin", name)
    given = request.model_fields_set
    if given & {"quota_bytes", "suspended"}:
        caller.require_role("admin")
    with keeping_an_admin(session):
        site = repository.get_site(session, name)
        if request.display_name is not None:
            site.display_name = request.display_name
        if request.contact is not None:
            site.contact = request.contact
        if "quota_bytes" in given:
            site.quota_bytes = request.quota_bytes
        if request.suspended is not None and request.suspended != (site.suspended_at is not None):
            site.suspended_at = now_utc() if request.suspended else None
        session.flush()
    changes = {field: getattr(request, field) for field in sorted(given)}
    record_act(session, caller, "site.change", site.name, **changes)
    return describe_site(site)
