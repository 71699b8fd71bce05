"""Events that concern a site."""

from __future__ import annotations

from datetime import datetime

from sqlalchemy import ForeignKey, Index, String
from sqlalchemy.orm import Mapped, mapped_column, relationship

from pool_server.database.records.base import BigKey, JsonObject, Record, now_utc
from pool_server.database.records.people import SiteRecord


class EventRecord(Record):
    """Something that concerns one site; written in the transaction of the act itself."""

    __tablename__ = "events"
    __table_args__ = (Index(None, "site_id", "id"),)

    id: Mapped[int] = mapped_column(BigKey, primary_key=True)
    at: Mapped[datetime] = mapped_column(default=now_utc)
    site_id: Mapped[int] = mapped_column(ForeignKey("sites.id"))
    kind: Mapped[str] = mapped_column(String(64))
    subject: Mapped[str] = mapped_column(String(256))
    details: Mapped[JsonObject]

    site: Mapped[SiteRecord] = relationship(lazy="raise")
