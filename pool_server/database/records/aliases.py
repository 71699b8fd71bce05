"""Aliases: names of versions that their site may move."""

from __future__ import annotations

from datetime import datetime

from sqlalchemy import ForeignKey, Index
from sqlalchemy.orm import Mapped, mapped_column

from pool_server.database.records.base import NameText, Record, now_utc


class AliasRecord(Record):
    """``site/model@name`` means this version until the alias is moved."""

    __tablename__ = "aliases"
    __table_args__ = (Index(None, "version_id"),)

    model_id: Mapped[int] = mapped_column(ForeignKey("models.id"), primary_key=True)
    name: Mapped[NameText] = mapped_column(primary_key=True)
    version_id: Mapped[int] = mapped_column(ForeignKey("model_versions.id"))
    changed_at: Mapped[datetime] = mapped_column(default=now_utc)
