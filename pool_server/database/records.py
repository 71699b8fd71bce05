"""The tables of the database: people, models, rounds, uploads and merges, and what was done."""

from __future__ import annotations

import math
import os
import pwd
import re
from datetime import UTC, datetime
from typing import Annotated, Any

import sqlalchemy as sa
from sqlalchemy.dialects.postgresql import ARRAY
from sqlalchemy.orm import DeclarativeBase, Mapped, column_property, mapped_column, relationship

# Constraints have names of their own so that a migration can change them on every database.
NAMING_CONVENTION = {
    "ix": "ix_%(table_name)s_%(column_0_N_name)s",
    "uq": "uq_%(table_name)s_%(column_0_N_name)s",
    "ck": "ck_%(table_name)s_%(constraint_name)s",
    "fk": "fk_%(table_name)s_%(column_0_name)s_%(referred_table_name)s",
    "pk": "pk_%(table_name)s",
}


class UtcDateTime(sa.TypeDecorator[datetime]):
    """A moment, always with its time zone in Python, always UTC in the database.

    SQLite keeps no time zones; without this a value would come back naive.
    """

    impl = sa.DateTime(timezone=True)
    cache_ok = True

    def process_bind_param(self, value: datetime | None, dialect: sa.Dialect) -> datetime | None:
        if value is None:
            return None
        if value.tzinfo is None:
            raise ValueError(f"a moment without a time zone: {value!r}")
        value = value.astimezone(UTC)
        return value.replace(tzinfo=None) if dialect.name == "sqlite" else value

    def process_result_value(
        self,
        value: datetime | None,
        dialect: sa.Dialect,  # noqa: ARG002 - SQLAlchemy gives it
    ) -> datetime | None:
        if value is None:
            return None
        return value.replace(tzinfo=UTC) if value.tzinfo is None else value.astimezone(UTC)


def now_utc() -> datetime:
    """Return this moment."""
    return datetime.now(UTC)


# SQLite numbers rows itself only where the type of the primary key is INTEGER.
BigKey = sa.BigInteger().with_variant(sa.Integer, "sqlite")
NameText = Annotated[str, mapped_column(sa.String(64))]
DigestText = Annotated[str, mapped_column(sa.String(64))]
JsonStrings = Annotated[list[str], mapped_column(sa.JSON)]
JsonObject = Annotated[dict[str, Any], mapped_column(sa.JSON)]


class Record(DeclarativeBase):
    """Base of all tables."""

    metadata = sa.MetaData(naming_convention=NAMING_CONVENTION)
    type_annotation_map = {datetime: UtcDateTime}  # noqa: RUF012 - SQLAlchemy's own form


# Sites, their people, and the tokens by which programs are let in.


class SiteRecord(Record):
    """A lab. Its name is the first word of its models' addresses and never changes."""

    __tablename__ = "sites"

    id: Mapped[int] = mapped_column(primary_key=True)
    name: Mapped[NameText] = mapped_column(unique=True)
    display_name: Mapped[str] = mapped_column(sa.String(200), default="")
    contact: Mapped[str] = mapped_column(sa.String(200), default="")
    created_at: Mapped[datetime] = mapped_column(default=now_utc)
    # Bytes that all files of the site may take together; None: no limit.
    quota_bytes: Mapped[int | None] = mapped_column(sa.BigInteger)
    # A suspended site is refused with all its tokens; its models stay.
    suspended_at: Mapped[datetime | None]


class UserRecord(Record):
    """A person at a site; the person's tokens never may more than the person.

    `role` is ``viewer``, ``contributor``, ``curator`` or ``admin`` and holds for the person's own
    site; with `pool_wide` it holds for every site.
    """

    __tablename__ = "users"
    __table_args__ = (sa.UniqueConstraint("site_id", "name"),)

    id: Mapped[int] = mapped_column(primary_key=True)
    site_id: Mapped[int] = mapped_column(sa.ForeignKey("sites.id"))
    name: Mapped[NameText]
    display_name: Mapped[str] = mapped_column(sa.String(200), default="")
    email: Mapped[str] = mapped_column(sa.String(254), default="")
    role: Mapped[str] = mapped_column(sa.String(16))
    pool_wide: Mapped[bool] = mapped_column(default=False, server_default=sa.false())
    created_at: Mapped[datetime] = mapped_column(default=now_utc)
    disabled_at: Mapped[datetime | None]

    site: Mapped[SiteRecord] = relationship(lazy="raise")


class InvitationRecord(Record):
    """A secret that makes one user, once; only its SHA-256 is kept."""

    __tablename__ = "invitations"

    id: Mapped[str] = mapped_column(sa.String(32), primary_key=True)
    secret_hash: Mapped[str] = mapped_column(sa.String(64), unique=True)
    site_id: Mapped[int] = mapped_column(sa.ForeignKey("sites.id"))
    email: Mapped[str] = mapped_column(sa.String(254), default="")
    role: Mapped[str] = mapped_column(sa.String(16))
    pool_wide: Mapped[bool] = mapped_column(default=False, server_default=sa.false())
    created_at: Mapped[datetime] = mapped_column(default=now_utc)
    created_by: Mapped[str] = mapped_column(sa.String(129))
    expires_at: Mapped[datetime]
    used_at: Mapped[datetime | None]
    user_id: Mapped[int | None] = mapped_column(sa.ForeignKey("users.id"))
    revoked_at: Mapped[datetime | None]

    site: Mapped[SiteRecord] = relationship(lazy="raise")
    user: Mapped[UserRecord | None] = relationship(lazy="raise")


