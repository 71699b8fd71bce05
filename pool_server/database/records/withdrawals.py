"""Withdrawals, what they touch, and what replaces it."""

from __future__ import annotations

from datetime import datetime

from sqlalchemy import ForeignKey, Index, String, Text
from sqlalchemy.orm import Mapped, mapped_column, relationship

from pool_server.database.records.base import DigestText, Record, now_utc
from pool_server.database.records.model_versions import BigKey, ModelVersionRecord
from pool_server.database.records.tokens import TokenRecord


class WithdrawalRecord(Record):
    """A version was withdrawn, once and for good.

    `reason` is a word of a fixed list, `effect` what it means for downloads: ``warn`` or
    ``refuse``. What was made from the file is flagged in `WithdrawalFlagRecord`.
    """

    __tablename__ = "withdrawals"
    __table_args__ = (Index(None, "digest"),)

    id: Mapped[int] = mapped_column(BigKey, primary_key=True)
    version_id: Mapped[int] = mapped_column(ForeignKey("model_versions.id"), unique=True)
    digest: Mapped[DigestText]
    reason: Mapped[str] = mapped_column(String(32))
    explanation: Mapped[str] = mapped_column(Text, default="")
    effect: Mapped[str] = mapped_column(String(16))
    created_at: Mapped[datetime] = mapped_column(default=now_utc)
    created_by: Mapped[str] = mapped_column(String(129))
    token_id: Mapped[str] = mapped_column(ForeignKey(TokenRecord.id))

    version: Mapped[ModelVersionRecord] = relationship(lazy="raise", back_populates="withdrawal")


class WithdrawalFlagRecord(Record):
    """A version holds, directly or through other merges, what was withdrawn."""

    __tablename__ = "withdrawal_flags"
    __table_args__ = (Index(None, "withdrawal_id", "version_id"),)

    version_id: Mapped[int] = mapped_column(ForeignKey("model_versions.id"), primary_key=True)
    withdrawal_id: Mapped[int] = mapped_column(ForeignKey("withdrawals.id"), primary_key=True)
    created_at: Mapped[datetime] = mapped_column(default=now_utc)

    withdrawal: Mapped[WithdrawalRecord] = relationship(lazy="raise")


class SuccessorRecord(Record):
    """A version was made again without what was withdrawn from it."""

    __tablename__ = "successors"
    __table_args__ = (Index(None, "successor_id"),)

    version_id: Mapped[int] = mapped_column(ForeignKey("model_versions.id"), primary_key=True)
    successor_id: Mapped[int] = mapped_column(ForeignKey("model_versions.id"), primary_key=True)
    created_at: Mapped[datetime] = mapped_column(default=now_utc)
    created_by: Mapped[str] = mapped_column(String(129))

    successor: Mapped[ModelVersionRecord] = relationship(lazy="raise", foreign_keys=[successor_id])
