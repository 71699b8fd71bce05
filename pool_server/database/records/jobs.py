"""Uploads under way, merges in the background, the audit, and events of sites."""

import os
import pwd
from datetime import datetime
from typing import Any

import sqlalchemy as sa
from sqlalchemy.orm import Mapped, mapped_column, relationship

from pool_server.database.records import base, models, people, rounds

# Uploads on their way into the pool, and merges that the pool makes in the background. Which
# parts have arrived is asked of the storage, the one place that knows for certain.

UPLOAD_IS_OPEN = sa.text("state IN ('receiving', 'checking')")


class UploadRecord(base.Record):
    """An announced file and its uploader's description of it.

    `state` is ``receiving``, ``checking``, ``complete``, ``refused`` or ``expired``.
    `purpose` names the file's use: a ``version`` of a model, a ``contribution`` to the round
    `round_id` (then `model_name` holds the round's key), the ``result`` or the optimiser's
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
    model_name: Mapped[base.NameText]
    purpose: Mapped[str] = mapped_column(
        sa.String(16), default="version", server_default=sa.text("'version'")
    )
    round_id: Mapped[int | None] = mapped_column(sa.ForeignKey("rounds.id"))
    secure_session_id: Mapped[int | None] = mapped_column(sa.ForeignKey("secure_sessions.id"))
    least_others: Mapped[int | None]
    digest: Mapped[base.DigestText]
    size_bytes: Mapped[int] = mapped_column(sa.BigInteger)
    part_bytes: Mapped[int] = mapped_column(sa.BigInteger)
    file_name: Mapped[str] = mapped_column(sa.String(255))
    description: Mapped[str] = mapped_column(sa.Text, default="")
    labels: Mapped[base.JsonObject]
    metrics: Mapped[base.JsonObject]
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
    created_at: Mapped[datetime] = mapped_column(default=base.now_utc)
    expires_at: Mapped[datetime]
    version_id: Mapped[int | None] = mapped_column(sa.ForeignKey("model_versions.id"))

    site: Mapped[people.SiteRecord] = relationship(lazy="raise")
    token: Mapped[people.TokenRecord] = relationship(lazy="raise")


JOB_IS_OPEN = sa.text("state IN ('queued', 'running')")


class MergeJobRecord(base.Record):
    """One merge in the background, and its outcome.

    `state` is ``queued``, ``running``, ``finished``, ``failed`` or ``cancelled``. A running job is
    held by one server process until `claim_expires_at`, which that process keeps putting off; a
    claim that has run out belongs to a process that died, and the job starts again.

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

    id: Mapped[int] = mapped_column(base.BigKey, primary_key=True)
    key: Mapped[str] = mapped_column(sa.String(16), unique=True)
    site_id: Mapped[int] = mapped_column(sa.ForeignKey("sites.id"))
    token_id: Mapped[str] = mapped_column(sa.ForeignKey(people.TokenRecord.id))
    created_by: Mapped[str] = mapped_column(sa.String(129))
    round_id: Mapped[int | None] = mapped_column(sa.ForeignKey(rounds.RoundRecord.id))
    model_name: Mapped[base.NameText]
    request: Mapped[base.JsonObject]
    state: Mapped[str] = mapped_column(sa.String(16))
    progress: Mapped[float] = mapped_column(sa.Double, default=0.0)
    activity: Mapped[str] = mapped_column(sa.Text, default="")
    cancel_requested: Mapped[bool] = mapped_column(default=False, server_default=sa.false())
    attempts: Mapped[int] = mapped_column(default=0)
    claimed_by: Mapped[str] = mapped_column(sa.String(64), default="")
    claim_expires_at: Mapped[datetime | None]
    created_at: Mapped[datetime] = mapped_column(default=base.now_utc)
    started_at: Mapped[datetime | None]
    ended_at: Mapped[datetime | None]
    refusal: Mapped[dict[str, object] | None] = mapped_column(sa.JSON(none_as_null=True))
    version_id: Mapped[int | None] = mapped_column(sa.ForeignKey("model_versions.id"))

    site: Mapped[people.SiteRecord] = relationship(lazy="raise")
    round: Mapped[rounds.RoundRecord | None] = relationship(lazy="raise")
    version: Mapped[models.ModelVersionRecord | None] = relationship(lazy="raise")


# The audit, which is only ever appended to, and events of sites.

# The audit's names for actions on the pool's own machine, which need no token. Every pool begins
# with this site.
FIRST_SITE = "admin"
LOCAL_ACTOR = "command-line"


class AuditRecord(base.Record):
    """One act, written in the same transaction as the act itself.

    Names are copied, not referenced: the entry keeps the names of its time. `actor_user` is
    empty for a token that belongs to its site alone. The database refuses to change or delete a
    row (a trigger made by the first migration).
    """

    __tablename__ = "audit"
    __table_args__ = (sa.Index(None, "subject"), sa.Index(None, "action", "at"))

    id: Mapped[int] = mapped_column(base.BigKey, primary_key=True)
    at: Mapped[datetime] = mapped_column(default=base.now_utc)
    actor_site: Mapped[base.NameText]
    actor_token: Mapped[base.NameText]
    actor_user: Mapped[base.NameText] = mapped_column(server_default=sa.text("''"))
    token_id: Mapped[str] = mapped_column(sa.String(32))
    # By somebody who sees all models, and not only what their site may see.
    pool_wide: Mapped[bool] = mapped_column(default=False, server_default=sa.false())
    address: Mapped[str] = mapped_column(sa.String(64), default="")
    request_id: Mapped[str] = mapped_column(sa.String(64), default="")
    action: Mapped[str] = mapped_column(sa.String(64))
    subject: Mapped[str] = mapped_column(sa.String(256))
    outcome: Mapped[str] = mapped_column(sa.String(32), default="done")
    details: Mapped[base.JsonObject]


def local_act(action: str, subject: str, **details: Any) -> dict[str, Any]:
    """Return the columns of an entry for an act on the pool's own machine.

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


class EventRecord(base.Record):
    """Something that concerns one site; written in the transaction of the act itself."""

    __tablename__ = "events"
    __table_args__ = (sa.Index(None, "site_id", "id"),)

    id: Mapped[int] = mapped_column(base.BigKey, primary_key=True)
    at: Mapped[datetime] = mapped_column(default=base.now_utc)
    site_id: Mapped[int] = mapped_column(sa.ForeignKey("sites.id"))
    kind: Mapped[str] = mapped_column(sa.String(64))
    subject: Mapped[str] = mapped_column(sa.String(256))
    details: Mapped[base.JsonObject]

    site: Mapped[people.SiteRecord] = relationship(lazy="raise")
