"""The board of the secure sum: sessions, messages that are only added, and encrypted files."""

from __future__ import annotations

from datetime import datetime

from sqlalchemy import BigInteger, ForeignKey, Index, String, Text, UniqueConstraint
from sqlalchemy.orm import Mapped, mapped_column, relationship

from pool_server.database.records.base import BigKey, DigestText, NameText, Record, now_utc
from pool_server.database.records.people import SiteRecord, TokenRecord
from pool_server.database.records.rounds import RoundRecord


class SecureParticipantRecord(Record):
    """One site of one session: a lab, or an aggregation server."""

    __tablename__ = "secure_participants"
    __table_args__ = (Index(None, "site_id", "session_id"),)

    session_id: Mapped[int] = mapped_column(ForeignKey("secure_sessions.id"), primary_key=True)
    site_id: Mapped[int] = mapped_column(ForeignKey("sites.id"), primary_key=True)

    site: Mapped[SiteRecord] = relationship(lazy="raise")


class SecureSessionRecord(Record):
    """One session; `key` is the SHA-256 of `descriptor`.

    It is deleted, with all that belongs to it, some time after `ends_at`.
    """

    __tablename__ = "secure_sessions"
    __table_args__ = (Index(None, "ends_at"), Index(None, "round_id"))

    id: Mapped[int] = mapped_column(BigKey, primary_key=True)
    key: Mapped[str] = mapped_column(String(64), unique=True)
    descriptor: Mapped[str] = mapped_column(Text)
    site_id: Mapped[int] = mapped_column(ForeignKey("sites.id"))
    token_id: Mapped[str] = mapped_column(ForeignKey(TokenRecord.id))
    created_by: Mapped[str] = mapped_column(String(129))
    created_at: Mapped[datetime] = mapped_column(default=now_utc)
    ends_at: Mapped[datetime]
    round_id: Mapped[int | None] = mapped_column(ForeignKey("rounds.id"))

    round: Mapped[RoundRecord | None] = relationship(lazy="raise")
    participants: Mapped[list[SecureParticipantRecord]] = relationship(lazy="raise")


class SecurePostRecord(Record):
    """A signed message; `id` grows in the order of arrival within a session."""

    __tablename__ = "secure_posts"
    __table_args__ = (
        UniqueConstraint("session_id", "phase", "site_id"),
        Index(None, "session_id", "id"),
    )

    id: Mapped[int] = mapped_column(BigKey, primary_key=True)
    session_id: Mapped[int] = mapped_column(ForeignKey("secure_sessions.id"))
    phase: Mapped[NameText]
    site_id: Mapped[int] = mapped_column(ForeignKey("sites.id"))
    envelope: Mapped[str] = mapped_column(Text)
    created_at: Mapped[datetime] = mapped_column(default=now_utc)
    token_id: Mapped[str] = mapped_column(ForeignKey(TokenRecord.id))

    site: Mapped[SiteRecord] = relationship(lazy="raise")


class SecureFileRecord(Record):
    """A file of one site in one session: a share that only a server can decrypt, or an opening."""

    __tablename__ = "secure_files"
    __table_args__ = (Index(None, "digest"), Index(None, "site_id"))

    session_id: Mapped[int] = mapped_column(ForeignKey("secure_sessions.id"), primary_key=True)
    site_id: Mapped[int] = mapped_column(ForeignKey("sites.id"), primary_key=True)
    digest: Mapped[DigestText] = mapped_column(primary_key=True)
    size_bytes: Mapped[int] = mapped_column(BigInteger)
    created_at: Mapped[datetime] = mapped_column(default=now_utc)
    token_id: Mapped[str] = mapped_column(ForeignKey(TokenRecord.id))
