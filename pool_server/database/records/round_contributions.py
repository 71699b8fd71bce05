"""What sites gave to rounds."""

from __future__ import annotations

from datetime import datetime

from sqlalchemy import BigInteger, ForeignKey, ForeignKeyConstraint, Index, String
from sqlalchemy.orm import Mapped, mapped_column, relationship

from pool_server.database.records.base import DigestText, JsonObject, Record, now_utc
from pool_server.database.records.sites import SiteRecord
from pool_server.database.records.tokens import TokenRecord


class RoundContributionRecord(Record):
    """The one contribution of a site to a round: a checked file, which is no model.

    The key lets a site contribute once, however many of its processes try at the same time.
    `summary` is what the check read from the file.
    """

    __tablename__ = "round_contributions"
    __table_args__ = (
        ForeignKeyConstraint(
            ["round_id", "site_id"], ["round_participants.round_id", "round_participants.site_id"]
        ),
        Index(None, "digest"),
    )

    round_id: Mapped[int] = mapped_column(ForeignKey("rounds.id"), primary_key=True)
    site_id: Mapped[int] = mapped_column(ForeignKey("sites.id"), primary_key=True)
    digest: Mapped[DigestText]
    size_bytes: Mapped[int] = mapped_column(BigInteger)
    file_name: Mapped[str] = mapped_column(String(255))
    summary: Mapped[JsonObject]
    created_at: Mapped[datetime] = mapped_column(default=now_utc)
    created_by: Mapped[str] = mapped_column(String(129))
    token_id: Mapped[str] = mapped_column(ForeignKey(TokenRecord.id))

    site: Mapped[SiteRecord] = relationship(lazy="raise", foreign_keys=[site_id])
