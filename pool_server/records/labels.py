"""Labels: what an uploader says of a version, as words."""

from __future__ import annotations

from sqlalchemy import ForeignKey, Index, String
from sqlalchemy.orm import Mapped, mapped_column

from pool_server.records.base import NameText, Record


class LabelRecord(Record):
    """``key = value`` of one version."""

    __tablename__ = "labels"
    __table_args__ = (Index(None, "key", "value", "version_id"),)

    version_id: Mapped[int] = mapped_column(ForeignKey("model_versions.id"), primary_key=True)
    key: Mapped[NameText] = mapped_column(primary_key=True)
    value: Mapped[str] = mapped_column(String(256))
