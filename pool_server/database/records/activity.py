"""The audit, which is only ever appended to, and events of sites."""

from __future__ import annotations

import os
import pwd
from datetime import datetime
from typing import Any

from sqlalchemy import ForeignKey, Index, String, false, text
from sqlalchemy.orm import Mapped, mapped_column, relationship

from pool_server.database.records.base import BigKey, JsonObject, NameText, Record, now_utc
from pool_server.database.records.people import SiteRecord

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
    __table_args__ = (Index(None, "subject"), Index(None, "action", "at"))

    id: Mapped[int] = mapped_column(BigKey, primary_key=True)
    at: Mapped[datetime] = mapped_column(default=now_utc)
    actor_site: Mapped[NameText]
    actor_token: Mapped[NameText]
    actor_user: Mapped[NameText] = mapped_column(server_default=text("''"))
    token_id: Mapped[str] = mapped_column(String(32))
    # By somebody who sees all models, and not only what their site may see.
    pool_wide: Mapped[bool] = mapped_column(default=False, server_default=false())
    address: Mapped[str] = mapped_column(String(64), default="")
    request_id: Mapped[str] = mapped_column(String(64), default="")
    action: Mapped[str] = mapped_column(String(64))
    subject: Mapped[str] = mapped_column(String(256))
    outcome: Mapped[str] = mapped_column(String(32), default="done")
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
    __table_args__ = (Index(None, "site_id", "id"),)

    id: Mapped[int] = mapped_column(BigKey, primary_key=True)
    at: Mapped[datetime] = mapped_column(default=now_utc)
    site_id: Mapped[int] = mapped_column(ForeignKey("sites.id"))
    kind: Mapped[str] = mapped_column(String(64))
    subject: Mapped[str] = mapped_column(String(256))
    details: Mapped[JsonObject]

    site: Mapped[SiteRecord] = relationship(lazy="raise")