class TokenRecord(Record):
    """A named token of a site; of the secret only the SHA-256 is kept.

    `kind` is ``program`` or ``feed``; a feed token only reads the feed of its site's events.
    `role` holds for the token's own site, with `pool_wide` for every site. `scopes` narrow what
    the role allows; None: all of it. The secret has 256 random bits, so that a
    plain hash is as good as a slow one.
    """

    __tablename__ = "tokens"
    __table_args__ = (
        # A revoked token frees its name: the lab's "laptop" may get a new one.
        sa.Index(
            "uq_tokens_site_id_name_valid",
            "site_id",
            "name",
            unique=True,
            sqlite_where=sa.text("revoked_at IS NULL"),
            postgresql_where=sa.text("revoked_at IS NULL"),
        ),
    )

    id: Mapped[str] = mapped_column(sa.String(32), primary_key=True)
    site_id: Mapped[int] = mapped_column(sa.ForeignKey("sites.id"))
    name: Mapped[NameText]
    kind: Mapped[str] = mapped_column(sa.String(16), default="program", server_default="program")
    role: Mapped[str] = mapped_column(sa.String(16))
    pool_wide: Mapped[bool] = mapped_column(default=False, server_default=sa.false())
    scopes: Mapped[list[str] | None] = mapped_column(sa.JSON(none_as_null=True))
    secret_hash: Mapped[str] = mapped_column(sa.String(64), unique=True)
    created_at: Mapped[datetime] = mapped_column(default=now_utc)
    expires_at: Mapped[datetime | None]
    last_used_at: Mapped[datetime | None]
    revoked_at: Mapped[datetime | None]

    site: Mapped[SiteRecord] = relationship(lazy="raise")
    user: Mapped[UserRecord | None] = relationship(lazy="raise", secondary="user_tokens")


class UserTokenRecord(Record):
    """Whose a token is; those of machines belong to the site alone."""

    __tablename__ = "user_tokens"
    __table_args__ = (sa.Index(None, "user_id"),)

    token_id: Mapped[str] = mapped_column(sa.ForeignKey("tokens.id"), primary_key=True)
    user_id: Mapped[int] = mapped_column(sa.ForeignKey("users.id"))


class BrowserSessionRecord(Record):
    """A person who is logged in with a browser: by a token, and as long as that is valid.

    The browser has the secret as a cookie; only its SHA-256 is kept. `proved_at` is when the
    browser last sent the token itself, or what stood for it at the log-in.
    """

    __tablename__ = "browser_sessions"
    __table_args__ = (sa.Index(None, "token_id"),)

    id: Mapped[str] = mapped_column(sa.String(32), primary_key=True)
    secret_hash: Mapped[str] = mapped_column(sa.String(64), unique=True)
    token_id: Mapped[str] = mapped_column(sa.ForeignKey("tokens.id"))
    browser: Mapped[str] = mapped_column(sa.String(200), default="")
    created_at: Mapped[datetime] = mapped_column(default=now_utc)
    last_used_at: Mapped[datetime] = mapped_column(default=now_utc)
    proved_at: Mapped[datetime] = mapped_column(default=now_utc)

    token: Mapped[TokenRecord] = relationship(lazy="raise")


class LoginLinkRecord(Record):
    """A secret in an address that logs a browser in once; only its SHA-256 is kept."""

    __tablename__ = "login_links"

    secret_hash: Mapped[str] = mapped_column(sa.String(64), primary_key=True)
    token_id: Mapped[str] = mapped_column(sa.ForeignKey("tokens.id"))
    expires_at: Mapped[datetime]


# Keys, signed statements and evaluations.


class EvaluationRecord(Record):
    """Scores of a file, by digest, measured by one site on one data set.

    `dataset_digest` is equal for equal data sets, and reveals nothing of them. A later
    evaluation of the same file by the same site on the same data stands beside the earlier one;
    the newest counts.
    """

    __tablename__ = "evaluations"
    __table_args__ = (sa.Index(None, "digest", "id"), sa.Index(None, "site_id", "id"))

    id: Mapped[int] = mapped_column(BigKey, primary_key=True)
    digest: Mapped[DigestText]
    # The version that was named: its scores are shown only to those who may see it.
    version_id: Mapped[int] = mapped_column(sa.ForeignKey("model_versions.id"))
    site_id: Mapped[int] = mapped_column(sa.ForeignKey("sites.id"))
    dataset: Mapped[str] = mapped_column(sa.String(128))
    dataset_digest: Mapped[DigestText]
    split: Mapped[str] = mapped_column(sa.String(64), default="")
    protocol: Mapped[str] = mapped_column(sa.String(128), default="")
    images: Mapped[int | None] = mapped_column(sa.Integer)
    note: Mapped[str] = mapped_column(sa.Text, default="")
    details: Mapped[JsonObject]
    created_at: Mapped[datetime] = mapped_column(default=now_utc)
    created_by: Mapped[str] = mapped_column(sa.String(129))
    token_id: Mapped[str] = mapped_column(sa.ForeignKey(TokenRecord.id))

    site: Mapped[SiteRecord] = relationship(lazy="raise")
    scores: Mapped[list[EvaluationScoreRecord]] = relationship(
        lazy="raise", order_by="EvaluationScoreRecord.name"
    )


class EvaluationScoreRecord(Record):
    """``name = value`` of one evaluation, with its 95 % interval where one was measured."""

    __tablename__ = "evaluation_scores"
    __table_args__ = (sa.Index(None, "name", "value", "evaluation_id"),)

    evaluation_id: Mapped[int] = mapped_column(sa.ForeignKey("evaluations.id"), primary_key=True)
    name: Mapped[NameText] = mapped_column(primary_key=True)
    value: Mapped[float] = mapped_column(sa.Double)
    low: Mapped[float | None] = mapped_column(sa.Double)
    high: Mapped[float | None] = mapped_column(sa.Double)


