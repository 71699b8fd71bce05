"""Who was asked to take part in a round."""

from __future__ import annotations

from datetime import datetime

from sqlalchemy import ForeignKey, Index
from sqlalchemy.orm import Mapped, mapped_column, relationship

from pool_server.database.records.base import Record
from pool_server.database.records.sites import SiteRecord


class RoundParticipantRecord(Record):
    """One site of one round; `late_at` is when it came too late, if it did."""

    __tablename__ = "round_participants"
    __table_args__ = (Index(None, "site_id", "round_id"),)

    round_id: Mapped[int] = mapped_column(ForeignKey("rounds.id"), primary_key=True)
    site_id: Mapped[int] = mapped_column(ForeignKey("sites.id"), primary_key=True)
    late_at: Mapped[datetime | None]

    site: Mapped[SiteRecord] = relationship(lazy="raise")
