"""Evaluations: how a model did on a site's own data, which stay at the site."""

from __future__ import annotations

from datetime import datetime

from sqlalchemy import Double, ForeignKey, Index, Integer, String, Text
from sqlalchemy.orm import Mapped, mapped_column, relationship

from pool_server.database.records.base import (
    BigKey,
    DigestText,
    JsonObject,
    NameText,
    Record,
    now_utc,
)
from pool_server.database.records.people import SiteRecord, TokenRecord


class EvaluationRecord(Record):
    """Scores of a file, by digest, measured by one site on one data set.

    `dataset_digest` tells equal data sets from different ones and reveals neither. A later
    evaluation of the same file by the same site on the same data stands beside the earlier one;
    the newest counts.
    """

    __tablename__ = "evaluations"
    __table_args__ = (Index(None, "digest", "id"), Index(None, "site_id", "id"))

    id: Mapped[int] = mapped_column(BigKey, primary_key=True)
    digest: Mapped[DigestText]
    # The version that was named: who may not see it is not told of its scores.
    version_id: Mapped[int] = mapped_column(ForeignKey("model_versions.id"))
    site_id: Mapped[int] = mapped_column(ForeignKey("sites.id"))
    dataset: Mapped[str] = mapped_column(String(128))
    dataset_digest: Mapped[DigestText]
    split: Mapped[str] = mapped_column(String(64), default="")
    protocol: Mapped[str] = mapped_column(String(128), default="")
    images: Mapped[int | None] = mapped_column(Integer)
    note: Mapped[str] = mapped_column(Text, default="")
    details: Mapped[JsonObject]
    created_at: Mapped[datetime] = mapped_column(default=now_utc)
    created_by: Mapped[str] = mapped_column(String(129))
    token_id: Mapped[str] = mapped_column(ForeignKey(TokenRecord.id))

    site: Mapped[SiteRecord] = relationship(lazy="raise")
    scores: Mapped[list[EvaluationScoreRecord]] = relationship(
        lazy="raise", order_by="EvaluationScoreRecord.name"
    )


class EvaluationScoreRecord(Record):
    """``name = value`` of one evaluation, with its 95 % interval where one was measured."""

    __tablename__ = "evaluation_scores"
    __table_args__ = (Index(None, "name", "value", "evaluation_id"),)

    evaluation_id: Mapped[int] = mapped_column(ForeignKey("evaluations.id"), primary_key=True)
    name: Mapped[NameText] = mapped_column(primary_key=True)
    value: Mapped[float] = mapped_column(Double)
    low: Mapped[float | None] = mapped_column(Double)
    high: Mapped[float | None] = mapped_column(Double)