class SiteKeyRecord(Record):
    """A public key with which a site signs; `id` is the SHA-256 of the raw key.

    `origin` is empty for a key that the site has proved to hold, and ``site@pool`` for one that
    came with models imported from another pool: such a key signs nothing new here. The same key
    may stand at several sites, so that importing a key cannot keep its owner from registering it
    first. `revocation` is empty, ``superseded`` (what was signed before stays good) or
    ``compromised`` (nothing does).
    """

    __tablename__ = "site_keys"

    site_id: Mapped[int] = mapped_column(sa.ForeignKey("sites.id"), primary_key=True)
    id: Mapped[str] = mapped_column(sa.String(64), primary_key=True)
    name: Mapped[NameText]
    public_key: Mapped[str] = mapped_column(sa.Text)
    origin: Mapped[str] = mapped_column(sa.String(320), default="", server_default=sa.text("''"))
    created_at: Mapped[datetime] = mapped_column(default=now_utc)
    created_by: Mapped[str] = mapped_column(sa.String(129))
    revoked_at: Mapped[datetime | None]
    revocation: Mapped[str] = mapped_column(sa.String(16), default="", server_default=sa.text("''"))

    site: Mapped[SiteRecord] = relationship(lazy="raise")


class StatementRecord(Record):
    """A site's signed statement about a version: an in-toto statement in a DSSE envelope.

    `site_id` is the site of the version, which the key belongs to. `origin` is ``site@pool``
    where the version was imported: the statement then names that site.
    """

    __tablename__ = "statements"
    __table_args__ = (
        sa.ForeignKeyConstraint(["site_id", "key_id"], ["site_keys.site_id", "site_keys.id"]),
        sa.Index(None, "site_id", "key_id"),
    )

    version_id: Mapped[int] = mapped_column(sa.ForeignKey("model_versions.id"), primary_key=True)
    site_id: Mapped[int]
    key_id: Mapped[str] = mapped_column(sa.String(64))
    origin: Mapped[str] = mapped_column(sa.String(320), default="", server_default=sa.text("''"))
    envelope: Mapped[JsonObject]
    created_at: Mapped[datetime] = mapped_column(default=now_utc)

    key: Mapped[SiteKeyRecord] = relationship(lazy="raise")


# Models, their versions with descriptions and withdrawals, sharing, aliases, search entries.


class AliasRecord(Record):
    """``site/model@name`` means this version until the alias is moved."""

    __tablename__ = "aliases"
    __table_args__ = (sa.Index(None, "version_id"),)

    model_id: Mapped[int] = mapped_column(sa.ForeignKey("models.id"), primary_key=True)
    name: Mapped[NameText] = mapped_column(primary_key=True)
    version_id: Mapped[int] = mapped_column(sa.ForeignKey("model_versions.id"))
    changed_at: Mapped[datetime] = mapped_column(default=now_utc)


class GrantRecord(Record):
    """One listed site of a model; `rights` are those beyond seeing it."""

    __tablename__ = "grants"
    __table_args__ = (sa.Index(None, "site_id", "model_id"),)

    model_id: Mapped[int] = mapped_column(sa.ForeignKey("models.id"), primary_key=True)
    site_id: Mapped[int] = mapped_column(sa.ForeignKey("sites.id"), primary_key=True)
    rights: Mapped[JsonStrings]

    site: Mapped[SiteRecord] = relationship(lazy="raise")


class ModelRecord(Record):
    """``site/name``: all versions of it are of one kind.

    `visibility` is ``private`` (the own site), ``sites`` (those with a `GrantRecord`) or
    ``consortium`` (every site); `rights` are what those who see it may do beyond seeing. A
    deleted model keeps its row, so that its name is never used again.
    """

    __tablename__ = "models"
    __table_args__ = (sa.UniqueConstraint("site_id", "name"),)

    id: Mapped[int] = mapped_column(primary_key=True)
    site_id: Mapped[int] = mapped_column(sa.ForeignKey("sites.id"))
    name: Mapped[NameText]
    kind: Mapped[str] = mapped_column(sa.String(16))
    visibility: Mapped[str] = mapped_column(
        sa.String(16), default="consortium", server_default=sa.text("'consortium'")
    )
    rights: Mapped[JsonStrings] = mapped_column(
        default=lambda: ["download", "merge"], server_default=sa.text("""'["download", "merge"]'""")
    )
    created_at: Mapped[datetime] = mapped_column(default=now_utc)
    deleted_at: Mapped[datetime | None]

    site: Mapped[SiteRecord] = relationship(lazy="raise")
    grants: Mapped[list[GrantRecord]] = relationship(lazy="raise")


# The file of a version never changes; its site may correct what is said of it.
_NUMBER = re.compile(r"^[+-]?[0-9]+(\.[0-9]+)?([eE][+-]?[0-9]+)?$")


def number_in(value: str) -> float | None:
    """Return a label's value as a finite number; None where it is not one."""
    number = float(value) if _NUMBER.fullmatch(value) else math.inf
    return number if math.isfinite(number) else None


def _number_of_row(context: Any) -> float | None:
    return number_in(context.get_current_parameters()["value"])


class LabelRecord(Record):
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
    key: Mapped[NameText] = mapped_column(primary_key=True)
    value: Mapped[str] = mapped_column(sa.String(256))
    number: Mapped[float | None] = mapped_column(
        sa.Double, default=_number_of_row, onupdate=_number_of_row
    )


class MetricRecord(Record):
    """``name = value`` of one version; always finite."""

    __tablename__ = "metrics"
    __table_args__ = (sa.Index(None, "name", "value", "version_id"),)

    version_id: Mapped[int] = mapped_column(sa.ForeignKey("model_versions.id"), primary_key=True)
    name: Mapped[NameText] = mapped_column(primary_key=True)
    value: Mapped[float] = mapped_column(sa.Double)


