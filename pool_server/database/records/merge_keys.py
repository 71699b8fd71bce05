"""Merge keys: two versions can be merged by a method if and only if their keys are equal."""

from __future__ import annotations

from sqlalchemy import ForeignKey, Index, String
from sqlalchemy.orm import Mapped, mapped_column

from pool_server.database.records.base import Record


class MergeKeyRecord(Record):
    """The key of one version under one aggregation method."""

    __tablename__ = "merge_keys"
    __table_args__ = (Index(None, "method", "key", "version_id"),)

    version_id: Mapped[int] = mapped_column(ForeignKey("model_versions.id"), primary_key=True)
    method: Mapped[str] = mapped_column(String(64), primary_key=True)
    key: Mapped[str] = mapped_column(String(256))
