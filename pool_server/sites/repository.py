"""Sites and tokens in the database."""

from __future__ import annotations

from collections.abc import Sequence

from sqlalchemy import func, or_, select
from sqlalchemy.orm import Session, contains_eager

from pool_server.errors import SiteNotFoundError, TokenNotFoundError
from pool_server.records import SiteRecord, TokenRecord, now_utc


def find_site(session: Session, name: str) -> SiteRecord | None:
    return session.scalar(select(SiteRecord).where(SiteRecord.name == name))


def get_site(session: Session, name: str) -> SiteRecord:
    """Return the site of that name.

    Raises
    ------
    SiteNotFoundError
        There is none.
    """
    site = find_site(session, name)
    if site is None:
        raise SiteNotFoundError(
            f"the pool has no site {name!r}",
            hint="An admin creates sites; `GET /api/v1/sites` lists them.",
        )
    return site


def list_sites(session: Session) -> Sequence[SiteRecord]:
    return session.scalars(select(SiteRecord).order_by(SiteRecord.name)).all()


def count_sites(session: Session) -> int:
    return session.scalar(select(func.count()).select_from(SiteRecord)) or 0


def list_tokens(session: Session) -> Sequence[TokenRecord]:
    """Return all tokens with their sites, newest first."""
    return session.scalars(
        select(TokenRecord)
        .join(TokenRecord.site)
        .options(contains_eager(TokenRecord.site))
        .order_by(TokenRecord.created_at.desc(), TokenRecord.id)
    ).all()


def get_token(session: Session, token_id: str) -> TokenRecord:
    """Return the token of that identifier, with its site.

    Raises
    ------
    TokenNotFoundError
        There is none.
    """
    token = session.scalar(
        select(TokenRecord)
        .join(TokenRecord.site)
        .options(contains_eager(TokenRecord.site))
        .where(TokenRecord.id == token_id)
    )
    if token is None:
        raise TokenNotFoundError(
            f"the pool has no token {token_id!r}", hint="`GET /api/v1/tokens` lists them."
        )
    return token


def has_valid_token(session: Session, site_id: int, name: str) -> bool:
    return (
        session.scalar(
            select(TokenRecord.id).where(
                TokenRecord.site_id == site_id,
                TokenRecord.name == name,
                TokenRecord.revoked_at.is_(None),
            )
        )
        is not None
    )


def other_lasting_admin(session: Session, token_id: str) -> bool:
    """Tell whether an admin token beside `token_id` is valid now."""
    return (
        session.scalar(
            select(TokenRecord.id)
            .where(
                TokenRecord.role == "admin",
                TokenRecord.id != token_id,
                TokenRecord.revoked_at.is_(None),
                or_(TokenRecord.expires_at.is_(None), TokenRecord.expires_at > now_utc()),
            )
            .limit(1)
        )
        is not None
    )