class TermRecord(Record):
    """One term of one version; `detail` says what the code leaves open (a site, a date, words).

    `inherited` terms came from the inputs of a merge and bind as the version's own do.
    """

    __tablename__ = "terms"
    __table_args__ = (sa.Index(None, "code", "version_id"),)

    version_id: Mapped[int] = mapped_column(sa.ForeignKey("model_versions.id"), primary_key=True)
    code: Mapped[str] = mapped_column(sa.String(32), primary_key=True)
    detail: Mapped[str] = mapped_column(sa.String(256), primary_key=True, default="")
    inherited: Mapped[bool] = mapped_column(default=False, server_default=sa.false())


class MergeKeyRecord(Record):
    """The key of one version under one aggregation method."""

    __tablename__ = "merge_keys"
    __table_args__ = (sa.Index(None, "method", "key", "version_id"),)

    version_id: Mapped[int] = mapped_column(sa.ForeignKey("model_versions.id"), primary_key=True)
    method: Mapped[str] = mapped_column(sa.String(64), primary_key=True)
    key: Mapped[str] = mapped_column(sa.String(256))


class RecipeRecord(Record):
    """The recipe that makes a version's file again, as the merge wrote it."""

    __tablename__ = "recipes"

    version_id: Mapped[int] = mapped_column(sa.ForeignKey("model_versions.id"), primary_key=True)
    method: Mapped[str] = mapped_column(sa.String(64))
    document: Mapped[JsonObject]


class ParentRecord(Record):
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
    child_digest: Mapped[DigestText]
    parent_digest: Mapped[DigestText]
    weight: Mapped[float] = mapped_column(sa.Double)
    method: Mapped[str] = mapped_column(sa.String(64))
    # Family trees, terms and withdrawals follow it: the pool believes the recipe.
    followed: Mapped[bool] = mapped_column(default=True, server_default=sa.true())


class ModelVersionRecord(Record):
    """One file of a model. A record exists only for a file that was checked and is stored.

    `state` is ``draft``, ``available``, ``quarantined``, ``withdrawn`` or ``deleted``. `id` grows
    with time and is what listings are paged by; `number` counts within the model.
    """

    __tablename__ = "model_versions"
    __table_args__ = (
        sa.UniqueConstraint("model_id", "number"),
        sa.UniqueConstraint("model_id", "digest"),
        sa.Index(None, "digest"),
        sa.Index(None, "kind", "id"),
        sa.Index(None, "state", "id"),
    )

    id: Mapped[int] = mapped_column(BigKey, primary_key=True)
    model_id: Mapped[int] = mapped_column(sa.ForeignKey("models.id"))
    number: Mapped[int]
    digest: Mapped[DigestText]
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
    receipts: Mapped[JsonObject] = mapped_column(default=dict, deferred=True)
    state: Mapped[str] = mapped_column(
        sa.String(16), default="available", server_default=sa.text("'available'")
    )
    state_reason: Mapped[str] = mapped_column(sa.Text, default="", server_default=sa.text("''"))
    state_changed_at: Mapped[datetime | None]
    state_changed_by: Mapped[str] = mapped_column(
        sa.String(129), default="", server_default=sa.text("''")
    )
    fingerprint: Mapped[JsonObject]
    # Tensors, trees of each level: read only by who asks for one version.
    fingerprint_lists: Mapped[JsonObject] = mapped_column(default=dict, deferred=True)
    created_at: Mapped[datetime] = mapped_column(default=now_utc)
    created_by: Mapped[str] = mapped_column(sa.String(129))
    token_id: Mapped[str] = mapped_column(sa.ForeignKey(TokenRecord.id))

    model: Mapped[ModelRecord] = relationship(lazy="raise")
    labels: Mapped[list[LabelRecord]] = relationship(lazy="raise", order_by=LabelRecord.key)
    metrics: Mapped[list[MetricRecord]] = relationship(lazy="raise", order_by=MetricRecord.name)
    terms: Mapped[list[TermRecord]] = relationship(
        lazy="raise", order_by=(TermRecord.code, TermRecord.detail)
    )
    aliases: Mapped[list[AliasRecord]] = relationship(lazy="raise", order_by=AliasRecord.name)
    merge_keys: Mapped[list[MergeKeyRecord]] = relationship(
        lazy="raise", order_by=MergeKeyRecord.method
    )
    recipe: Mapped[RecipeRecord | None] = relationship(lazy="raise")
    parents: Mapped[list[ParentRecord]] = relationship(lazy="raise", order_by=ParentRecord.position)
    statement: Mapped[StatementRecord | None] = relationship(lazy="raise")
    withdrawal: Mapped[WithdrawalRecord | None] = relationship(
        lazy="raise", back_populates="version"
    )
    flags: Mapped[list[WithdrawalFlagRecord]] = relationship(
        lazy="raise", order_by="WithdrawalFlagRecord.withdrawal_id"
    )
    successors: Mapped[list[SuccessorRecord]] = relationship(
        lazy="raise",
        foreign_keys="SuccessorRecord.version_id",
        order_by="SuccessorRecord.successor_id",
    )


