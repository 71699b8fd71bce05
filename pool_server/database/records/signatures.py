"""Keys of sites, and the statements that they signed."""

from __future__ import annotations

from datetime import datetime

from sqlalchemy import ForeignKey, ForeignKeyConstraint, Index, String, Text, text
from sqlalchemy.orm import Mapped, mapped_column, relationship

from pool_server.database.records.base import JsonObject, NameText, Record, now_utc
from pool_server.database.records.people import SiteRecord


class SiteKeyRecord(Record):
    """A public key with which a site signs; `id` is the SHA-256 of the raw key.

    `origin` is empty for a key that the site has proved to hold, and ``site@pool`` for one that
    came with models imported from another pool: such a key signs nothing new here. The same key
    may stand at several sites, so that nobody can keep a site from its own key by importing it
    first. `revocation` is empty, ``superseded`` (what was signed before stays good) or
    ``compromised`` (nothing does).
    """

    __tablename__ = "site_keys"

    site_id: Mapped[int] = mapped_column(ForeignKey("sites.id"), primary_key=True)
    id: Mapped[str] = mapped_column(String(64), primary_key=True)
    name: Mapped[NameText]
    public_key: Mapped[str] = mapped_column(Text)
    origin: Mapped[str] = mapped_column(String(320), default="", server_default=text("''"))
    created_at: Mapped[datetime] = mapped_column(default=now_utc)
    created_by: Mapped[str] = mapped_column(String(129))
    revoked_at: Mapped[datetime | None]
    revocation: Mapped[str] = mapped_column(String(16), default="", server_default=text("''"))

    site: Mapped[SiteRecord] = relationship(lazy="raise")


class StatementRecord(Record):
    """What a site signed of a version: an in-toto statement in a DSSE envelope.

    `site_id` is the site of the version, which the key belongs to. `origin` is ``site@pool``
    where the version was imported: the statement then names that site.
    """

    __tablename__ = "statements"
    __table_args__ = (
        ForeignKeyConstraint(["site_id", "key_id"], ["site_keys.site_id", "site_keys.id"]),
        Index(None, "site_id", "key_id"),
    )

    version_id: Mapped[int] = mapped_column(ForeignKey("model_versions.id"), primary_key=True)
    site_id: Mapped[int]
    key_id: Mapped[str] = mapped_column(String(64))
    origin: Mapped[str] = mapped_column(String(320), default="", server_default=text("''"))
    envelope: Mapped[JsonObject]
    created_at: Mapped[datetime] = mapped_column(default=now_utc)

    key: Mapped[SiteKeyRecord] = relationship(lazy="raise")
