"""Users: the people of a site."""

from typing import Annotated

from fastapi import APIRouter, Path
from sqlalchemy import Select, select
from sqlalchemy.orm import Session, contains_eager

from pool_server.database.engine import count_rows
from pool_server.database.records import SiteRecord, UserRecord, now_utc
from pool_server.errors import MissingError
from pool_server.http.audit import record_act
from pool_server.http.identity import Caller, SiteAdmin, needs
from pool_server.http.parameters import SiteName, describe
from pool_server.http.session import ReadingSession, WritingSession
from pool_server.people.sites import keeping_an_admin
from pool_server.wire.names import Name
from pool_server.wire.people import UserChangeRequest, UserList, UserResponse

router = APIRouter(prefix="/users", tags=["users"], dependencies=[needs("admin")])


@router.get("", summary="List the users")
def list_users(caller: SiteAdmin, session: ReadingSession) -> UserList:
    """Return one's own site's users, disabled ones too; all users for the pool's admins."""
    return UserList(items=[describe_user(each) for each in session.scalars(whole_users(caller))])


@router.patch("/{site}/{user}", summary="Change a user")
def change_user(
    caller: SiteAdmin,
    session: WritingSession,
    site: SiteName,
    user: Annotated[Name, Path(description="Name of the user.", examples=["ada"])],
    request: UserChangeRequest,
) -> UserResponse:
    """Change role, name or e-mail of a user, or disable and enable one. For the site's admins.

    What the user's tokens may changes with the next request. Who is disabled is refused with all
    tokens, and nobody can accept the user's invitations. Tokens for machines stay valid: those that
    the user made have the user as `made_by` in the list of tokens.
    """
    with keeping_an_admin(session):
        found = get_user(session, caller, site, user)
        concerns_pool = found.pool_wide or request.pool_wide
        caller.require_role("admin", None if concerns_pool else site)
        for field in ("display_name", "email", "role", "pool_wide"):
            value = getattr(request, field)
            if value is not None:
                setattr(found, field, value)
        if request.disabled is not None and request.disabled != (found.disabled_at is not None):
            found.disabled_at = now_utc() if request.disabled else None
        session.flush()
    changes = {field: getattr(request, field) for field in sorted(request.model_fields_set)}
    record_act(session, caller, "user.change", f"{site}/{user}", **changes)
    return describe_user(found)


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
            hint="`poolctl admin users ls` lists them.",
        )
    return user


def has_user(session: Session, site_id: int, name: str) -> bool:
    return count_rows(session, UserRecord.site_id == site_id, UserRecord.name == name) > 0


def is_disabled(session: Session, site: str, name: str) -> bool:
    of_site = UserRecord.site.has(SiteRecord.name == site)
    is_out = UserRecord.disabled_at.is_not(None)
    return count_rows(session, of_site, UserRecord.name == name, is_out) > 0