class WithdrawalRecord(Record):
    """A version was withdrawn, once and for good.

    `reason` is a word of a fixed list, `effect` what it means for downloads: ``warn`` or
    ``refuse``. What was made from the file is flagged in `WithdrawalFlagRecord`.
    """

    __tablename__ = "withdrawals"
    __table_args__ = (sa.Index(None, "digest"),)

    id: Mapped[int] = mapped_column(BigKey, primary_key=True)
    version_id: Mapped[int] = mapped_column(sa.ForeignKey("model_versions.id"), unique=True)
    digest: Mapped[DigestText]
    reason: Mapped[str] = mapped_column(sa.String(32))
    explanation: Mapped[str] = mapped_column(sa.Text, default="")
    effect: Mapped[str] = mapped_column(sa.String(16))
    # It does not reach the same file at other sites: one of them has made it of other models.
    own_only: Mapped[bool] = mapped_column(default=False, server_default=sa.false())
    created_at: Mapped[datetime] = mapped_column(default=now_utc)
    created_by: Mapped[str] = mapped_column(sa.String(129))
    token_id: Mapped[str] = mapped_column(sa.ForeignKey(TokenRecord.id))

    version: Mapped[ModelVersionRecord] = relationship(lazy="raise", back_populates="withdrawal")


class WithdrawalFlagRecord(Record):
    """A version holds, directly or through other merges, what was withdrawn."""

    __tablename__ = "withdrawal_flags"
    __table_args__ = (sa.Index(None, "withdrawal_id", "version_id"),)

    version_id: Mapped[int] = mapped_column(sa.ForeignKey("model_versions.id"), primary_key=True)
    withdrawal_id: Mapped[int] = mapped_column(sa.ForeignKey("withdrawals.id"), primary_key=True)
    created_at: Mapped[datetime] = mapped_column(default=now_utc)

    withdrawal: Mapped[WithdrawalRecord] = relationship(lazy="raise")


class SuccessorRecord(Record):
    """A version was made again without what was withdrawn from it."""

    __tablename__ = "successors"
    __table_args__ = (sa.Index(None, "successor_id"),)

    version_id: Mapped[int] = mapped_column(sa.ForeignKey("model_versions.id"), primary_key=True)
    successor_id: Mapped[int] = mapped_column(sa.ForeignKey("model_versions.id"), primary_key=True)
    created_at: Mapped[datetime] = mapped_column(default=now_utc)
    created_by: Mapped[str] = mapped_column(sa.String(129))

    successor: Mapped[ModelVersionRecord] = relationship(lazy="raise", foreign_keys=[successor_id])


class DownloadRecord(Record):
    """A site has asked for a version's bytes, once or more often.

    One row a site and version, written at the first time and then at most once a day: most
    downloads write nothing.
    """

    __tablename__ = "downloads"
    __table_args__ = (sa.Index(None, "site_id"),)

    version_id: Mapped[int] = mapped_column(sa.ForeignKey(ModelVersionRecord.id), primary_key=True)
    site_id: Mapped[int] = mapped_column(sa.ForeignKey(SiteRecord.id), primary_key=True)
    first_at: Mapped[datetime] = mapped_column(default=now_utc)
    last_at: Mapped[datetime] = mapped_column(default=now_utc)


# Search entries: one row for each version, written by triggers of the database.
class SearchEntryRecord(Record):
    """All that a version can be found by, beside its numbers.

    Only the triggers of the baseline migration write here: any statement that changes a version,
    its labels, model, site or grants changes its entry in the same transaction. The view
    ``search_sources`` says what belongs into an entry.

    `terms` are words without spaces that a version has or has not
    (`pool_server.registry.search`); on SQLite one text, with a space before and
    after each, on PostgreSQL a number for each. `facets` has those that are counted, with spaces
    between them. `words` is the text that people search, in lower case. `sort_name` orders by
    name, then site, then number.
    """

    __tablename__ = "search_entries"
    # What is derived is not backed up, but made again.
    __table_args__ = (sa.Index(None, "sort_name"), {"info": {"is_derived": True}})

    version_id: Mapped[int] = mapped_column(
        BigKey, sa.ForeignKey("model_versions.id", ondelete="CASCADE"), primary_key=True
    )
    # In the order of its characters, whatever the language of the database.
    sort_name: Mapped[str] = mapped_column(
        sa.String(160).with_variant(sa.String(160, collation="C"), "postgresql")
    )
    facets: Mapped[str] = mapped_column(sa.Text)
    terms: Mapped[str] = mapped_column(sa.Text().with_variant(ARRAY(sa.BigInteger()), "postgresql"))
    # Compared byte by byte, which is quicker.
    words: Mapped[str] = mapped_column(sa.Text().with_variant(sa.Text(collation="C"), "postgresql"))


def is_index_of_search(name: str | None, *_more: object) -> bool:
    """Return the tables and indexes that only one kind of database has.

    Full-text indexes of SQLite are tables, with others behind them; those of PostgreSQL are
    indexes of a kind that SQLite has not.
    """
    return name is not None and name.startswith(
        ("search_terms", "search_words", "ix_search_entries_terms", "ix_search_entries_words")
    )


class PictureRecord(Record):
    """A drawing of a file; it can be made again at any time."""

    __tablename__ = "pictures"
    __table_args__ = ({"info": {"is_derived": True}},)

    digest: Mapped[DigestText] = mapped_column(primary_key=True)
    size: Mapped[str] = mapped_column(sa.String(8), primary_key=True)
    media_type: Mapped[str] = mapped_column(sa.String(32))
    content: Mapped[bytes] = mapped_column(sa.LargeBinary)


# Rounds in which sites refine one model together, and sessions of the secure sum.


class RoundParticipantRecord(Record):
    """One site of one round; `late_at` is when it came too late, if it did."""

    __tablename__ = "round_participants"
    __table_args__ = (sa.Index(None, "site_id", "round_id"),)

    round_id: Mapped[int] = mapped_column(sa.ForeignKey("rounds.id"), primary_key=True)
    site_id: Mapped[int] = mapped_column(sa.ForeignKey("sites.id"), primary_key=True)
    late_at: Mapped[datetime | None]

    site: Mapped[SiteRecord] = relationship(lazy="raise")


