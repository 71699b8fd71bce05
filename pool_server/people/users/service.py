"""What can be done with users."""

from __future__ import annotations

from typing import cast

from sqlalchemy.orm import Session

from pool_server.database.records import UserRecord, now_utc
from pool_server.http.audit import record_act
from pool_server.http.identity import Caller
from pool_server.people.sites.last_admin import keeping_an_admin
from pool_server.people.users import repository
from pool_server.wire.people.sites import Role
from pool_server.wire.people.users import UserChangeRequest, UserResponse


def describe_user(user: UserRecord) -> UserResponse:
    return UserResponse(
        site=user.site.name,
        name=user.name,
        display_name=user.display_name,
        email=user.email,
        role=cast("Role", user.role),
        pool_wide=user.pool_wide,
        created_at=user.created_at,
        disabled_at=user.disabled_at,
    )


def change_user(
    session: Session, caller: Caller, site: str, name: str, request: UserChangeRequest
) -> UserResponse:
    """Change a user; what the user's tokens may changes at once.

    Raises
    ------
    NotAllowedError
        A user of the whole pool is not for the admin of a site to change.
    """
    with keeping_an_admin(session):
        user = repository.get_user(session, caller, site, name)
        concerns_pool = user.pool_wide or request.pool_wide
        caller.require_role("admin", None if concerns_pool else site)
        for field in ("display_name", "email", "role", "pool_wide"):
            value = getattr(request, field)
            if value is not None:
                setattr(user, field, value)
        if request.disabled is not None and request.disabled != (user.disabled_at is not None):
            user.disabled_at = now_utc() if request.disabled else None
        session.flush()
    changes = {field: getattr(request, field) for field in sorted(request.model_fields_set)}
    record_act(session, caller, "user.change", f"{site}/{name}", **changes)
    return describe_user(user)
