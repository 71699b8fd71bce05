"""Which sites have fetched a version: whom to tell when something is wrong with it."""

from __future__ import annotations

from datetime import datetime

from sqlalchemy import ForeignKey, Index
from sqlalchemy.orm import Mapped, mapped_column

from pool_server.database.records.base import Record, now_utc
from pool_server.database.records.model_versions import ModelVersionRecord
from pool_server.database.records.sites import SiteRecord


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