class RoundContributionRecord(Record):
    """The one contribution of a site to a round: a checked file, which is no model.

    The key lets a site contribute once, however many of its processes try at the same time.
    `summary` is what the check read from the file. `least_others` is with how many other
    contributions at least the site lets it be combined.
    """

    __tablename__ = "round_contributions"
    __table_args__ = (
        sa.ForeignKeyConstraint(
            ["round_id", "site_id"], ["round_participants.round_id", "round_participants.site_id"]
        ),
        sa.Index(None, "digest"),
    )

    round_id: Mapped[int] = mapped_column(sa.ForeignKey("rounds.id"), primary_key=True)
    site_id: Mapped[int] = mapped_column(sa.ForeignKey("sites.id"), primary_key=True)
    digest: Mapped[DigestText]
    size_bytes: Mapped[int] = mapped_column(sa.BigInteger)
    file_name: Mapped[str] = mapped_column(sa.String(255))
    summary: Mapped[JsonObject]
    least_others: Mapped[int]
    created_at: Mapped[datetime] = mapped_column(default=now_utc)
    created_by: Mapped[str] = mapped_column(sa.String(129))
    token_id: Mapped[str] = mapped_column(sa.ForeignKey(TokenRecord.id))

    site: Mapped[SiteRecord] = relationship(lazy="raise", foreign_keys=[site_id])


class RoundRecord(Record):
    """One exchange: a base model, the sites that were asked, and what became of it.

    `key` is what the outside calls it; `id` grows with time and is what listings are paged by.
    `state` is ``open``, ``finished`` or ``cancelled``; whether an open round still takes
    contributions is asked of `deadline`, so that no process has to watch the clock.

    Rounds that follow one another are numbered 1 to `rounds_total`; each is given `duration_s`,
    even where somebody moved the deadline of the one before to its end. A round has at most one
    successor: of two processes that finish it at once, the database lets one through.

    `secure` are the terms of a secure sum: all contributions are then one file, the sum.

    `terms` is the envelope with the terms of the series that its starter has signed, if so.

    `state_digest` is that of the server optimiser's state, a file that the next round is combined
    with. It is kept before the round ends, and until the result or the last one of the series is
    deleted.
    """

    __tablename__ = "rounds"
    __table_args__ = (sa.Index(None, "state", "id"), sa.Index(None, "state_digest"))

    id: Mapped[int] = mapped_column(BigKey, primary_key=True)
    key: Mapped[str] = mapped_column(sa.String(16), unique=True)
    site_id: Mapped[int] = mapped_column(sa.ForeignKey("sites.id"))
    token_id: Mapped[str] = mapped_column(sa.ForeignKey(TokenRecord.id))
    created_by: Mapped[str] = mapped_column(sa.String(129))
    base_version_id: Mapped[int] = mapped_column(sa.ForeignKey("model_versions.id"))
    method: Mapped[NameText]
    method_version: Mapped[int]
    mode: Mapped[str] = mapped_column(sa.String(32))
    options: Mapped[JsonObject]
    description: Mapped[str] = mapped_column(sa.Text, default="")
    number: Mapped[int]
    rounds_total: Mapped[int]
    predecessor_id: Mapped[int | None] = mapped_column(sa.ForeignKey("rounds.id"), unique=True)
    created_at: Mapped[datetime] = mapped_column(default=now_utc)
    deadline: Mapped[datetime]
    duration_s: Mapped[int]
    least_others: Mapped[int]
    secure: Mapped[dict[str, object] | None] = mapped_column(sa.JSON(none_as_null=True))
    terms: Mapped[dict[str, object] | None] = mapped_column(sa.JSON(none_as_null=True))
    state: Mapped[str] = mapped_column(sa.String(16))
    ended_at: Mapped[datetime | None]
    ended_by: Mapped[str | None] = mapped_column(sa.String(129))
    result_version_id: Mapped[int | None] = mapped_column(sa.ForeignKey("model_versions.id"))
    state_digest: Mapped[DigestText | None]
    state_size_bytes: Mapped[int | None] = mapped_column(sa.BigInteger)

    site: Mapped[SiteRecord] = relationship(lazy="raise")
    base_version: Mapped[ModelVersionRecord] = relationship(
        lazy="raise", foreign_keys=[base_version_id]
    )
    result_version: Mapped[ModelVersionRecord | None] = relationship(
        lazy="raise", foreign_keys=[result_version_id]
    )
    participants: Mapped[list[RoundParticipantRecord]] = relationship(lazy="raise")
    contributions: Mapped[list[RoundContributionRecord]] = relationship(
        lazy="raise", order_by=RoundContributionRecord.digest
    )
    predecessor: Mapped[RoundRecord | None] = relationship(
        lazy="raise", remote_side="RoundRecord.id", back_populates="successor"
    )
    successor: Mapped[RoundRecord | None] = relationship(lazy="raise", back_populates="predecessor")


class SecureParticipantRecord(Record):
    """One site of one session: a lab, or an aggregation server."""

    __tablename__ = "secure_participants"
    __table_args__ = (sa.Index(None, "site_id", "session_id"),)

    session_id: Mapped[int] = mapped_column(sa.ForeignKey("secure_sessions.id"), primary_key=True)
    site_id: Mapped[int] = mapped_column(sa.ForeignKey("sites.id"), primary_key=True)

    site: Mapped[SiteRecord] = relationship(lazy="raise")


