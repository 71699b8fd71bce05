"""Metrics: what an uploader measured on a version."""

from __future__ import annotations

from sqlalchemy import Double, ForeignKey, Index
from sqlalchemy.orm import Mapped, mapped_column

from pool_server.database.records.base import NameText, Record


class MetricRecord(Record):
    """``name = value`` of one version; always finite."""

    __tablename__ = "metrics"
    __table_args__ = (Index(None, "name", "value", "version_id"),)

    version_id: Mapped[int] = mapped_column(ForeignKey("model_versions.id"), primary_key=True)
    name: Mapped[NameText] = mapped_column(primary_key=True)
    value: Mapped[float] = mapped_column(Double)
