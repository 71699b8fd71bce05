"""Versions of models, their descriptions, and their withdrawals.

The file of a version never changes; its site may correct what is said of it.
"""

from __future__ import annotations

import math
import re
from datetime import datetime
from typing import Any

from sqlalchemy import (
    BigInteger,
    Double,
    ForeignKey,
    Index,
    String,
    Text,
    UniqueConstraint,
    false,
    text,
    true,
)
from sqlalchemy.orm import Mapped, column_property, mapped_column, relationship

from pool_server.database.records.base import (
    BigKey,
    DigestText,
    JsonObject,
    NameText,
    Record,
    now_utc,
)
from pool_server.database.records.models import AliasRecord, ModelRecord
from pool_server.database.records.people import SiteRecord, TokenRecord
from pool_server.database.records.signatures import StatementRecord

_NUMBER = re.compile(r"^[+-]?[0-9]+(\.[0-9]+)?([eE][+-]?[0-9]+)?$")


def number_in(value: str) -> float | None:
    """Return a label's value as a finite number; None where it is not one."""
    number = float(value) if _NUMBER.fullmatch(value) else math.inf
    return number if math.isfinite(number) else None


def _number_of_row(context: Any) -> float | None:
    return number_in(context.get_current_parameters()["value"])


class LabelRecord(Record):
    """``key = value`` of one version.

    `number` is the value where that is a number, so that it can be compared as one; it is filled
    in with every insert and update that SQLAlchemy makes.
    """

    __tablename__ = "labels"
    __table_args__ = (
        Index(None, "key", "value", "version_id"),
        Index(None, "key", "number", "version_id"),
    )

    version_id: Mapped[int] = mapped_column(ForeignKey("model_versions.id"), primary_key=True)
    key: Mapped[NameText] = mapped_column(primary_key=True)
    value: Mapped[str] = mapped_column(String(256))
    number: Mapped[float | None] = mapped_column(
        Double, default=_number_of_row, onupdate=_number_of_row
    )


class MetricRecord(Record):
    """``name = value`` of one version; always finite."""

    __tablename__ = "metrics"
    __table_args__ = (Index(None, "name", "value", "version_id"),)

    version_id: Mapped[int] = mapped_column(ForeignKey("model_versions.id"), primary_key=True)
    name: Mapped[NameText] = mapped_column(primary_key=True)
    value: Mapped[float] = mapped_column(Double)


class TermRecord(Record):
    """One term of one version; `detail` says what the code leaves open (a site, a date, words).

    `inherited` terms came from the inputs of a merge and bind as the version's own do.
    """

    __tablename__ = "terms"
    __table_args__ = (Index(None, "code", "version_id"),)

    version_id: Mapped[int] = mapped_column(ForeignKey("model_versions.id"), primary_key=True)
    code: Mapped[str] = mapped_column(String(32), primary_key=True)
    detail: Mapped[str] = mapped_column(String(256), primary_key=True, default="")
    inherited: Mapped[bool] = mapped_column(default=False, server_default=false())


class MergeKeyRecord(Record):
    """The key of one version under one aggregation method."""

    __tablename__ = "merge_keys"
    __table_args__ = (Index(None, "method", "key", "version_id"),)

    version_id: Mapped[int] = mapped_column(ForeignKey("model_versions.id"), primary_key=True)
    method: Mapped[str] = mapped_column(String(64), primary_key=True)
    key: Mapped[str] = mapped_column(String(256))


class RecipeRecord(Record):
    """The recipe that makes a version's file again, as the merge wrote it."""

    __tablename__ = "recipes"

    version_id: Mapped[int] = mapped_column(ForeignKey("model_versions.id"), primary_key=True)
    method: Mapped[str] = mapped_column(String(64))
    document: Mapped[JsonObject]


class ParentRecord(Record):
    """One input of a recipe.

    Parents are known by digest, for the pool need not have them; the child's digest stands here
    too so that a family tree is walked within this one table.
    """

    __tablename__ = "parents"
    __table_args__ = (
        Index(None, "child_digest", "parent_digest"),
        Index(None, "parent_digest", "child_digest"),
    )

    version_id: Mapped[int] = mapped_column(ForeignKey("model_versions.id"), primary_key=True)
    position: Mapped[int] = mapped_column(primary_key=True)
    child_digest: Mapped[DigestText]
    parent_digest: Mapped[DigestText]
    weight: Mapped[float] = mapped_column(Double)
    method: Mapped[str] = mapped_column(String(64))
    # Family trees, terms and withdrawals follow it: the pool believes the recipe.
    followed: Mapped[bool] = mapped_column(default=True, server_default=true())


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
    # Privacy receipts by mode, as the site has sent them.
    receipts: Mapped[JsonObject] = mapped_column(default=dict, deferred=True)
    state: Mapped[str] = mapped_column(
        String(16), default="available", server_default=text("'available'")
    )
    state_reason: Mapped[str] = mapped_column(Text, default="", server_default=text("''"))
    state_changed_at: Mapped[datetime | None]
    state_changed_by: Mapped[str] = mapped_column(
        String(129), default="", server_default=text("''")
    )
    fingerprint: Mapped[JsonObject]
    # Tensors, trees of each level: read only by who asks for one version.
    fingerprint_lists: Mapped[JsonObject] = mapped_column(default=dict, deferred=True)
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
    # It does not reach the same file at other sites: one of them has made it of other models.
    own_only: Mapped[bool] = mapped_column(default=False, server_default=false())
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


class DownloadRecord(Record):
    """A site has asked for a version's bytes, once or more often.

    One row a site and version, written at the first time and then at most once a day: most
    downloads write nothing.
    """

    __tablename__ = "downloads"
    __table_args__ = (Index(None, "site_id"),)

    version_id: Mapped[int] = mapped_column(ForeignKey(ModelVersionRecord.id), primary_key=True)
    site_id: Mapped[int] = mapped_column(ForeignKey(SiteRecord.id), primary_key=True)
    first_at: Mapped[datetime] = mapped_column(default=now_utc)
    last_at: Mapped[datetime] = mapped_column(default=now_utc)
