"""Models: named lines of versions."""

from __future__ import annotations

from datetime import datetime

from sqlalchemy import ForeignKey, String, UniqueConstraint
from sqlalchemy.orm import Mapped, mapped_column, relationship

from pool_server.records.base import NameText, Record, now_utc
from pool_server.records.sites import SiteRecord


class ModelRecord(Record):
    """``site/name``: all versions of it are of one kind."""

    __tablename__ = "models"
    __table_args__ = (UniqueConstraint("site_id", "name"),)

    id: Mapped[int] = mapped_column(primary_key=True)
    site_id: Mapped[int] = mapped_column(ForeignKey("sites.id"))
    name: Mapped[NameText]
    kind: Mapped[str] = mapped_column(String(16))
    created_at: Mapped[datetime] = mapped_column(default=now_utc)

    site: Mapped[SiteRecord] = relationship(lazy="raise")
