"""Sites: the labs that share a pool."""

from __future__ import annotations

from datetime import datetime

from sqlalchemy import BigInteger, String
from sqlalchemy.orm import Mapped, mapped_column

from pool_server.database.records.base import NameText, Record, now_utc


class SiteRecord(Record):
    """A lab. Its name is the first word of its models' addresses and never changes."""

    __tablename__ = "sites"

    id: Mapped[int] = mapped_column(primary_key=True)
    name: Mapped[NameText] = mapped_column(unique=True)
    display_name: Mapped[str] = mapped_column(String(200), default="")
    contact: Mapped[str] = mapped_column(String(200), default="")
    created_at: Mapped[datetime] = mapped_column(default=now_utc)
    # Bytes that all files of the site may take together; None: no limit.
    quota_bytes: Mapped[int | None] = mapped_column(BigInteger)
    # A suspended site is refused with all its tokens; its models stay.
    suspended_at: Mapped[datetime | None]
