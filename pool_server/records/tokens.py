"""Tokens: what a program shows to be let in."""

from __future__ import annotations

from datetime import datetime

from sqlalchemy import ForeignKey, Index, String, text
from sqlalchemy.orm import Mapped, mapped_column, relationship

from pool_server.records.base import NameText, Record, now_utc
from pool_server.records.sites import SiteRecord


class TokenRecord(Record):
    """A named token of a site; of the secret only the SHA-256 is kept.

    The secret has 256 random bits, so that a plain hash is as good as a slow one.
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
    secret_hash: Mapped[str] = mapped_column(String(64), unique=True)
    created_at: Mapped[datetime] = mapped_column(default=now_utc)
    expires_at: Mapped[datetime | None]
    last_used_at: Mapped[datetime | None]
    revoked_at: Mapped[datetime | None]

    site: Mapped[SiteRecord] = relationship(lazy="raise")
