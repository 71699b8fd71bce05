"""Sites in the database."""

from __future__ import annotations

from collections.abc import Sequence

from sqlalchemy import func, select
from sqlalchemy.orm import Session

from pool_server.database.records import SiteRecord
from pool_server.errors import MissingError


def find_site(session: Session, name: str) -> SiteRecord | None:
    return session.scalar(select(SiteRecord).where(SiteRecord.name == name))


def get_site(session: Session, name: str) -> SiteRecord:
    """Return the site of that name.

    Raises
    ------
    MissingError
        There is none.
    """
    site = find_site(session, name)
    if site is None:
        raise MissingError(
            f"the pool has no site {name!r}",
            code="site_not_found",
            hint="An admin creates sites; `poolctl admin sites ls` lists them.",
        )
    return site


def list_sites(session: Session) -> Sequence[SiteRecord]:
    return session.scalars(select(SiteRecord).order_by(SiteRecord.name)).all()


def count_sites(session: Session) -> int:
    return session.scalar(select(func.count()).select_from(SiteRecord)) or 0
