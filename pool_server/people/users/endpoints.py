"""Addresses of users."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Path

from pool_server.http.identity import SiteAdmin, needs
from pool_server.http.parameters import SiteName
from pool_server.http.session import ReadingSession, WritingSession
from pool_server.people.users import repository, service
from pool_server.wire.names import Name
from pool_server.wire.people.users import UserChangeRequest, UserList, UserResponse

router = APIRouter(prefix="/users", tags=["users"], dependencies=[needs("admin")])


@router.get("", summary="List the users")
def list_users(caller: SiteAdmin, session: ReadingSession) -> UserList:
    """Return one's own site's users, disabled ones too; all users for the pool's admins."""
    return UserList(
        items=[service.describe_user(each) for each in repository.list_users(session, caller)]
    )


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
    return service.change_user(session, caller, site, user, request)
