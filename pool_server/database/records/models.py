"""Models: named lines of versions."""

from __future__ import annotations

from datetime import datetime

from sqlalchemy import ForeignKey, String, UniqueConstraint, text
from sqlalchemy.orm import Mapped, mapped_column, relationship

from pool_server.database.records.base import JsonStrings, NameText, Record, now_utc
from pool_server.database.records.grants import GrantRecord
from pool_server.database.records.sites import SiteRecord


class ModelRecord(Record):
    """``site/name``: all versions of it are of one kind.

    `visibility` is ``private`` (the own site), ``sites`` (those with a `GrantRecord`) or
    ``consortium`` (every site); `rights` are what those who see it may do beyond seeing. A
    deleted model keeps its row, so that its name is never used again.
    """

    __tablename__ = "models"
    __table_args__ = (UniqueConstraint("site_id", "name"),)

    id: Mapped[int] = mapped_column(primary_key=True)
    site_id: Mapped[int] = mapped_column(ForeignKey("sites.id"))
    name: Mapped[NameText]
    kind: Mapped[str] = mapped_column(String(16))
    visibility: Mapped[str] = mapped_column(
        String(16), default="consortium", server_default=text("'consortium'")
    )
    rights: Mapped[JsonStrings] = mapped_column(
        default=lambda: ["download", "merge"],
        server_default=text("""'["download", "merge"]'"""),
    )
    created_at: Mapped[datetime] = mapped_column(default=now_utc)
    deleted_at: Mapped[datetime | None]

    site: Mapped[SiteRecord] = relationship(lazy="raise")
    grants: Mapped[list[GrantRecord]] = relationship(lazy="raise")
