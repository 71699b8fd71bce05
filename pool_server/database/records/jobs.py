"""Uploads on their way into the pool, and merges that the pool makes in the background.

Which parts have arrived is not written here but asked of the storage, the one place that knows
for certain, whether the bytes came through the server or straight from a client.
"""

from __future__ import annotations

from datetime import datetime

from sqlalchemy import JSON, BigInteger, Double, ForeignKey, Index, String, Text, false, text
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
from pool_server.database.records.rounds import RoundRecord

UPLOAD_IS_OPEN = text("state IN ('receiving', 'checking')")


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
        Index(
            "uq_uploads_open",
            "site_id",
            "purpose",
            "model_name",
            "digest",
            unique=True,
            sqlite_where=UPLOAD_IS_OPEN,
            postgresql_where=UPLOAD_IS_OPEN,
        ),
        Index(None, "state", "expires_at"),
    )

    id: Mapped[str] = mapped_column(String(32), primary_key=True)
    site_id: Mapped[int] = mapped_column(ForeignKey("sites.id"))
    token_id: Mapped[str] = mapped_column(ForeignKey("tokens.id"))
    model_name: Mapped[NameText]
    purpose: Mapped[str] = mapped_column(
        String(16), default="version", server_default=text("'version'")
    )
    round_id: Mapped[int | None] = mapped_column(ForeignKey("rounds.id"))
    secure_session_id: Mapped[int | None] = mapped_column(ForeignKey("secure_sessions.id"))
    least_others: Mapped[int | None]
    digest: Mapped[DigestText]
    size_bytes: Mapped[int] = mapped_column(BigInteger)
    part_bytes: Mapped[int] = mapped_column(BigInteger)
    file_name: Mapped[str] = mapped_column(String(255))
    description: Mapped[str] = mapped_column(Text, default="")
    labels: Mapped[JsonObject]
    metrics: Mapped[JsonObject]
    recipe: Mapped[dict[str, object] | None] = mapped_column(JSON(none_as_null=True))
    card: Mapped[str] = mapped_column(Text, default="", server_default=text("''"))
    terms: Mapped[list[dict[str, str]]] = mapped_column(
        JSON, default=list, server_default=text("'[]'")
    )
    visibility: Mapped[str | None] = mapped_column(String(16))
    rights: Mapped[list[str] | None] = mapped_column(JSON(none_as_null=True))
    as_draft: Mapped[bool] = mapped_column(default=False, server_default=false())
    statement: Mapped[dict[str, object] | None] = mapped_column(JSON(none_as_null=True))
    storage_handle: Mapped[str] = mapped_column(Text, default="")
    state: Mapped[str] = mapped_column(String(16))
    claim_expires_at: Mapped[datetime | None]
    refusal: Mapped[dict[str, object] | None] = mapped_column(JSON(none_as_null=True))
    created_at: Mapped[datetime] = mapped_column(default=now_utc)
    expires_at: Mapped[datetime]
    version_id: Mapped[int | None] = mapped_column(ForeignKey("model_versions.id"))

    site: Mapped[SiteRecord] = relationship(lazy="raise")
    token: Mapped[TokenRecord] = relationship(lazy="raise")


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
