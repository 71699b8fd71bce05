"""Models, their versions with descriptions, scores and withdrawals; sharing."""

import math
import re
from datetime import datetime
from typing import Any

import sqlalchemy as sa
from sqlalchemy.orm import Mapped, column_property, mapped_column, relationship

from pool_server.database.records import base, people


class GrantRecord(base.Record):
    """One listed site of a model; `rights` are those beyond seeing it."""

    __tablename__ = "grants"
    __table_args__ = (sa.Index(None, "site_id", "model_id"),)

    model_id: Mapped[int] = mapped_column(sa.ForeignKey("models.id"), primary_key=True)
    site_id: Mapped[int] = mapped_column(sa.ForeignKey("sites.id"), primary_key=True)
    rights: Mapped[base.JsonStrings]

    site: Mapped[people.SiteRecord] = relationship(lazy="raise")


class ModelRecord(base.Record):
    """``site/name``: all versions of it are of one kind.

    `visibility` is ``private`` (its own site), ``sites`` (those with a `GrantRecord`) or
    ``consortium`` (every site); `rights` are the further acts allowed to its readers. A
    model that an earlier release deleted as a whole keeps its row, and its name stays unused.
    """

    __tablename__ = "models"
    __table_args__ = (sa.UniqueConstraint("site_id", "name"),)

    id: Mapped[int] = mapped_column(primary_key=True)
    site_id: Mapped[int] = mapped_column(sa.ForeignKey("sites.id"))
    name: Mapped[base.NameText]
    kind: Mapped[str] = mapped_column(sa.String(16))
    visibility: Mapped[str] = mapped_column(
        sa.String(16), default="consortium", server_default=sa.text("'consortium'")
    )
    rights: Mapped[base.JsonStrings] = mapped_column(
        default=lambda: ["download", "merge"], server_default=sa.text("""'["download", "merge"]'""")
    )
    created_at: Mapped[datetime] = mapped_column(default=base.now_utc)
    deleted_at: Mapped[datetime | None]

    site: Mapped[people.SiteRecord] = relationship(lazy="raise")
    grants: Mapped[list[GrantRecord]] = relationship(lazy="raise")


# The file of a version never changes; its site may correct the description.
_NUMBER = re.compile(r"^[+-]?[0-9]+(\.[0-9]+)?([eE][+-]?[0-9]+)?$")


def number_in(value: str) -> float | None:
    """Return a label's value as a finite number; None where it is not one."""
    number = float(value) if _NUMBER.fullmatch(value) else math.inf
    return number if math.isfinite(number) else None


def _number_of_row(context: Any) -> float | None:
    return number_in(context.get_current_parameters()["value"])


class LabelRecord(base.Record):
    """``key = value`` of one version.

    `number` is the value where that is a number, so that it can be compared as one; it is filled
    in with every insert and update that SQLAlchemy makes.
    """

    __tablename__ = "labels"
    __table_args__ = (
        sa.Index(None, "key", "value", "version_id"),
        sa.Index(None, "key", "number", "version_id"),
    )

    version_id: Mapped[int] = mapped_column(sa.ForeignKey("model_versions.id"), primary_key=True)
    key: Mapped[base.NameText] = mapped_column(primary_key=True)
    value: Mapped[str] = mapped_column(sa.String(256))
    number: Mapped[float | None] = mapped_column(
        sa.Double, default=_number_of_row, onupdate=_number_of_row
    )


class MetricRecord(base.Record):
    """``name = value`` of one version; always finite."""

    __tablename__ = "metrics"
    __table_args__ = (sa.Index(None, "name", "value", "version_id"),)

    version_id: Mapped[int] = mapped_column(sa.ForeignKey("model_versions.id"), primary_key=True)
    name: Mapped[base.NameText] = mapped_column(primary_key=True)
    value: Mapped[float] = mapped_column(sa.Double)


