"""Users: the people of a site, and invitations for those to come."""

from __future__ import annotations

from datetime import datetime

from sqlalchemy import ForeignKey, String, UniqueConstraint, false
from sqlalchemy.orm import Mapped, mapped_column, relationship

from pool_server.database.records.base import NameText, Record, now_utc
from pool_server.database.records.sites import SiteRecord


class UserRecord(Record):
    """A person at a site; the person's tokens never may more than the person.

    `role` is ``viewer``, ``contributor``, ``curator`` or ``admin`` and holds for the person's own
    site; with `pool_wide` it holds for every site.
    """

    __tablename__ = "users"
    __table_args__ = (UniqueConstraint("site_id", "name"),)

    id: Mapped[int] = mapped_column(primary_key=True)
    site_id: Mapped[int] = mapped_column(ForeignKey("sites.id"))
    name: Mapped[NameText]
    display_name: Mapped[str] = mapped_column(String(200), default="")
    email: Mapped[str] = mapped_column(String(254), default="")
    role: Mapped[str] = mapped_column(String(16))
    pool_wide: Mapped[bool] = mapped_column(default=False, server_default=false())
    created_at: Mapped[datetime] = mapped_column(default=now_utc)
    disabled_at: Mapped[datetime | None]

    site: Mapped[SiteRecord] = relationship(lazy="raise")


class InvitationRecord(Record):
    """A secret that makes one user, once; only its SHA-256 is kept."""

    __tablename__ = "invitations"

    id: Mapped[str] = mapped_column(String(32), primary_key=True)
    secret_hash: Mapped[str] = mapped_column(String(64), unique=True)
    site_id: Mapped[int] = mapped_column(ForeignKey("sites.id"))
    email: Mapped[str] = mapped_column(String(254), default="")
    role: Mapped[str] = mapped_column(String(16))
    pool_wide: Mapped[bool] = mapped_column(default=False, server_default=false())
    created_at: Mapped[datetime] = mapped_column(default=now_utc)
    created_by: Mapped[str] = mapped_column(String(129))
    expires_at: Mapped[datetime]
    used_at: Mapped[datetime | None]
    user_id: Mapped[int | None] = mapped_column(ForeignKey("users.id"))
    revoked_at: Mapped[datetime | None]

    site: Mapped[SiteRecord] = relationship(lazy="raise")
    user: Mapped[UserRecord | None] = relationship(lazy="raise")
