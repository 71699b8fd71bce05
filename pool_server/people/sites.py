"""Sites and their users, the identity behind a token, and the rule of the last admin.

A pool always keeps at least one admin.

Usage and quotas of sites.

A file counts once for a site, regardless of the number of names it has there and of other sites
that have it. Messages and descriptors of secure sessions count as well. Uploads count from their
announcement on. Usage takes a constant number of queries.
"""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import cache
from importlib.metadata import PackageNotFoundError, version
from typing import Annotated, Any

from fastapi import APIRouter, Path
from sqlalchemy import ColumnElement, Select, String, Subquery, cast, func, or_, select, true, union
from sqlalchemy.orm import Session, contains_eager

from pool_server.database.engine import count_rows
from pool_server.database.records import (
    OPEN_UPLOADS,
    ModelRecord,
    ModelVersionRecord,
    RoundContributionRecord,
    RoundRecord,
    SecureFileRecord,
    SecurePostRecord,
    SecureSessionRecord,
    SiteRecord,
    TokenRecord,
    UploadRecord,
    UserRecord,
    now_utc,
)
from pool_server.errors import ConflictError, MissingError
from pool_server.http.audit import record_act
from pool_server.http.identity import Caller, SignedIn, SiteAdmin, needs
from pool_server.http.parameters import SiteName, describe
from pool_server.http.session import ReadingSession, WritingSession
from pool_server.wire import people
from pool_server.wire.names import Name
from pool_server.wire.people import (
    SiteUsage,
    UsageResponse,
    UserChangeRequest,
    UserList,
    UserResponse,
)


def files_of_sites() -> Subquery:
    """Return (site_id, digest, size_bytes) of each file of a site in the pool, once."""
    published = (
        select(ModelRecord.site_id, ModelVersionRecord.digest, ModelVersionRecord.size_bytes)
        .join(ModelVersionRecord.model)
        .where(ModelVersionRecord.state != "deleted")
    )
    contributed = select(
        RoundContributionRecord.site_id,
        RoundContributionRecord.digest,
        RoundContributionRecord.size_bytes,
    )
    secure = select(SecureFileRecord.site_id, SecureFileRecord.digest, SecureFileRecord.size_bytes)
    states = (
        select(ModelRecord.site_id, RoundRecord.state_digest, RoundRecord.state_size_bytes)
        .join(RoundRecord.result_version)
        .join(ModelVersionRecord.model)
        .where(RoundRecord.state_digest.is_not(None))
    )
    # A session's key is its descriptor's digest; a message's number replaces the digest.
    number = cast(SecurePostRecord.id, String)
    posts = select(SecurePostRecord.site_id, number, func.length(SecurePostRecord.envelope))
    described = func.length(SecureSessionRecord.descriptor)
    sessions = select(SecureSessionRecord.site_id, SecureSessionRecord.key, described)
    return union(published, contributed, states, secure, posts, sessions).subquery("files")


def files_under_way() -> Subquery:
    """Return (site_id, digest, size_bytes) of every file that is being uploaded, once."""
    return (
        select(UploadRecord.site_id, UploadRecord.digest, UploadRecord.size_bytes)
        .where(UploadRecord.state.in_(OPEN_UPLOADS))
        .distinct()
        .subquery("under_way")
    )


def require_room(
    session: Session,
    site_id: int,
    digest: str,
    size_bytes: int,
    *,
    announced: bool,
    noun: str = "file",
) -> None:
    """Raise unless a site's quota has room for one more file; call it in the writing transaction.

    For an announced file, uploads under way count, too. For a received file they do not: the first
    upload to complete gets the room.
    """
    if session.scalar(select(SiteRecord.quota_bytes).where(SiteRecord.id == site_id)) is None:
        return
    # Locked, so that of several files arriving at once each counts those before it.
    site = session.scalars(
        select(SiteRecord)
        .where(SiteRecord.id == site_id)
        .with_for_update(key_share=True)
        .execution_options(populate_existing=True)
    ).one()
    if site.quota_bytes is None:
        return
    used = _sum(session, files_of_sites(), site_id, digest)
    coming = _sum(session, files_under_way(), site_id, digest) if announced else 0
    if used + coming + size_bytes > site.quota_bytes:
        on_the_way = f" and {coming:,} on their way" if coming else ""
        raise ConflictError(
            f"this {noun} has {size_bytes:,} bytes; site {site.name!r} has {used:,}{on_the_way}, "
            f"and may have {site.quota_bytes:,}",
            code="quota_exceeded",
            hint="Delete versions that are no longer needed, or ask the pool's admin for a larger "
            "quota.",
        )


