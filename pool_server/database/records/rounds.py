"""Rounds: sites that refine one model together, each on data that stay at home."""

from __future__ import annotations

from datetime import datetime

from sqlalchemy import ForeignKey, Index, String, Text
from sqlalchemy.orm import Mapped, mapped_column, relationship

from pool_server.database.records.base import JsonObject, NameText, Record, now_utc
from pool_server.database.records.model_versions import BigKey, ModelVersionRecord
from pool_server.database.records.round_contributions import RoundContributionRecord
from pool_server.database.records.round_participants import RoundParticipantRecord
from pool_server.database.records.sites import SiteRecord
from pool_server.database.records.tokens import TokenRecord


class RoundRecord(Record):
    """One exchange: a base model, the sites that were asked, and what became of it.

    `key` is what the outside calls it; `id` grows with time and is what listings are paged by.
    `state` is ``open``, ``finished`` or ``cancelled``; whether an open round still takes
    contributions is asked of `deadline`, so that no process has to watch the clock.

    Rounds that follow one another are numbered 1 to `rounds_total`; each is given `duration_s`,
    even where somebody moved the deadline of the one before to its end. A round has at most one
    successor: of two processes that finish it at once, the database lets one through.
    """

    __tablename__ = "rounds"
    __table_args__ = (Index(None, "state", "id"),)

    id: Mapped[int] = mapped_column(BigKey, primary_key=True)
    key: Mapped[str] = mapped_column(String(16), unique=True)
    site_id: Mapped[int] = mapped_column(ForeignKey("sites.id"))
    token_id: Mapped[str] = mapped_column(ForeignKey(TokenRecord.id))
    created_by: Mapped[str] = mapped_column(String(129))
    base_version_id: Mapped[int] = mapped_column(ForeignKey("model_versions.id"))
    method: Mapped[NameText]
    method_version: Mapped[int]
    mode: Mapped[str] = mapped_column(String(32))
    options: Mapped[JsonObject]
    description: Mapped[str] = mapped_column(Text, default="")
    number: Mapped[int]
    rounds_total: Mapped[int]
    predecessor_id: Mapped[int | None] = mapped_column(ForeignKey("rounds.id"), unique=True)
    created_at: Mapped[datetime] = mapped_column(default=now_utc)
    deadline: Mapped[datetime]
    duration_s: Mapped[int]
    state: Mapped[str] = mapped_column(String(16))
    ended_at: Mapped[datetime | None]
    ended_by: Mapped[str | None] = mapped_column(String(129))
    result_version_id: Mapped[int | None] = mapped_column(ForeignKey("model_versions.id"))

    site: Mapped[SiteRecord] = relationship(lazy="raise")
    base_version: Mapped[ModelVersionRecord] = relationship(
        lazy="raise", foreign_keys=[base_version_id]
    )
    result_version: Mapped[ModelVersionRecord | None] = relationship(
        lazy="raise", foreign_keys=[result_version_id]
    )
    participants: Mapped[list[RoundParticipantRecord]] = relationship(lazy="raise")
    contributions: Mapped[list[RoundContributionRecord]] = relationship(
        lazy="raise", order_by=RoundContributionRecord.digest
    )
    predecessor: Mapped[RoundRecord | None] = relationship(
        lazy="raise", remote_side="RoundRecord.id", back_populates="successor"
    )
    successor: Mapped[RoundRecord | None] = relationship(lazy="raise", back_populates="predecessor")