class SecureSessionRecord(Record):
    """One session; `key` is the SHA-256 of `descriptor`.

    It is deleted, with all that belongs to it, some time after `ends_at`.
    """

    __tablename__ = "secure_sessions"
    __table_args__ = (sa.Index(None, "ends_at"), sa.Index(None, "round_id"))

    id: Mapped[int] = mapped_column(BigKey, primary_key=True)
    key: Mapped[str] = mapped_column(sa.String(64), unique=True)
    descriptor: Mapped[str] = mapped_column(sa.Text)
    site_id: Mapped[int] = mapped_column(sa.ForeignKey("sites.id"))
    token_id: Mapped[str] = mapped_column(sa.ForeignKey(TokenRecord.id))
    created_by: Mapped[str] = mapped_column(sa.String(129))
    created_at: Mapped[datetime] = mapped_column(default=now_utc)
    ends_at: Mapped[datetime]
    round_id: Mapped[int | None] = mapped_column(sa.ForeignKey("rounds.id"))

    round: Mapped[RoundRecord | None] = relationship(lazy="raise")
    participants: Mapped[list[SecureParticipantRecord]] = relationship(lazy="raise")


class SecurePostRecord(Record):
    """A signed message; `id` grows in the order of arrival within a session."""

    __tablename__ = "secure_posts"
    __table_args__ = (
        sa.UniqueConstraint("session_id", "phase", "site_id"),
        sa.Index(None, "session_id", "id"),
    )

    id: Mapped[int] = mapped_column(BigKey, primary_key=True)
    session_id: Mapped[int] = mapped_column(sa.ForeignKey("secure_sessions.id"))
    phase: Mapped[NameText]
    site_id: Mapped[int] = mapped_column(sa.ForeignKey("sites.id"))
    envelope: Mapped[str] = mapped_column(sa.Text)
    created_at: Mapped[datetime] = mapped_column(default=now_utc)
    token_id: Mapped[str] = mapped_column(sa.ForeignKey(TokenRecord.id))

    site: Mapped[SiteRecord] = relationship(lazy="raise")


class SecureFileRecord(Record):
    """A file of one site in one session: a share that only a server can decrypt, or an opening."""

    __tablename__ = "secure_files"
    __table_args__ = (sa.Index(None, "digest"), sa.Index(None, "site_id"))

    session_id: Mapped[int] = mapped_column(sa.ForeignKey("secure_sessions.id"), primary_key=True)
    site_id: Mapped[int] = mapped_column(sa.ForeignKey("sites.id"), primary_key=True)
    digest: Mapped[DigestText] = mapped_column(primary_key=True)
    size_bytes: Mapped[int] = mapped_column(sa.BigInteger)
    created_at: Mapped[datetime] = mapped_column(default=now_utc)
    token_id: Mapped[str] = mapped_column(sa.ForeignKey(TokenRecord.id))


# Uploads on their way into the pool, and merges that the pool makes in the background. Which
# parts have arrived is asked of the storage, the one place that knows for certain.

UPLOAD_IS_OPEN = sa.text("state IN ('receiving', 'checking')")


class UploadRecord(Record):
    """An announced file and what its uploader says of it.

    `state` is ``receiving``, ``checking``, ``complete``, ``refused`` or ``expired``.
    `purpose` is what the file is to become: a ``version`` of a model, a ``contribution`` to the
    round `round_id` (of which `model_name` then holds the key), the ``result`` or the optimiser's
    ``state`` of that round, or a file of the ``secure`` session `secure_session_id` (likewise).
    `least_others` waits here for the contribution.
    `card`, `terms`, `as_draft` and `statement` wait here for the version; `visibility` and
    `rights` for the model, if the version is its first.
    `claim_expires_at` limits how long one process may hold the state ``checking``; a claim that
    has run out belongs to a process that died.
    """

    __tablename__ = "uploads"
    __table_args__ = (
        # At most one upload of a file to a place is under way; a second client joins it.
        sa.Index(
            "uq_uploads_open",
            "site_id",
            "purpose",
            "model_name",
            "digest",
            unique=True,
            sqlite_where=UPLOAD_IS_OPEN,
            postgresql_where=UPLOAD_IS_OPEN,
        ),
        sa.Index(None, "state", "expires_at"),
    )

    id: Mapped[str] = mapped_column(sa.String(32), primary_key=True)
    site_id: Mapped[int] = mapped_column(sa.ForeignKey("sites.id"))
    token_id: Mapped[str] = mapped_column(sa.ForeignKey("tokens.id"))
    model_name: Mapped[NameText]
    purpose: Mapped[str] = mapped_column(
        sa.String(16), default="version", server_default=sa.text("'version'")
    )
    round_id: Mapped[int | None] = mapped_column(sa.ForeignKey("rounds.id"))
    secure_session_id: Mapped[int | None] = mapped_column(sa.ForeignKey("secure_sessions.id"))
    least_others: Mapped[int | None]
    digest: Mapped[DigestText]
    size_bytes: Mapped[int] = mapped_column(sa.BigInteger)
    part_bytes: Mapped[int] = mapped_column(sa.BigInteger)
    file_name: Mapped[str] = mapped_column(sa.String(255))
    description: Mapped[str] = mapped_column(sa.Text, default="")
    labels: Mapped[JsonObject]
    metrics: Mapped[JsonObject]
    recipe: Mapped[dict[str, object] | None] = mapped_column(sa.JSON(none_as_null=True))
    card: Mapped[str] = mapped_column(sa.Text, default="", server_default=sa.text("''"))
    terms: Mapped[list[dict[str, str]]] = mapped_column(
        sa.JSON, default=list, server_default=sa.text("'[]'")
    )
    visibility: Mapped[str | None] = mapped_column(sa.String(16))
    rights: Mapped[list[str] | None] = mapped_column(sa.JSON(none_as_null=True))
    as_draft: Mapped[bool] = mapped_column(default=False, server_default=sa.false())
    statement: Mapped[dict[str, object] | None] = mapped_column(sa.JSON(none_as_null=True))
    storage_handle: Mapped[str] = mapped_column(sa.Text, default="")
    state: Mapped[str] = mapped_column(sa.String(16))
    claim_expires_at: Mapped[datetime | None]
    refusal: Mapped[dict[str, object] | None] = mapped_column(sa.JSON(none_as_null=True))
    created_at: Mapped[datetime] = mapped_column(default=now_utc)
    expires_at: Mapped[datetime]
    version_id: Mapped[int | None] = mapped_column(sa.ForeignKey("model_versions.id"))

    site: Mapped[SiteRecord] = relationship(lazy="raise")
    token: Mapped[TokenRecord] = relationship(lazy="raise")