def _sum(session: Session, files: Subquery, site_id: int, other_than: str) -> int:
    total: Select[int] = select(func.coalesce(func.sum(files.c.size_bytes), 0)).where(
        files.c.site_id == site_id, files.c.digest != other_than
    )
    return int(session.scalar(total) or 0)


router = APIRouter(tags=["sites"])


@cache
def pool_version() -> str:
    """Return the version of the installed program, cached at its first use."""
    try:
        return version("poolctl")
    except PackageNotFoundError:
        return "0+unknown"


@router.get("/whoami", dependencies=[needs()], summary="Identify the caller")
def whoami(caller: SignedIn) -> people.IdentityResponse:
    """Return site, name, role, scopes and expiry of the token sent."""
    return describe(
        people.IdentityResponse,
        caller,
        scopes=None if caller.scopes is None else [s for s in people.SCOPES if s in caller.scopes],
        user=caller.user or None,
    )


@router.get("/sites", dependencies=[needs()], summary="List the sites")
def list_sites(_caller: SignedIn, session: ReadingSession) -> people.SiteList:
    """Return all sites of the pool by name."""
    return people.SiteList(items=[describe_site(site) for site in find_sites(session)])


@router.post("/sites", status_code=201, dependencies=[needs("admin")], summary="Create a site")
def create_site(
    caller: SignedIn, session: WritingSession, request: people.SiteRequest
) -> people.SiteResponse:
    """Create a site. Its name begins the addresses of its models and never changes.

    For admins of the whole pool.
    """
    caller.require_role("admin")
    if find_site(session, request.name) is not None:
        raise ConflictError(f"site {request.name!r} already exists", code="site_exists")
    site = SiteRecord(**request.model_dump())
    session.add(site)
    session.flush()
    record_act(session, caller, "site.create", site.name, quota_bytes=site.quota_bytes)
    return describe_site(site)


@router.patch("/sites/{site}", dependencies=[needs("admin")], summary="Change a site")
def change_site(
    caller: SiteAdmin, session: WritingSession, site: SiteName, request: people.SiteChangeRequest
) -> people.SiteResponse:
    """Change the given fields. Only admins of the whole pool can change quota and suspension.

    All tokens of a suspended site are refused; its models stay shared as before.
    """
    caller.require_role("admin", site)
    fields = request.model_fields_set
    if fields & {"quota_bytes", "suspended"}:
        caller.require_role("admin")
    with require_remaining_admin(session):
        record = get_site(session, site)
        if request.display_name is not None:
            record.display_name = request.display_name
        if request.contact is not None:
            record.contact = request.contact
        if "quota_bytes" in fields:
            record.quota_bytes = request.quota_bytes
        if request.suspended is not None and request.suspended != (record.suspended_at is not None):
            record.suspended_at = now_utc() if request.suspended else None
        session.flush()
    changes = {field: getattr(request, field) for field in sorted(fields)}
    record_act(session, caller, "site.change", record.name, **changes)
    return describe_site(record)


@router.get("/usage", dependencies=[needs("admin")], summary="Show the storage used by sites")
def usage(caller: SiteAdmin, session: ReadingSession) -> UsageResponse:
    """Return bytes, versions, users, tokens of your own site; admins of the pool get all sites."""
    site_id = None if caller.is_admin else caller.site_id

    def is_asked(place: Any) -> ColumnElement[bool]:
        return true() if site_id is None else place == site_id

    def by_site(place: Any, *columns: Any, where: Sequence[Any] = ()) -> dict[int, Sequence[Any]]:
        query = select(place, *columns).where(is_asked(place), *where).group_by(place)
        return {site: values for site, *values in session.execute(query)}

    of_model = ModelVersionRecord.model_id == ModelRecord.id
    versions = by_site(
        ModelRecord.site_id,
        func.count(ModelRecord.id.distinct()),
        func.count(),
        where=[of_model, ModelVersionRecord.state != "deleted"],
    )
    is_valid = TokenRecord.revoked_at.is_(None) & or_(
        TokenRecord.expires_at.is_(None), TokenRecord.expires_at > now_utc()
    )
    last_use = func.max(TokenRecord.last_used_at)
    tokens = by_site(TokenRecord.site_id, func.count().filter(is_valid), last_use)
    users = by_site(UserRecord.site_id, func.count(), where=[UserRecord.disabled_at.is_(None)])
    stored, coming = (
        by_site(files.c.site_id, func.sum(files.c.size_bytes))
        for files in (files_of_sites(), files_under_way())
    )

    def usage_of(site: SiteRecord) -> SiteUsage:
        model_count, version_count = versions.get(site.id, (0, 0))
        token_count, last_used_at = tokens.get(site.id, (0, None))
        return SiteUsage(
            site=site.name,
            suspended=site.suspended_at is not None,
            models=model_count,
            versions=version_count,
            size_bytes=stored.get(site.id, (0,))[0],
            uploading_bytes=coming.get(site.id, (0,))[0],
            quota_bytes=site.quota_bytes,
            users=users.get(site.id, (0,))[0],
            tokens=token_count,
            last_used_at=last_used_at,
        )

    sites = select(SiteRecord).where(is_asked(SiteRecord.id)).order_by(SiteRecord.name)
    return UsageResponse(items=[usage_of(site) for site in session.scalars(sites)])


