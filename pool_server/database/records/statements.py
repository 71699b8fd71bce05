"""Evaluations of models by sites, the keys of sites, and the statements that they signed."""

from __future__ import annotations

from datetime import datetime

from sqlalchemy import Double, ForeignKey, ForeignKeyConstraint, Index, Integer, String, Text, text
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

    `dataset_digest` is equal for equal data sets, and reveals nothing of them. A later
    evaluation of the same file by the same site on the same data stands beside the earlier one;
    the newest counts.
    """

    __tablename__ = "evaluations"
    __table_args__ = (Index(None, "digest", "id"), Index(None, "site_id", "id"))

    id: Mapped[int] = mapped_column(BigKey, primary_key=True)
    digest: Mapped[DigestText]
    # The version that was named: its scores are shown only to those who may see it.
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


class SiteKeyRecord(Record):
    """A public key with which a site signs; `id` is the SHA-256 of the raw key.

    `origin` is empty for a key that the site has proved to hold, and ``site@pool`` for one that
    came with models imported from another pool: such a key signs nothing new here. The same key
    may stand at several sites, so that importing a key cannot keep its owner from registering it
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
    """A site's signed statement about a version: an in-toto statement in a DSSE envelope.

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