JOB_IS_OPEN = sa.text("state IN ('queued', 'running')")


class MergeJobRecord(Record):
    """One merge in the background, and what became of it.

    `state` is ``queued``, ``running``, ``finished``, ``failed`` or ``cancelled``. A running job is
    held by one server process until `claim_expires_at`, which that process keeps putting off; a
    claim that has run out belongs to a process that died, and the job is begun anew.

    `round_id` is the round that the merge finishes, if it does: of several sites that finish one
    at the same time, the index lets one job through, and the others wait for that one.
    """

    __tablename__ = "merge_jobs"
    __table_args__ = (
        sa.Index(None, "state", "id"),
        sa.Index(None, "site_id", "id"),
        sa.Index(
            "uq_merge_jobs_round",
            "round_id",
            unique=True,
            sqlite_where=JOB_IS_OPEN,
            postgresql_where=JOB_IS_OPEN,
        ),
    )

    id: Mapped[int] = mapped_column(BigKey, primary_key=True)
    key: Mapped[str] = mapped_column(sa.String(16), unique=True)
    site_id: Mapped[int] = mapped_column(sa.ForeignKey("sites.id"))
    token_id: Mapped[str] = mapped_column(sa.ForeignKey(TokenRecord.id))
    created_by: Mapped[str] = mapped_column(sa.String(129))
    round_id: Mapped[int | None] = mapped_column(sa.ForeignKey(RoundRecord.id))
    model_name: Mapped[NameText]
    request: Mapped[JsonObject]
    state: Mapped[str] = mapped_column(sa.String(16))
    progress: Mapped[float] = mapped_column(sa.Double, default=0.0)
    activity: Mapped[str] = mapped_column(sa.Text, default="")
    cancel_requested: Mapped[bool] = mapped_column(default=False, server_default=sa.false())
    attempts: Mapped[int] = mapped_column(default=0)
    claimed_by: Mapped[str] = mapped_column(sa.String(64), default="")
    claim_expires_at: Mapped[datetime | None]
    created_at: Mapped[datetime] = mapped_column(default=now_utc)
    started_at: Mapped[datetime | None]
    ended_at: Mapped[datetime | None]
    refusal: Mapped[dict[str, object] | None] = mapped_column(sa.JSON(none_as_null=True))
    version_id: Mapped[int | None] = mapped_column(sa.ForeignKey("model_versions.id"))

    site: Mapped[SiteRecord] = relationship(lazy="raise")
    round: Mapped[RoundRecord | None] = relationship(lazy="raise")


# The audit, which is only ever appended to, and events of sites.

# Whom the audit names for what is done on the pool's own machine, which needs no token: the site
# that every pool begins with.
FIRST_SITE = "admin"
LOCAL_ACTOR = "command-line"


class AuditRecord(Record):
    """One act, written in the same transaction as the act itself.

    Names are copied, not referenced: the entry says what was true at the time. `actor_user` is
    empty for a token that belongs to its site alone. The database refuses to change or delete a
    row (a trigger made by the first migration).
    """

    __tablename__ = "audit"
    __table_args__ = (sa.Index(None, "subject"), sa.Index(None, "action", "at"))

    id: Mapped[int] = mapped_column(BigKey, primary_key=True)
    at: Mapped[datetime] = mapped_column(default=now_utc)
    actor_site: Mapped[NameText]
    actor_token: Mapped[NameText]
    actor_user: Mapped[NameText] = mapped_column(server_default=sa.text("''"))
    token_id: Mapped[str] = mapped_column(sa.String(32))
    # By somebody who sees all models, and not only what their site may see.
    pool_wide: Mapped[bool] = mapped_column(default=False, server_default=sa.false())
    address: Mapped[str] = mapped_column(sa.String(64), default="")
    request_id: Mapped[str] = mapped_column(sa.String(64), default="")
    action: Mapped[str] = mapped_column(sa.String(64))
    subject: Mapped[str] = mapped_column(sa.String(256))
    outcome: Mapped[str] = mapped_column(sa.String(32), default="done")
    details: Mapped[JsonObject]


def local_act(action: str, subject: str, **details: Any) -> dict[str, Any]:
    """Return the columns of an entry for what somebody does on the pool's own machine.

    The details name the person, by the system's name for the user.
    """
    return {
        "actor_site": FIRST_SITE,
        "actor_token": LOCAL_ACTOR,
        "token_id": "",
        "action": action,
        "subject": subject[:256],
        "details": {"system_user": _system_user(), **details},
    }


def _system_user() -> str:
    try:
        return pwd.getpwuid(os.getuid()).pw_name
    except KeyError:  # as in containers that run under any number
        return str(os.getuid())


class EventRecord(Record):
    """Something that concerns one site; written in the transaction of the act itself."""

    __tablename__ = "events"
    __table_args__ = (sa.Index(None, "site_id", "id"),)

    id: Mapped[int] = mapped_column(BigKey, primary_key=True)
    at: Mapped[datetime] = mapped_column(default=now_utc)
    site_id: Mapped[int] = mapped_column(sa.ForeignKey("sites.id"))
    kind: Mapped[str] = mapped_column(sa.String(64))
    subject: Mapped[str] = mapped_column(sa.String(256))
    details: Mapped[JsonObject]

    site: Mapped[SiteRecord] = relationship(lazy="raise")
