"""Addresses of sites, of what they take up, and of who one is."""

from __future__ import annotations

from functools import cache
from importlib.metadata import PackageNotFoundError, version

from fastapi import APIRouter

from pool_server.http.identity import Administrator, SignedIn, SiteAdmin, needs
from pool_server.http.parameters import SiteName
from pool_server.http.session import ReadingSession, WritingSession
from pool_server.people.sites import repository, service
from pool_server.people.sites.usage import tell_usage
from pool_server.wire.people.sites import (
    SCOPES,
    IdentityResponse,
    SiteChangeRequest,
    SiteList,
    SiteRequest,
    SiteResponse,
    UsageResponse,
)

router = APIRouter(tags=["sites"])


@cache
def pool_version() -> str:
    """Return the version of the installed program, as it was when first asked for."""
    try:
        return version("poolctl")
    except PackageNotFoundError:
        return "0+unknown"


@router.get("/whoami", dependencies=[needs()], summary="Identify the caller")
def whoami(caller: SignedIn) -> IdentityResponse:
    """Return site, name, role, scopes and expiry of the token sent, and the pool's version."""
    return IdentityResponse(
        site=caller.site,
        token_name=caller.token_name,
        role=caller.role,
        pool_wide=caller.pool_wide,
        scopes=None if caller.scopes is None else [s for s in SCOPES if s in caller.scopes],
        user=caller.user or None,
        expires_at=caller.expires_at,
        pool_version=pool_version(),
    )


@router.get("/sites", dependencies=[needs()], summary="List the sites")
def list_sites(_caller: SignedIn, session: ReadingSession) -> SiteList:
    """Return all sites of the pool by name."""
    return SiteList(items=[service.describe_site(each) for each in repository.list_sites(session)])


@router.post("/sites", status_code=201, dependencies=[needs("admin")], summary="Create a site")
def create_site(
    caller: Administrator, session: WritingSession, request: SiteRequest
) -> SiteResponse:
    """Create a site. Its name begins the addresses of its models and never changes.

    For admins of the whole pool.
    """
    return service.create_site(session, caller, request)


@router.patch("/sites/{site}", dependencies=[needs("admin")], summary="Change a site")
def change_site(
    caller: SiteAdmin,
    session: WritingSession,
    site: SiteName,
    request: SiteChangeRequest,
) -> SiteResponse:
    """Change what is given. Quota and suspension are for admins of the whole pool.

    A suspended site is refused with all its tokens; its models stay, shared as they are.
    """
    return service.change_site(session, caller, site, request)


@router.get("/usage", dependencies=[needs("admin")], summary="Show the storage that sites use")
def usage(caller: SiteAdmin, session: ReadingSession) -> UsageResponse:
    """Return bytes, versions, users, tokens of one's own site; of all for admins of the pool."""
    return tell_usage(session, caller)