class TermRecord(base.Record):
    """One term of one version; `detail` fills in its code (a site, a date, a text).

    `inherited` terms came from the inputs of a merge and bind as the version's own do.
    """

    __tablename__ = "terms"
    __table_args__ = (sa.Index(None, "code", "version_id"),)

    version_id: Mapped[int] = mapped_column(sa.ForeignKey("model_versions.id"), primary_key=True)
    code: Mapped[str] = mapped_column(sa.String(32), primary_key=True)
    detail: Mapped[str] = mapped_column(sa.String(256), primary_key=True, default="")
    inherited: Mapped[bool] = mapped_column(default=False, server_default=sa.false())


class MergeKeyRecord(base.Record):
    """The key of one version under one aggregation method."""

    __tablename__ = "merge_keys"
    __table_args__ = (sa.Index(None, "method", "key", "version_id"),)

    version_id: Mapped[int] = mapped_column(sa.ForeignKey("model_versions.id"), primary_key=True)
    method: Mapped[str] = mapped_column(sa.String(64), primary_key=True)
    key: Mapped[str] = mapped_column(sa.String(256))


class RecipeRecord(base.Record):
    """The recipe that makes a version's file again, as the merge wrote it."""

    __tablename__ = "recipes"

    version_id: Mapped[int] = mapped_column(sa.ForeignKey("model_versions.id"), primary_key=True)
    method: Mapped[str] = mapped_column(sa.String(64))
    document: Mapped[base.JsonObject]


class ParentRecord(base.Record):
    """One input of a recipe.

    Parents are known by digest, for the pool need not have them; the child's digest stands here
    too so that a family tree is walked within this one table.
    """

    __tablename__ = "parents"
    __table_args__ = (
        sa.Index(None, "child_digest", "parent_digest"),
        sa.Index(None, "parent_digest", "child_digest"),
    )

    version_id: Mapped[int] = mapped_column(sa.ForeignKey("model_versions.id"), primary_key=True)
    position: Mapped[int] = mapped_column(primary_key=True)
    child_digest: Mapped[base.DigestText]
    parent_digest: Mapped[base.DigestText]
    weight: Mapped[float] = mapped_column(sa.Double)
    method: Mapped[str] = mapped_column(sa.String(64))
    # Family trees, terms and withdrawals follow it: the pool believes the recipe.
    followed: Mapped[bool] = mapped_column(default=True, server_default=sa.true())


