"""Keys of sites, and the statements that they signed."""

from __future__ import annotations

from datetime import datetime

from sqlalchemy import ForeignKey, Index, String, Text
from sqlalchemy.orm import Mapped, mapped_column, relationship

from pool_server.records.base import JsonObject, NameText, Record, now_utc
from pool_server.records.sites import SiteRecord


class SiteKeyRecord(Record):
    """A public key with which a site signs; `id` is the SHA-256 of the raw key."""

    __tablename__ = "site_keys"
    __table_args__ = (Index(None, "site_id"),)

    id: Mapped[str] = mapped_column(String(64), primary_key=True)
    site_id: Mapped[int] = mapped_column(ForeignKey("sites.id"))
    name: Mapped[NameText]
    public_key: Mapped[str] = mapped_column(Text)
    created_at: Mapped[datetime] = mapped_column(default=now_utc)
    created_by: Mapped[str] = mapped_column(String(129))
    revoked_at: Mapped[datetime | None]

    site: Mapped[SiteRecord] = relationship(lazy="raise")


class StatementRecord(Record):
    """What a site signed of a version: an in-toto statement in a DSSE envelope."""

    __tablename__ = "statements"

    version_id: Mapped[int] = mapped_column(ForeignKey("model_versions.id"), primary_key=True)
    key_id: Mapped[str] = mapped_column(ForeignKey("site_keys.id"))
    envelope: Mapped[JsonObject]
    created_at: Mapped[datetime] = mapped_column(default=now_utc)

    key: Mapped[SiteKeyRecord] = relationship(lazy="raise")
