"""Users in the database."""

from __future__ import annotations

from collections.abc import Sequence

from sqlalchemy import Select, select
from sqlalchemy.orm import Session, contains_eager

from pool_server.database.records import SiteRecord, UserRecord
from pool_server.errors import MissingError
from pool_server.http.identity import Caller


def whole_users(caller: Caller) -> Select[UserRecord]:
    """Select users of the caller's site, or of all for an admin of the pool, with their sites."""
    users = (
        select(UserRecord)
        .join(UserRecord.site)
        .options(contains_eager(UserRecord.site))
        .order_by(SiteRecord.name, UserRecord.name)
    )
    return users if caller.is_admin else users.where(UserRecord.site_id == caller.site_id)


def list_users(session: Session, caller: Caller) -> Sequence[UserRecord]:
    return session.scalars(whole_users(caller)).all()


def get_user(session: Session, caller: Caller, site: str, name: str) -> UserRecord:
    """Return a user with the site.

    Raises
    ------
    MissingError
        There is none; one of a site that the caller does not look after looks the same.
    """
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
    return (
        session.scalar(
            select(UserRecord.id).where(UserRecord.site_id == site_id, UserRecord.name == name)
        )
        is not None
    )


def is_disabled(session: Session, site: str, name: str) -> bool:
    return (
        session.scalar(
            select(UserRecord.id)
            .join(UserRecord.site)
            .where(
                SiteRecord.name == site,
                UserRecord.name == name,
                UserRecord.disabled_at.is_not(None),
            )
        )
        is not None
    )
