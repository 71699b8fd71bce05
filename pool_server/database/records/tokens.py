"""Tokens: what a program shows to be let in."""

from __future__ import annotations

from datetime import datetime

from sqlalchemy import JSON, ForeignKey, Index, String, false, text
from sqlalchemy.orm import Mapped, mapped_column, relationship

from pool_server.database.records.base import NameText, Record, now_utc
from pool_server.database.records.sites import SiteRecord
from pool_server.database.records.users import UserRecord


class TokenRecord(Record):
    """A named token of a site; of the secret only the SHA-256 is kept.

    `role` holds for the token's own site, with `pool_wide` for every site. `scopes` narrow what
    the role allows; None: all of it. The secret has 256 random bits, so that a
    plain hash is as good as a slow one.
    """

    __tablename__ = "tokens"
    __table_args__ = (
        # A revoked token frees its name: the lab's "laptop" may get a new one.
        Index(
            "uq_tokens_site_id_name_valid",
            "site_id",
            "name",
            unique=True,
            sqlite_where=text("revoked_at IS NULL"),
            postgresql_where=text("revoked_at IS NULL"),
        ),
    )

    id: Mapped[str] = mapped_column(String(32), primary_key=True)
    site_id: Mapped[int] = mapped_column(ForeignKey("sites.id"))
    name: Mapped[NameText]
    role: Mapped[str] = mapped_column(String(16))
    pool_wide: Mapped[bool] = mapped_column(default=False, server_default=false())
    scopes: Mapped[list[str] | None] = mapped_column(JSON(none_as_null=True))
    secret_hash: Mapped[str] = mapped_column(String(64), unique=True)
    created_at: Mapped[datetime] = mapped_column(default=now_utc)
    expires_at: Mapped[datetime | None]
    last_used_at: Mapped[datetime | None]
    revoked_at: Mapped[datetime | None]

    site: Mapped[SiteRecord] = relationship(lazy="raise")
    user: Mapped[UserRecord | None] = relationship(lazy="raise", secondary="user_tokens")


class UserTokenRecord(Record):
    """Whose a token is; those of machines belong to the site alone."""

    __tablename__ = "user_tokens"
    __table_args__ = (Index(None, "user_id"),)

    token_id: Mapped[str] = mapped_column(ForeignKey("tokens.id"), primary_key=True)
    user_id: Mapped[int] = mapped_column(ForeignKey("users.id"))
