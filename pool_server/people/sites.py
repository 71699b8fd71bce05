"""Sites, the identity behind a token, and the rule that a pool never loses its last admin."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import cache
from importlib.metadata import PackageNotFoundError, version

from fastapi import APIRouter
from sqlalchemy import or_, select
from sqlalchemy.orm import Session

from pool_server.database.records import SiteRecord, TokenRecord, UserRecord, now_utc
from pool_server.errors import ConflictError, MissingError
from pool_server.http.audit import record_act
from pool_server.http.identity import Administrator, SignedIn, SiteAdmin, needs
from pool_server.http.parameters import SiteName, describe
from pool_server.http.session import ReadingSession, WritingSession
from pool_server.people.usage import describe_usage
from pool_server.wire import sites

router = APIRouter(tags=["sites"])


@cache
def pool_version() -> str:
    """Return the version of the installed program, as it was when first asked for."""
    try:
        return version("poolctl")
    except PackageNotFoundError:
        return "0+unknown"


@router.get("/whoami", dependencies=[needs()], summary="Identify the caller")
def whoami(caller: SignedIn) -> sites.IdentityResponse:
    """Return site, name, role, scopes and expiry of the token sent, and the pool's version."""
    return sites.IdentityResponse(
        site=caller.site,
        token_name=caller.token_name,
        role=caller.role,
        pool_wide=caller.pool_wide,
        scopes=None if caller.scopes is None else [s for s in sites.SCOPES if s in caller.scopes],
        user=caller.user or None,
        expires_at=caller.expires_at,
        pool_version=pool_version(),
    )


@router.get("/sites", dependencies=[needs()], summary="List the sites")
def list_sites(_caller: SignedIn, session: ReadingSession) -> sites.SiteList:
    """Return all sites of the pool by name."""
    return sites.SiteList(items=[describe_site(each) for each in find_sites(session)])


@router.post("/sites", status_code=201, dependencies=[needs("admin")], summary="Create a site")
def create_site(
    caller: Administrator, session: WritingSession, request: sites.SiteRequest
) -> sites.SiteResponse:
    """Create a site. Its name begins the addresses of its models and never changes.

    For admins of the whole pool.
    """
    if find_site(session, request.name) is not None:
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


@router.patch("/sites/{site}", dependencies=[needs("admin")], summary="Change a site")
def change_site(
    caller: SiteAdmin, session: WritingSession, site: SiteName, request: sites.SiteChangeRequest
) -> sites.SiteResponse:
    """Change what is given. Quota and suspension are for admins of the whole pool.

    A suspended site is refused with all its tokens; its models stay, shared as they are.
    """
    caller.require_role("admin", site)
    given = request.model_fields_set
    if given & {"quota_bytes", "suspended"}:
        caller.require_role("admin")
    with keeping_an_admin(session):
        found = get_site(session, site)
        if request.display_name is not None:
            found.display_name = request.display_name
        if request.contact is not None:
            found.contact = request.contact
        if "quota_bytes" in given:
            found.quota_bytes = request.quota_bytes
        if request.suspended is not None and request.suspended != (found.suspended_at is not None):
            found.suspended_at = now_utc() if request.suspended else None
        session.flush()
    changes = {field: getattr(request, field) for field in sorted(given)}
    record_act(session, caller, "site.change", found.name, **changes)
    return describe_site(found)


@router.get("/usage", dependencies=[needs("admin")], summary="Show the storage that sites use")
def usage(caller: SiteAdmin, session: ReadingSession) -> sites.UsageResponse:
    """Return bytes, versions, users, tokens of one's own site; of all for admins of the pool."""
    return describe_usage(session, caller)


def describe_site(site: SiteRecord) -> sites.SiteResponse:
    return describe(sites.SiteResponse, site, suspended=site.suspended_at is not None)


def find_site(session: Session, name: str) -> SiteRecord | None:
    return session.scalar(select(SiteRecord).where(SiteRecord.name == name))


def get_site(session: Session, name: str) -> SiteRecord:
    """Return the site of that name."""
    site = find_site(session, name)
    if site is None:
        raise MissingError(
            f"the pool has no site {name!r}",
            code="site_not_found",
            hint="An admin creates sites; `poolctl admin sites ls` lists them.",
        )
    return site


def find_sites(session: Session) -> Sequence[SiteRecord]:
    return session.scalars(select(SiteRecord).order_by(SiteRecord.name)).all()


@contextmanager
def keeping_an_admin(session: Session) -> Iterator[None]:
    """Let a block take rights away, unless nobody could look after the pool then.

    Blocks that run at the same time run one after another.
    """
    # Two admins who revoke each other's token at once would each still see the other's: the lock
    # makes the second one look after the first has committed.
    session.execute(
        select(TokenRecord.id)
        .where(TokenRecord.role == "admin", TokenRecord.pool_wide)
        .order_by(TokenRecord.id)
        .with_for_update(key_share=True)
    )
    had_one = has_admin(session)
    yield
    session.flush()
    if had_one and not has_admin(session):
        raise ConflictError(
            "this would leave the pool without a valid admin token; nobody could look after it",
            code="last_admin",
            hint="Create another admin token first.",
        )


def has_admin(session: Session) -> bool:
    """Return whether anybody has a valid token that administers the whole pool."""
    tokens = session.execute(
        select(TokenRecord.scopes, UserRecord)
        .join(TokenRecord.site)
        .outerjoin(TokenRecord.user)
        .where(
            TokenRecord.role == "admin",
            TokenRecord.pool_wide,
            TokenRecord.revoked_at.is_(None),
            or_(TokenRecord.expires_at.is_(None), TokenRecord.expires_at > now_utc()),
            SiteRecord.suspended_at.is_(None),
        )
    ).all()
    return any(
        (scopes is None or "admin" in scopes)
        and (user is None or (user.disabled_at is None and user.role == "admin" and user.pool_wide))
        for scopes, user in tokens
    )
