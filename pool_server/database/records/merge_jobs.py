"""Merges that the pool makes itself."""

from __future__ import annotations

from datetime import datetime

from sqlalchemy import JSON, Double, ForeignKey, Index, String, Text, false, text
from sqlalchemy.orm import Mapped, mapped_column, relationship

from pool_server.database.records.base import BigKey, JsonObject, NameText, Record, now_utc
from pool_server.database.records.people import SiteRecord, TokenRecord
from pool_server.database.records.rounds import RoundRecord

JOB_IS_OPEN = text("state IN ('queued', 'running')")


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
        Index(None, "state", "id"),
        Index(None, "site_id", "id"),
        Index(
            "uq_merge_jobs_round",
            "round_id",
            unique=True,
            sqlite_where=JOB_IS_OPEN,
            postgresql_where=JOB_IS_OPEN,
        ),
    )

    id: Mapped[int] = mapped_column(BigKey, primary_key=True)
    key: Mapped[str] = mapped_column(String(16), unique=True)
    site_id: Mapped[int] = mapped_column(ForeignKey("sites.id"))
    token_id: Mapped[str] = mapped_column(ForeignKey(TokenRecord.id))
    created_by: Mapped[str] = mapped_column(String(129))
    round_id: Mapped[int | None] = mapped_column(ForeignKey(RoundRecord.id))
    model_name: Mapped[NameText]
    request: Mapped[JsonObject]
    state: Mapped[str] = mapped_column(String(16))
    progress: Mapped[float] = mapped_column(Double, default=0.0)
    activity: Mapped[str] = mapped_column(Text, default="")
    cancel_requested: Mapped[bool] = mapped_column(default=False, server_default=false())
    attempts: Mapped[int] = mapped_column(default=0)
    claimed_by: Mapped[str] = mapped_column(String(64), default="")
    claim_expires_at: Mapped[datetime | None]
    created_at: Mapped[datetime] = mapped_column(default=now_utc)
    started_at: Mapped[datetime | None]
    ended_at: Mapped[datetime | None]
    refusal: Mapped[dict[str, object] | None] = mapped_column(JSON(none_as_null=True))
    version_id: Mapped[int | None] = mapped_column(ForeignKey("model_versions.id"))

    site: Mapped[SiteRecord] = relationship(lazy="raise")
    round: Mapped[RoundRecord | None] = relationship(lazy="raise")
