"""Grants: which sites a model is shared with, where not with all."""

from __future__ import annotations

from sqlalchemy import ForeignKey, Index
from sqlalchemy.orm import Mapped, mapped_column, relationship

from pool_server.database.records.base import JsonStrings, Record
from pool_server.database.records.sites import SiteRecord


class GrantRecord(Record):
    """One listed site of a model; `rights` are those beyond seeing it."""

    __tablename__ = "grants"
    __table_args__ = (Index(None, "site_id", "model_id"),)

    model_id: Mapped[int] = mapped_column(ForeignKey("models.id"), primary_key=True)
    site_id: Mapped[int] = mapped_column(ForeignKey("sites.id"), primary_key=True)
    rights: Mapped[JsonStrings]

    site: Mapped[SiteRecord] = relationship(lazy="raise")