def describe_site(site: SiteRecord) -> people.SiteResponse:
    return describe(people.SiteResponse, site, suspended=site.suspended_at is not None)


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
def require_remaining_admin(session: Session) -> Iterator[None]:
    """Roll the block back if it would leave the pool without an admin.

    Concurrent blocks run one after another.
    """
    # Two admins revoking each other's token concurrently would each still see the other's: the lock
    # makes the second one check after the first has committed.
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
            "this would leave the pool without a valid admin token",
            code="last_admin",
            hint="Create another admin token first.",
        )


def has_admin(session: Session) -> bool:
    """Return whether a valid token exists that administers the whole pool."""
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


user_router = APIRouter(prefix="/users", tags=["users"], dependencies=[needs("admin")])


@user_router.get("", summary="List the users")
def list_users(caller: SiteAdmin, session: ReadingSession) -> UserList:
    """Return users of your own site, disabled ones included; admins of the pool get all users."""
    return UserList(items=[describe_user(user) for user in session.scalars(whole_users(caller))])


@user_router.patch("/{site}/{user}", summary="Change a user")
def change_user(
    caller: SiteAdmin,
    session: WritingSession,
    site: SiteName,
    user: Annotated[Name, Path(description="Name of the user.")],
    request: UserChangeRequest,
) -> UserResponse:
    """Change role, name or e-mail of a user, or disable and enable one. For the site's admins.

    The rights of the user's tokens change with the next request. All tokens of a disabled user are
    refused, and the user's invitations can no longer be accepted. Tokens for machines stay valid:
    in the list of tokens, `made_by` names their creator.
    """
    with require_remaining_admin(session):
        record = get_user(session, caller, site, user)
        concerns_pool = record.pool_wide or request.pool_wide
        caller.require_role("admin", None if concerns_pool else site)
        for field in ("display_name", "email", "role", "pool_wide"):
            value = getattr(request, field)
            if value is not None:
                setattr(record, field, value)
        if request.disabled is not None and request.disabled != (record.disabled_at is not None):
            record.disabled_at = now_utc() if request.disabled else None
        session.flush()
    changes = {field: getattr(request, field) for field in sorted(request.model_fields_set)}
    record_act(session, caller, "user.change", f"{site}/{user}", **changes)
    return describe_user(record)


def describe_user(user: UserRecord) -> UserResponse:
    return describe(UserResponse, user, site=user.site.name)


def whole_users(caller: Caller) -> Select[UserRecord]:
    """Select users of the caller's site, or of all for an admin of the pool, with their sites."""
    users = (
        select(UserRecord)
        .join(UserRecord.site)
        .options(contains_eager(UserRecord.site))
        .order_by(SiteRecord.name, UserRecord.name)
    )
    return users if caller.is_admin else users.where(UserRecord.site_id == caller.site_id)


def get_user(session: Session, caller: Caller, site: str, name: str) -> UserRecord:
    """Return a user with the site."""
    user = session.scalar(
        whole_users(caller)
        .where(SiteRecord.name == site, UserRecord.name == name)
        .execution_options(populate_existing=True)
    )
    if user is None:
        raise MissingError(
            f"the pool has no user {site}/{name}",
            code="user_not_found",
            hint="`poolctl admin people ls users` lists them.",
        )
    return user


def has_user(session: Session, site_id: int, name: str) -> bool:
    return count_rows(session, UserRecord.site_id == site_id, UserRecord.name == name) > 0


def is_disabled(session: Session, site: str, name: str) -> bool:
    of_site = UserRecord.site.has(SiteRecord.name == site)
    is_out = UserRecord.disabled_at.is_not(None) | (UserRecord.valid_until <= now_utc())
    return count_rows(session, of_site, UserRecord.name == name, is_out) > 0
