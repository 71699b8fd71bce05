"""Rounds in which sites refine one model together, and sessions of the secure sum."""

from datetime import datetime

import sqlalchemy as sa
from sqlalchemy.orm import Mapped, mapped_column, relationship

from pool_server.database.records import base, models, people


class RoundParticipantRecord(base.Record):
    """One site of one round; `late_at` is when it came too late, if it did."""

    __tablename__ = "round_participants"
    __table_args__ = (sa.Index(None, "site_id", "round_id"),)

    round_id: Mapped[int] = mapped_column(sa.ForeignKey("rounds.id"), primary_key=True)
    site_id: Mapped[int] = mapped_column(sa.ForeignKey("sites.id"), primary_key=True)
    late_at: Mapped[datetime | None]

    site: Mapped[people.SiteRecord] = relationship(lazy="raise")


class RoundContributionRecord(base.Record):
    """The one contribution of a site to a round: a checked file, which is no model.

    The key lets a site contribute once, however many of its processes try at the same time.
    `summary` holds the values that the check read from the file. The site lets it be combined
    with at least `least_others` other contributions.
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
    digest: Mapped[base.DigestText]
    size_bytes: Mapped[int] = mapped_column(sa.BigInteger)
    file_name: Mapped[str] = mapped_column(sa.String(255))
    summary: Mapped[base.JsonObject]
    least_others: Mapped[int]
    created_at: Mapped[datetime] = mapped_column(default=base.now_utc)
    created_by: Mapped[str] = mapped_column(sa.String(129))
    token_id: Mapped[str] = mapped_column(sa.ForeignKey(people.TokenRecord.id))

    site: Mapped[people.SiteRecord] = relationship(lazy="raise", foreign_keys=[site_id])


class RoundRecord(base.Record):
    """One exchange: a base model, the invited sites, and the outcome.

    `key` is its public name; `id` grows with time and orders the pages of listings.
    `state` is ``open``, ``finished`` or ``cancelled``; whether an open round still takes
    contributions is asked of `deadline`, so that no process needs to watch the clock.

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

    id: Mapped[int] = mapped_column(base.BigKey, primary_key=True)
    key: Mapped[str] = mapped_column(sa.String(16), unique=True)
    site_id: Mapped[int] = mapped_column(sa.ForeignKey("sites.id"))
    token_id: Mapped[str] = mapped_column(sa.ForeignKey(people.TokenRecord.id))
    created_by: Mapped[str] = mapped_column(sa.String(129))
    base_version_id: Mapped[int] = mapped_column(sa.ForeignKey("model_versions.id"))
    method: Mapped[base.NameText]
    method_version: Mapped[int]
    mode: Mapped[str] = mapped_column(sa.String(32))
    options: Mapped[base.JsonObject]
    description: Mapped[str] = mapped_column(sa.Text, default="")
    number: Mapped[int]
    rounds_total: Mapped[int]
    predecessor_id: Mapped[int | None] = mapped_column(sa.ForeignKey("rounds.id"), unique=True)
    created_at: Mapped[datetime] = mapped_column(default=base.now_utc)
    deadline: Mapped[datetime]
    duration_s: Mapped[int]
    least_others: Mapped[int]
    secure: Mapped[dict[str, object] | None] = mapped_column(sa.JSON(none_as_null=True))
    terms: Mapped[dict[str, object] | None] = mapped_column(sa.JSON(none_as_null=True))
    state: Mapped[str] = mapped_column(sa.String(16))
    ended_at: Mapped[datetime | None]
    ended_by: Mapped[str | None] = mapped_column(sa.String(129))
    result_version_id: Mapped[int | None] = mapped_column(sa.ForeignKey("model_versions.id"))
    state_digest: Mapped[base.DigestText | None]
    state_size_bytes: Mapped[int | None] = mapped_column(sa.BigInteger)

    site: Mapped[people.SiteRecord] = relationship(lazy="raise")
    base_version: Mapped[models.ModelVersionRecord] = relationship(
        lazy="raise", foreign_keys=[base_version_id]
    )
    result_version: Mapped[models.ModelVersionRecord | None] = relationship(
        lazy="raise", foreign_keys=[result_version_id]
    )
    participants: Mapped[list[RoundParticipantRecord]] = relationship(lazy="raise")
    contributions: Mapped[list[RoundContributionRecord]] = relationship(
        lazy="raise", order_by=RoundContributionRecord.digest
    )
    predecessor: "Mapped[RoundRecord | None]" = relationship(
        lazy="raise", remote_side="RoundRecord.id", back_populates="successor"
    )
    successor: "Mapped[RoundRecord | None]" = relationship(
        lazy="raise", back_populates="predecessor"
    )