class ModelVersionRecord(base.Record):
    """One file of a model. A record exists only for a file that was checked and is stored.

    `state` is ``draft``, ``available``, ``quarantined``, ``withdrawn`` or ``deleted``. `id` grows
    with time and orders the pages of listings; `number` counts within the model.
    """

    __tablename__ = "model_versions"
    __table_args__ = (
        sa.UniqueConstraint("model_id", "number"),
        sa.UniqueConstraint("model_id", "digest"),
        sa.Index(None, "digest"),
        sa.Index(None, "kind", "id"),
        sa.Index(None, "state", "id"),
    )

    id: Mapped[int] = mapped_column(base.BigKey, primary_key=True)
    model_id: Mapped[int] = mapped_column(sa.ForeignKey("models.id"))
    number: Mapped[int]
    digest: Mapped[base.DigestText]
    size_bytes: Mapped[int] = mapped_column(sa.BigInteger)
    kind: Mapped[str] = mapped_column(sa.String(16))
    format: Mapped[str] = mapped_column(sa.String(64))
    file_name: Mapped[str] = mapped_column(sa.String(255))
    description: Mapped[str] = mapped_column(sa.Text, default="")
    # As long as a small book: read only by who asks for it.
    card: Mapped[str] = mapped_column(
        sa.Text, default="", server_default=sa.text("''"), deferred=True
    )
    has_card: Mapped[bool] = column_property(card != "")
    # Privacy receipts by mode, as the site has sent them.
    receipts: Mapped[base.JsonObject] = mapped_column(default=dict, deferred=True)
    state: Mapped[str] = mapped_column(
        sa.String(16), default="available", server_default=sa.text("'available'")
    )
    state_reason: Mapped[str] = mapped_column(sa.Text, default="", server_default=sa.text("''"))
    state_changed_at: Mapped[datetime | None]
    state_changed_by: Mapped[str] = mapped_column(
        sa.String(129), default="", server_default=sa.text("''")
    )
    fingerprint: Mapped[base.JsonObject]
    # Tensors, trees of each level: read only by who asks for one version.
    fingerprint_lists: Mapped[base.JsonObject] = mapped_column(default=dict, deferred=True)
    created_at: Mapped[datetime] = mapped_column(default=base.now_utc)
    created_by: Mapped[str] = mapped_column(sa.String(129))
    token_id: Mapped[str] = mapped_column(sa.ForeignKey(people.TokenRecord.id))

    model: Mapped[ModelRecord] = relationship(lazy="raise")
    labels: Mapped[list[LabelRecord]] = relationship(lazy="raise", order_by=LabelRecord.key)
    metrics: Mapped[list[MetricRecord]] = relationship(lazy="raise", order_by=MetricRecord.name)
    terms: Mapped[list[TermRecord]] = relationship(
        lazy="raise", order_by=(TermRecord.code, TermRecord.detail)
    )
    merge_keys: Mapped[list[MergeKeyRecord]] = relationship(
        lazy="raise", order_by=MergeKeyRecord.method
    )
    recipe: Mapped[RecipeRecord | None] = relationship(lazy="raise")
    parents: Mapped[list[ParentRecord]] = relationship(lazy="raise", order_by=ParentRecord.position)
    statement: Mapped[people.StatementRecord | None] = relationship(lazy="raise")
    withdrawal: "Mapped[WithdrawalRecord | None]" = relationship(
        lazy="raise", back_populates="version"
    )
    flags: "Mapped[list[WithdrawalFlagRecord]]" = relationship(
        lazy="raise", order_by="WithdrawalFlagRecord.withdrawal_id"
    )
    successors: "Mapped[list[SuccessorRecord]]" = relationship(
        lazy="raise",
        foreign_keys="SuccessorRecord.version_id",
        order_by="SuccessorRecord.successor_id",
    )

    @property
    def address(self) -> str:
        """``pool://SITE/NAME@NUMBER``; the model must be loaded with its site."""
        return f"pool://{self.model.site.name}/{self.model.name}@{self.number}"

    @property
    def subject(self) -> str:
        """The address as the audit has it, without its scheme."""
        return self.address.removeprefix("pool://")


class WithdrawalRecord(base.Record):
    """A version was withdrawn, once and for good.

    `reason` is a word of a fixed list, `effect` is the answer to downloads: ``warn`` or
    ``refuse``. Versions made from the file are flagged in `WithdrawalFlagRecord`.
    """

    __tablename__ = "withdrawals"
    __table_args__ = (sa.Index(None, "digest"),)

    id: Mapped[int] = mapped_column(base.BigKey, primary_key=True)
    version_id: Mapped[int] = mapped_column(sa.ForeignKey("model_versions.id"), unique=True)
    digest: Mapped[base.DigestText]
    reason: Mapped[str] = mapped_column(sa.String(32))
    explanation: Mapped[str] = mapped_column(sa.Text, default="")
    effect: Mapped[str] = mapped_column(sa.String(16))
    # It does not reach the same file at other sites: one of them has made it of other models.
    own_only: Mapped[bool] = mapped_column(default=False, server_default=sa.false())
    created_at: Mapped[datetime] = mapped_column(default=base.now_utc)
    created_by: Mapped[str] = mapped_column(sa.String(129))
    token_id: Mapped[str] = mapped_column(sa.ForeignKey(people.TokenRecord.id))

    version: Mapped[ModelVersionRecord] = relationship(lazy="raise", back_populates="withdrawal")


class WithdrawalFlagRecord(base.Record):
    """A version holds a withdrawn one, directly or through other merges."""

    __tablename__ = "withdrawal_flags"
    __table_args__ = (sa.Index(None, "withdrawal_id", "version_id"),)

    version_id: Mapped[int] = mapped_column(sa.ForeignKey("model_versions.id"), primary_key=True)
    withdrawal_id: Mapped[int] = mapped_column(sa.ForeignKey("withdrawals.id"), primary_key=True)
    created_at: Mapped[datetime] = mapped_column(default=base.now_utc)

    withdrawal: Mapped[WithdrawalRecord] = relationship(lazy="raise")


