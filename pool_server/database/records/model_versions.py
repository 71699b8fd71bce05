"""Versions of models: immutable once they are there."""

from __future__ import annotations

from datetime import datetime
from typing import TYPE_CHECKING

from sqlalchemy import (
    BigInteger,
    ForeignKey,
    Index,
    Integer,
    String,
    Text,
    UniqueConstraint,
    text,
)
from sqlalchemy.orm import Mapped, column_property, mapped_column, relationship

from pool_server.database.records.aliases import AliasRecord
from pool_server.database.records.base import DigestText, JsonObject, Record, now_utc
from pool_server.database.records.labels import LabelRecord
from pool_server.database.records.merge_keys import MergeKeyRecord
from pool_server.database.records.metrics import MetricRecord
from pool_server.database.records.models import ModelRecord
from pool_server.database.records.recipes import ParentRecord, RecipeRecord
from pool_server.database.records.signatures import StatementRecord
from pool_server.database.records.terms import TermRecord
from pool_server.database.records.tokens import TokenRecord

if TYPE_CHECKING:
    from pool_server.database.records.withdrawals import (
        SuccessorRecord,
        WithdrawalFlagRecord,
        WithdrawalRecord,
    )

# SQLite counts a primary key up by itself only when its type is INTEGER.
BigKey = BigInteger().with_variant(Integer, "sqlite")


class ModelVersionRecord(Record):
    """One file of a model. A record exists only for a file that was checked and is stored.

    `state` is ``draft``, ``available``, ``quarantined``, ``withdrawn`` or ``deleted``. `id` grows
    with time and is what listings are paged by; `number` counts within the model.
    """

    __tablename__ = "model_versions"
    __table_args__ = (
        UniqueConstraint("model_id", "number"),
        UniqueConstraint("model_id", "digest"),
        Index(None, "digest"),
        Index(None, "kind", "id"),
        Index(None, "state", "id"),
    )

    id: Mapped[int] = mapped_column(BigKey, primary_key=True)
    model_id: Mapped[int] = mapped_column(ForeignKey("models.id"))
    number: Mapped[int]
    digest: Mapped[DigestText]
    size_bytes: Mapped[int] = mapped_column(BigInteger)
    kind: Mapped[str] = mapped_column(String(16))
    format: Mapped[str] = mapped_column(String(64))
    file_name: Mapped[str] = mapped_column(String(255))
    description: Mapped[str] = mapped_column(Text, default="")
    # As long as a small book: read only by who asks for it.
    card: Mapped[str] = mapped_column(Text, default="", server_default=text("''"), deferred=True)
    has_card: Mapped[bool] = column_property(card != "")
    state: Mapped[str] = mapped_column(
        String(16), default="available", server_default=text("'available'")
    )
    state_reason: Mapped[str] = mapped_column(Text, default="", server_default=text("''"))
    state_changed_at: Mapped[datetime | None]
    state_changed_by: Mapped[str] = mapped_column(
        String(129), default="", server_default=text("''")
    )
    fingerprint: Mapped[JsonObject]
    created_at: Mapped[datetime] = mapped_column(default=now_utc)
    created_by: Mapped[str] = mapped_column(String(129))
    token_id: Mapped[str] = mapped_column(ForeignKey(TokenRecord.id))

    model: Mapped[ModelRecord] = relationship(lazy="raise")
    labels: Mapped[list[LabelRecord]] = relationship(lazy="raise", order_by=LabelRecord.key)
    metrics: Mapped[list[MetricRecord]] = relationship(lazy="raise", order_by=MetricRecord.name)
    terms: Mapped[list[TermRecord]] = relationship(
        lazy="raise", order_by=(TermRecord.code, TermRecord.detail)
    )
    aliases: Mapped[list[AliasRecord]] = relationship(lazy="raise", order_by=AliasRecord.name)
    merge_keys: Mapped[list[MergeKeyRecord]] = relationship(
        lazy="raise", order_by=MergeKeyRecord.method
    )
    recipe: Mapped[RecipeRecord | None] = relationship(lazy="raise")
    parents: Mapped[list[ParentRecord]] = relationship(lazy="raise", order_by=ParentRecord.position)
    statement: Mapped[StatementRecord | None] = relationship(lazy="raise")
    withdrawal: Mapped[WithdrawalRecord | None] = relationship(
        lazy="raise", back_populates="version"
    )
    flags: Mapped[list[WithdrawalFlagRecord]] = relationship(
        lazy="raise", order_by="WithdrawalFlagRecord.withdrawal_id"
    )
    successors: Mapped[list[SuccessorRecord]] = relationship(
        lazy="raise",
        foreign_keys="SuccessorRecord.version_id",
        order_by="SuccessorRecord.successor_id",
    )