class SecureParticipantRecord(base.Record):
    """One site of one session: a lab, or an aggregation server."""

    __tablename__ = "secure_participants"
    __table_args__ = (sa.Index(None, "site_id", "session_id"),)

    session_id: Mapped[int] = mapped_column(sa.ForeignKey("secure_sessions.id"), primary_key=True)
    site_id: Mapped[int] = mapped_column(sa.ForeignKey("sites.id"), primary_key=True)

    site: Mapped[people.SiteRecord] = relationship(lazy="raise")


class SecureSessionRecord(base.Record):
    """One session; `key` is the SHA-256 of `descriptor`.

    It is deleted, with all that belongs to it, some time after `ends_at`.
    """

    __tablename__ = "secure_sessions"
    __table_args__ = (sa.Index(None, "ends_at"), sa.Index(None, "round_id"))

    id: Mapped[int] = mapped_column(base.BigKey, primary_key=True)
    key: Mapped[str] = mapped_column(sa.String(64), unique=True)
    descriptor: Mapped[str] = mapped_column(sa.Text)
    site_id: Mapped[int] = mapped_column(sa.ForeignKey("sites.id"))
    token_id: Mapped[str] = mapped_column(sa.ForeignKey(people.TokenRecord.id))
    created_by: Mapped[str] = mapped_column(sa.String(129))
    created_at: Mapped[datetime] = mapped_column(default=base.now_utc)
    ends_at: Mapped[datetime]
    round_id: Mapped[int | None] = mapped_column(sa.ForeignKey("rounds.id"))

    round: Mapped[RoundRecord | None] = relationship(lazy="raise")
    participants: Mapped[list[SecureParticipantRecord]] = relationship(lazy="raise")


class SecurePostRecord(base.Record):
    """A signed message; `id` grows in the order of arrival within a session."""

    __tablename__ = "secure_posts"
    __table_args__ = (
        sa.UniqueConstraint("session_id", "phase", "site_id"),
        sa.Index(None, "session_id", "id"),
    )

    id: Mapped[int] = mapped_column(base.BigKey, primary_key=True)
    session_id: Mapped[int] = mapped_column(sa.ForeignKey("secure_sessions.id"))
    phase: Mapped[base.NameText]
    site_id: Mapped[int] = mapped_column(sa.ForeignKey("sites.id"))
    envelope: Mapped[str] = mapped_column(sa.Text)
    created_at: Mapped[datetime] = mapped_column(default=base.now_utc)
    token_id: Mapped[str] = mapped_column(sa.ForeignKey(people.TokenRecord.id))

    site: Mapped[people.SiteRecord] = relationship(lazy="raise")


class SecureFileRecord(base.Record):
    """A file of one site in one session: a share that only a server can decrypt, or an opening."""

    __tablename__ = "secure_files"
    __table_args__ = (sa.Index(None, "digest"), sa.Index(None, "site_id"))

    session_id: Mapped[int] = mapped_column(sa.ForeignKey("secure_sessions.id"), primary_key=True)
    site_id: Mapped[int] = mapped_column(sa.ForeignKey("sites.id"), primary_key=True)
    digest: Mapped[base.DigestText] = mapped_column(primary_key=True)
    size_bytes: Mapped[int] = mapped_column(sa.BigInteger)
    created_at: Mapped[datetime] = mapped_column(default=base.now_utc)
    token_id: Mapped[str] = mapped_column(sa.ForeignKey(people.TokenRecord.id))
