"""Models: named lines of versions, with whom they are shared, and their aliases."""

from __future__ import annotations

from datetime import datetime

from sqlalchemy import (
    ForeignKey,
    Index,
    String,
    UniqueConstraint,
    text,
)
from sqlalchemy.orm import Mapped, mapped_column, relationship

from pool_server.database.records.base import (
    JsonStrings,
    NameText,
    Record,
    now_utc,
)
from pool_server.database.records.people import SiteRecord


class AliasRecord(Record):
    """``site/model@name`` means this version until the alias is moved."""

    __tablename__ = "aliases"
    __table_args__ = (Index(None, "version_id"),)

    model_id: Mapped[int] = mapped_column(ForeignKey("models.id"), primary_key=True)
    name: Mapped[NameText] = mapped_column(primary_key=True)
    version_id: Mapped[int] = mapped_column(ForeignKey("model_versions.id"))
    changed_at: Mapped[datetime] = mapped_column(default=now_utc)


class GrantRecord(Record):
    """One listed site of a model; `rights` are those beyond seeing it."""

    __tablename__ = "grants"
    __table_args__ = (Index(None, "site_id", "model_id"),)

    model_id: Mapped[int] = mapped_column(ForeignKey("models.id"), primary_key=True)
    site_id: Mapped[int] = mapped_column(ForeignKey("sites.id"), primary_key=True)
    rights: Mapped[JsonStrings]

    site: Mapped[SiteRecord] = relationship(lazy="raise")


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