class SuccessorRecord(base.Record):
    """A version was merged again without its withdrawn inputs."""

    __tablename__ = "successors"
    __table_args__ = (sa.Index(None, "successor_id"),)

    version_id: Mapped[int] = mapped_column(sa.ForeignKey("model_versions.id"), primary_key=True)
    successor_id: Mapped[int] = mapped_column(sa.ForeignKey("model_versions.id"), primary_key=True)
    created_at: Mapped[datetime] = mapped_column(default=base.now_utc)
    created_by: Mapped[str] = mapped_column(sa.String(129))

    successor: Mapped[ModelVersionRecord] = relationship(lazy="raise", foreign_keys=[successor_id])


class DownloadRecord(base.Record):
    """A site has asked for a version's bytes, once or more often.

    One row a site and version, written at the first time and then at most once a day: most
    downloads write nothing.
    """

    __tablename__ = "downloads"
    __table_args__ = (sa.Index(None, "site_id"),)

    version_id: Mapped[int] = mapped_column(sa.ForeignKey(ModelVersionRecord.id), primary_key=True)
    site_id: Mapped[int] = mapped_column(sa.ForeignKey(people.SiteRecord.id), primary_key=True)
    first_at: Mapped[datetime] = mapped_column(default=base.now_utc)
    last_at: Mapped[datetime] = mapped_column(default=base.now_utc)


class PictureRecord(base.Record):
    """A drawing of a file; it can be made again at any time."""

    __tablename__ = "pictures"
    __table_args__ = ({"info": {"is_derived": True}},)

    digest: Mapped[base.DigestText] = mapped_column(primary_key=True)
    size: Mapped[str] = mapped_column(sa.String(8), primary_key=True)
    media_type: Mapped[str] = mapped_column(sa.String(32))
    content: Mapped[bytes] = mapped_column(sa.LargeBinary)


class EvaluationRecord(base.Record):
    """Scores of a file, by digest, measured by one site on one data set.

    `dataset_digest` is equal for equal data sets, and reveals nothing of them. A later
    evaluation of the same file by the same site on the same data does not replace the earlier
    one; the newest counts.
    """

    __tablename__ = "evaluations"
    __table_args__ = (sa.Index(None, "digest", "id"), sa.Index(None, "site_id", "id"))

    id: Mapped[int] = mapped_column(base.BigKey, primary_key=True)
    digest: Mapped[base.DigestText]
    # The version that was named: its scores are shown only to those who may see it.
    version_id: Mapped[int] = mapped_column(sa.ForeignKey("model_versions.id"))
    site_id: Mapped[int] = mapped_column(sa.ForeignKey("sites.id"))
    dataset: Mapped[str] = mapped_column(sa.String(128))
    dataset_digest: Mapped[base.DigestText]
    split: Mapped[str] = mapped_column(sa.String(64), default="")
    protocol: Mapped[str] = mapped_column(sa.String(128), default="")
    images: Mapped[int | None] = mapped_column(sa.Integer)
    note: Mapped[str] = mapped_column(sa.Text, default="")
    details: Mapped[base.JsonObject]
    created_at: Mapped[datetime] = mapped_column(default=base.now_utc)
    created_by: Mapped[str] = mapped_column(sa.String(129))
    token_id: Mapped[str] = mapped_column(sa.ForeignKey(people.TokenRecord.id))

    site: Mapped[people.SiteRecord] = relationship(lazy="raise")
    scores: "Mapped[list[EvaluationScoreRecord]]" = relationship(
        lazy="raise", order_by="EvaluationScoreRecord.name"
    )


class EvaluationScoreRecord(base.Record):
    """``name = value`` of one evaluation, with its 95 % interval where one was measured."""

    __tablename__ = "evaluation_scores"
    __table_args__ = (sa.Index(None, "name", "value", "evaluation_id"),)

    evaluation_id: Mapped[int] = mapped_column(sa.ForeignKey("evaluations.id"), primary_key=True)
    name: Mapped[base.NameText] = mapped_column(primary_key=True)
    value: Mapped[float] = mapped_column(sa.Double)
    low: Mapped[float | None] = mapped_column(sa.Double)
    high: Mapped[float | None] = mapped_column(sa.Double)
