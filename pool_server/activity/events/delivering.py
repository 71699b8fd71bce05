"""Delivering events to the addresses that sites gave, in the background.

Any number of server processes share the work: each takes what is due by a claim of limited life
in the database. A process that dies leaves claims that run out; the event is then sent again, so
receivers tell repetitions by ``X-Pool-Delivery``.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import AsyncIterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager
from dataclasses import dataclass
from datetime import datetime, timedelta

from sqlalchemy.orm import Session

from pool_server.activity.events import repository
from pool_server.activity.events.calling import TIMEOUT_S, CallFailedError
from pool_server.activity.events.feed import describe_event
from pool_server.activity.events.service import hold_events, write_event
from pool_server.activity.events.webhooks import is_success, send_event
from pool_server.database.engine import write_with_retry
from pool_server.database.records import AuditRecord, WebhookDeliveryRecord, WebhookRecord, now_utc
from pool_server.http.metrics import CallOutcome
from pool_server.http.session import ServerParts
from pool_server.jobs.worker import working

log = logging.getLogger("pool_server.webhooks")

AT_ONCE = 4
LONGEST_WAIT = timedelta(hours=6)
CLAIM_MARGIN_S = 60.0
MOST_ATTEMPTS = 10
"""Failures of one event after which a webhook is disabled."""
FIRST_WAIT_S = 30.0
"""Doubled after each failure."""
REMEMBERED = timedelta(days=30)
DISABLED_EVENT = "webhook.disabled"

Claim = tuple[str, int]


@dataclass
class WebhookWorker:
    """Delivers what is due."""

    parts: ServerParts

    def step(self, _stopping: threading.Event) -> bool:
        """Deliver some of what is due; False where nothing is."""
        claims = self.claim_due()
        with ThreadPoolExecutor(AT_ONCE, thread_name_prefix="webhooks") as workers:
            for done in [workers.submit(self.deliver, claim) for claim in claims]:
                done.result()
        return bool(claims)

    def claim_due(self) -> list[Claim]:
        """Take some of what is due for this process."""
        now = now_utc()
        with self.parts.database.read() as session:
            due = repository.due_deliveries(session, now, AT_ONCE)
        if not due:
            return []
        until = now + timedelta(seconds=TIMEOUT_S + CLAIM_MARGIN_S)
        with self.parts.database.write() as session:
            repository.forget_delivered(session, now - REMEMBERED)
            return [
                (webhook_id, event_id)
                for webhook_id, event_id, attempts in due
                if repository.claim_delivery(session, webhook_id, event_id, attempts, until)
            ]

    def deliver(self, claim: Claim) -> None:
        """Call the address of one claimed delivery, and write down what came of it."""
        with self.parts.database.read() as session:
            delivery = repository.get_delivery(session, *claim)
        if delivery is None:
            return
        error = ""
        try:
            status = send_event(
                delivery.webhook, describe_event(delivery.event), self.parts.settings
            )
            if not is_success(status):
                error = f"it answered {status}"
        except CallFailedError as failure:
            error = str(failure)

        def settle(session: Session) -> CallOutcome | None:
            current = repository.get_delivery(session, *claim)
            if current is None or current.next_attempt_at is None:
                return None
            return self._settle(session, current, error, now_utc())

        outcome = write_with_retry(self.parts.database, settle)
        if outcome is not None:
            self.parts.metrics.count_webhook_call(outcome)

    def _settle(
        self, session: Session, delivery: WebhookDeliveryRecord, error: str, now: datetime
    ) -> CallOutcome:
        if not error:
            delivery.delivered_at, delivery.next_attempt_at, delivery.last_error = now, None, ""
            return "delivered"
        if delivery.attempts >= MOST_ATTEMPTS:
            # Before anything is changed: who writes an event at this moment has it wait for this
            # address, too, and other deliveries may fail just now.
            hold_events(session)
            delivery.last_error = error[:1000]
            disable(session, delivery.webhook, delivery, now)
            return "given_up"
        delivery.last_error = error[:1000]
        wait = timedelta(seconds=FIRST_WAIT_S * 2 ** (delivery.attempts - 1))
        delivery.next_attempt_at = now + min(wait, LONGEST_WAIT)
        return "failed"


def disable(
    session: Session, webhook: WebhookRecord, delivery: WebhookDeliveryRecord, now: datetime
) -> None:
    """Stop calling an address that failed too often, and tell its site in the feed, once."""
    first = repository.disable_webhook(session, webhook.id, now)
    repository.give_up_waiting(session, webhook.id, now)
    if not first:
        return
    site = delivery.event.site
    session.add(
        AuditRecord(
            actor_site=webhook.created_by.split("/")[0],
            actor_token="webhooks",
            token_id="",
            action="webhook.disable",
            subject=f"{site.name}/{webhook.id}",
            details={"url": webhook.url, "error": delivery.last_error},
        )
    )
    write_event(
        session,
        webhook.site_id,
        DISABLED_EVENT,
        webhook.id,
        url=webhook.url,
        error=delivery.last_error,
        attempts=delivery.attempts,
    )


@asynccontextmanager
async def delivering(parts: ServerParts) -> AsyncIterator[None]:
    """Deliver events in the background while the block runs; calls under way are waited for."""
    async with working(
        "webhooks",
        WebhookWorker(parts).step,
        interval_s=parts.settings.poll_interval_s,
        longest_stop_s=TIMEOUT_S + CLAIM_MARGIN_S,
    ):
        yield
