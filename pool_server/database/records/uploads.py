"""Uploads: files on their way into the pool.

Which parts have arrived is not written here but asked of the storage, the one place that knows
for certain, whether the bytes came through the server or straight from a client.
"""

from __future__ import annotations

from datetime import datetime

from sqlalchemy import JSON, BigInteger, ForeignKey, Index, String, Text, false, text
from sqlalchemy.orm import Mapped, mapped_column, relationship

from pool_server.database.records.base import DigestText, JsonObject, NameText, Record, now_utc
from pool_server.database.records.people import SiteRecord, TokenRecord

UPLOAD_IS_OPEN = text("state IN ('receiving', 'checking')")


class UploadRecord(Record):
    """An announced file and what its uploader says of it.

    `state` is ``receiving``, ``checking``, ``complete``, ``refused`` or ``expired``.
    `purpose` is what the file is to become: a ``version`` of a model, a ``contribution`` to the
    round `round_id` (of which `model_name` then holds the key), the ``result`` or the optimiser's
    ``state`` of that round, or a file of the ``secure`` session `secure_session_id` (likewise).
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
