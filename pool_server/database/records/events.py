"""Events: what a site should hear of, and the addresses that are called."""

from __future__ import annotations

from datetime import datetime

from sqlalchemy import ForeignKey, Index, Integer, String, Text
from sqlalchemy.orm import Mapped, mapped_column, relationship

from pool_server.database.records.base import BigKey, JsonObject, JsonStrings, Record, now_utc
from pool_server.database.records.people import SiteRecord


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


class WebhookRecord(Record):
    """An address that a site wants called with its events; `secret` signs what is sent there."""

    __tablename__ = "webhooks"
    __table_args__ = (Index(None, "site_id"),)

    id: Mapped[str] = mapped_column(String(32), primary_key=True)
    site_id: Mapped[int] = mapped_column(ForeignKey("sites.id"))
    url: Mapped[str] = mapped_column(String(2000))
    secret: Mapped[str] = mapped_column(String(128))
    kinds: Mapped[JsonStrings]
    created_at: Mapped[datetime] = mapped_column(default=now_utc)
    created_by: Mapped[str] = mapped_column(String(129))
    disabled_at: Mapped[datetime | None]

    site: Mapped[SiteRecord] = relationship(lazy="raise")


class WebhookDeliveryRecord(Record):
    """One event on its way to one address; tried again until `delivered_at` or `given_up_at`."""

    __tablename__ = "webhook_deliveries"
    __table_args__ = (Index(None, "next_attempt_at"),)

    webhook_id: Mapped[str] = mapped_column(ForeignKey("webhooks.id"), primary_key=True)
    event_id: Mapped[int] = mapped_column(ForeignKey("events.id"), primary_key=True)
    attempts: Mapped[int] = mapped_column(Integer, default=0)
    next_attempt_at: Mapped[datetime | None]
    delivered_at: Mapped[datetime | None]
    given_up_at: Mapped[datetime | None]
    last_error: Mapped[str] = mapped_column(Text, default="")

    webhook: Mapped[WebhookRecord] = relationship(lazy="raise")
    event: Mapped[EventRecord] = relationship(lazy="raise")
